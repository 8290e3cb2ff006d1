//! Tests that the declarations for other languages match the exported functions.
//!
//! Update them with `UPDATE_DOCS=1 cargo test -p rushmem-device-c --test declarations`.

mod cpp;
mod header;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Compares a generated file with `wanted`, or writes it if `UPDATE_DOCS` is set.
fn compare(path: &str, wanted: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(file(path), wanted).unwrap();
    }
    let found = fs::read_to_string(file(path)).unwrap_or_default();
    assert!(found == wanted, "bindings/{path} differs from the source: UPDATE_DOCS=1 writes it again");
}

#[test]
fn the_table_lists_all_functions() {
    let functions: Vec<_> = table::families().into_iter().flat_map(|family| family.functions).collect();
    let text = serde_json::to_string_pretty(&functions).unwrap();
    compare("device/functions.json", &(text + "\n"));
}

#[test]
fn the_header_declares_all_functions() {
    compare("c/include/rushmem_device.h", &header::header(&table::families()));
}

#[test]
fn the_cpp_header_has_an_overload_for_each_function() {
    compare("c/include/rushmem_device.hpp", &cpp::header(&table::families()));
}

#[test]
fn the_header_is_valid_c_and_cpp() {
    let header = file("c/include/rushmem_device.h");
    for (compiler, options) in [("cc", ["-std=c11", "-xc"]), ("c++", ["-std=c++17", "-xc++"])] {
        let mut command = Command::new(compiler);
        command
            .args(options)
            .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"])
            .arg(&header);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Compares the table with the compiled functions: a kernel that declares other types would hang.
#[test]
#[ignore = "slow: compiles the device functions for GPUs"]
fn the_compiled_functions_have_the_declared_types() {
    let dir = tempfile::tempdir().unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "-q", "-p", "rushmem-ptx", "--", "library"])
        .arg(dir.path())
        .current_dir(file(".."))
        .status()
        .unwrap();
    assert!(status.success());
    for arch in ["sm75", "sm90"] {
        let text = fs::read_to_string(dir.path().join(format!("rushmem_device_{arch}.ll"))).unwrap();
        let compiled: BTreeMap<String, (String, Vec<String>)> = text.lines().filter_map(definition).collect();
        let mut count = 0;
        for function in table::families().into_iter().flat_map(|family| family.functions) {
            let types = function.parameters.iter().map(|p| p.value.llvm.to_owned()).collect();
            let wanted = (function.returns.llvm.to_owned(), types);
            assert_eq!(compiled.get(&function.name), Some(&wanted), "{arch}: {}", function.name);
            count += 1;
        }
        assert_eq!(compiled.len(), count, "{arch}: the module exports functions that the table lacks");
    }
}

/// Returns name, result and parameter types of the exported function that a line of LLVM assembly defines.
fn definition(line: &str) -> Option<(String, (String, Vec<String>))> {
    let (head, rest) = line.strip_prefix("define ")?.split_once("@rushmem_device_")?;
    if head.contains("internal") || head.contains("hidden") {
        return None;
    }
    let (name, parameters) = rest.split_once('(')?;
    let parameters = parameters.split_once(") unnamed_addr").map_or(parameters, |(list, _)| list);
    let types = parameters.split(", ").filter_map(|parameter| parameter.split_whitespace().next());
    let is_type = |word: &&str| matches!(*word, "float" | "double" | "i8" | "i16" | "i32" | "i64");
    let result = head.split_whitespace().find(is_type)?;
    let types = types.filter(is_type).map(str::to_owned).collect();
    Some((format!("rushmem_device_{name}"), (result.into(), types)))
}
