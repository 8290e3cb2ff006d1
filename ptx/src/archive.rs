//! Packs device functions into a static library that `nvcc` links like its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::sysroot::run;
use crate::target::for_arch;

/// A static library of device functions.
#[derive(Debug)]
pub struct Archive<'a> {
    /// PTX of the functions, for the GPU architectures without machine code.
    pub ptx: &'a str,
    /// Oldest architecture of each form of the PTX.
    pub ptx_arches: &'a [&'a str],
    /// Architectures with machine code, and the files with it.
    pub machine_code: &'a [(&'a str, PathBuf)],
}

/// Returns the path of `fatbinary`, which CUDA installs beside `ptxas`.
///
/// # Errors
/// - [`Error::Ptxas`] if it is not there.
pub fn fatbinary(ptxas: &Path) -> Result<PathBuf> {
    let path = fs::canonicalize(ptxas).map_err(Error::io("find", ptxas))?.with_file_name("fatbinary");
    if path.is_file() { Ok(path) } else { Err(Error::Ptxas(format!("{} does not exist", path.display()))) }
}

impl Archive<'_> {
    /// Writes the library to the file at `to`.
    ///
    /// # Errors
    /// - [`Error::Spawn`] or [`Error::Compile`] for `fatbinary`, `cc` and `ar`.
    /// - [`Error::Io`] for files.
    pub fn write(&self, fatbinary: &Path, to: &Path) -> Result<()> {
        let parts = to.with_extension("parts");
        fs::create_dir_all(&parts).map_err(Error::io("create", &parts))?;
        self.pack(fatbinary, &parts)?;

        let source = parts.join("device.c");
        fs::write(&source, include_str!("archive.c")).map_err(Error::io("write", &source))?;
        let mut compile = Command::new("cc");
        compile.args(["-c", "-O2", "-fPIC", "-o", "device.o", "device.c"]).current_dir(&parts);
        run(compile, "compiling the object of the device functions")?;
        let mut archive = Command::new("ar");
        archive.args(["rcsD", "device.a", "device.o"]).current_dir(&parts);
        run(archive, "archiving the device functions")?;
        fs::rename(parts.join("device.a"), to).map_err(Error::io("write", to))?;
        fs::remove_dir_all(&parts).map_err(Error::io("remove", &parts))
    }

    /// Writes `device.fatbin` with all images into the folder `parts`.
    fn pack(&self, fatbinary: &Path, parts: &Path) -> Result<()> {
        let mut pack = Command::new(fatbinary);
        pack.args(["-64", "--device-c", "--create=device.fatbin"]).current_dir(parts);
        for (arch, file) in self.machine_code {
            let file = fs::canonicalize(file).map_err(Error::io("find", file))?;
            pack.arg(image("elf", arch, &file));
        }
        for arch in self.ptx_arches {
            let name = format!("{arch}.ptx");
            let file = parts.join(&name);
            fs::write(&file, &*for_arch(self.ptx, arch)).map_err(Error::io("write", &file))?;
            pack.arg(image("ptx", arch, Path::new(&name)));
        }
        run(pack, "packing the device functions")
    }
}

/// Returns the argument that adds the image `file` for `arch` to a fatbin.
fn image(kind: &str, arch: &str, file: &Path) -> String {
    format!("--image3=kind={kind},sm={},file={}", arch.trim_start_matches("sm_"), file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fatbinary_is_beside_the_file_that_a_link_to_ptxas_names() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, link) = (dir.path().join("bin"), dir.path().join("ptxas"));
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("ptxas"), "").unwrap();
        std::os::unix::fs::symlink(bin.join("ptxas"), &link).unwrap();
        assert!(matches!(fatbinary(&link), Err(Error::Ptxas(_))));
        fs::write(bin.join("fatbinary"), "").unwrap();
        assert_eq!(fatbinary(&link).unwrap(), fs::canonicalize(bin).unwrap().join("fatbinary"));
    }

    #[test]
    fn images_name_the_number_of_their_architecture() {
        assert_eq!(image("elf", "sm_90", Path::new("a.cubin")), "--image3=kind=elf,sm=90,file=a.cubin");
    }
}
