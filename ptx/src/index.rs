//! The list of all kernel modules and crates that a build script has built, which the macro `rushmem::ptx!` reads.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::error::Result;
use crate::files;

/// Environment variable with the path of the index, which the macro `rushmem::ptx!` reads at compile time.
///
/// Cargo also sets the variable for programs that it runs. Jobs reject unknown variables with the prefix `RUSHMEM_`, so
/// the name has another prefix.
const INDEX_VARIABLE: &str = "KERNEL_PTX_INDEX";

/// Names of all kernel modules and crates that this build script has built so far.
static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Adds a kernel module or crate to the index. The index and the PTX are in the folder `out`.
pub(crate) fn add(out: &Path, crate_name: &str) -> Result<()> {
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    built.insert(crate_name.to_owned());
    let path = out.join("kernel_ptx_index.rs");
    files::write_if_changed(&path, &text(&built))?;
    println!("cargo::rustc-env={INDEX_VARIABLE}={}", path.display());
    Ok(())
}

/// Formats the index as a Rust array of tuples: name, PTX, machine code, and why the PTX is missing.
fn text(crates: &BTreeSet<String>) -> String {
    let entry = |name: &String| {
        format!(
            "    (\"{name}\", include_str!(\"{name}.ptx\"), include_bytes!(\"{name}.cubin\") as &[u8], \
             include_str!(\"{name}.omitted\")),\n"
        )
    };
    format!("&[\n{}]\n", crates.iter().map(entry).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_all_crates_of_a_build_script() {
        let out = tempfile::tempdir().unwrap();
        add(out.path(), "b").unwrap();
        add(out.path(), "a").unwrap();
        let index = files::read(&out.path().join("kernel_ptx_index.rs")).unwrap();
        assert_eq!(
            index,
            "&[\n    (\"a\", include_str!(\"a.ptx\"), include_bytes!(\"a.cubin\") as &[u8], include_str!(\"a.omitted\")),\n    \
             (\"b\", include_str!(\"b.ptx\"), include_bytes!(\"b.cubin\") as &[u8], include_str!(\"b.omitted\")),\n]\n"
        );
    }
}
