//! The index of the kernel modules and kernel crates that a build script has built, for the macro `rushmem::ptx!`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::error::Result;
use crate::files;

/// The variable with the path of the index, which the macro reads at compile time.
///
/// Cargo also sets it for programs that it runs. A job refuses unknown variables with the prefix `RUSHMEM_`, so the
/// name has another prefix.
const VARIABLE: &str = "KERNEL_PTX_INDEX";

/// The names of what this build script has built.
static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Adds a module or crate to the index in the folder `out`, where its PTX is.
pub(crate) fn add(out: &Path, crate_name: &str) -> Result<()> {
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    built.insert(crate_name.to_owned());
    let path = out.join("kernel_ptx_index.rs");
    files::write_if_changed(&path, &text(&built))?;
    println!("cargo::rustc-env={VARIABLE}={}", path.display());
    Ok(())
}

/// Returns an array of name, PTX, machine code, and reason for missing PTX.
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
