//! Assembles LLVM assembly to bitcode, for compilers that read only that.

use std::path::Path;
use std::process::Command;

use crate::error::Result;
use crate::sysroot::run;
use crate::toolchain::Toolchain;

/// Returns the name of an installed `llvm-as` of the same major release as the compiler's LLVM.
pub fn assembler(toolchain: &Toolchain) -> Option<String> {
    let major = toolchain.version.llvm.split('.').next()?;
    let is_of_release = |name: &String| {
        let output = Command::new(name).arg("--version").output();
        output.is_ok_and(|output| {
            String::from_utf8_lossy(&output.stdout).contains(&format!("LLVM version {major}."))
        })
    };
    [format!("llvm-as-{major}"), "llvm-as".into()].into_iter().find(is_of_release)
}

/// Assembles the module in the file `from` by `assembler`, and writes its bitcode to `to`.
///
/// # Errors
/// - [`Error::Spawn`](crate::Error::Spawn) or [`Error::Compile`](crate::Error::Compile) for the assembler.
pub fn assemble(assembler: &str, from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new(assembler);
    command.arg("-o").args([to, from]);
    run(command, "assembling bitcode of the device functions")
}
