//! Kernel modules: files of the application's own crate that are compiled for GPUs as a separate, generated crate.

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::error::{Error, Result};
use crate::files;
use crate::manifest::Manifest;

/// Name of the package that every kernel module depends on.
pub(crate) const DEVICE: &str = "rushmem-device";

/// The crate that is generated to compile a kernel module.
#[derive(Debug)]
pub(crate) struct Module {
    /// Contents of the generated `Cargo.toml`.
    manifest: String,
    /// Contents of the generated `lib.rs`.
    root: String,
    /// Path of the application's lock file, which is copied to get the same versions of dependencies.
    lock: PathBuf,
}

impl Module {
    /// Generates a crate for the module `name` in `folder`, which belongs to the package described by `manifest`.
    pub(crate) fn new(name: &str, folder: &Path, manifest: &Manifest) -> Self {
        Self {
            manifest: manifest_of(name, manifest),
            root: root_of(name, folder),
            lock: manifest.root.join("Cargo.lock"),
        }
    }

    /// Writes the generated crate to `dir`. Concurrent builds may write the same files.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        files::create_dir(dir)?;
        files::write_if_changed(&dir.join("Cargo.toml"), &self.manifest)?;
        files::write_if_changed(&dir.join("lib.rs"), &self.root)?;
        if !self.lock.exists() {
            return Ok(());
        }
        // Cargo removes what this crate does not need, and keeps the other versions. Rename the file, so Cargo never
        // sees half of it.
        let copy = dir.join(format!("Cargo.lock.{}", std::process::id()));
        // Do not copy the file with its permissions: Cargo must be able to write it.
        let lock = fs::read(&self.lock).map_err(Error::io("read", &self.lock))?;
        fs::write(&copy, lock).map_err(Error::io("write", &copy))?;
        fs::rename(&copy, dir.join("Cargo.lock")).map_err(Error::io("rename", &copy))
    }
}

fn manifest_of(name: &str, of_package: &Manifest) -> String {
    let text = |text: &str| Value::String(text.into());
    let table = |entries: &[(&str, Value)]| {
        Value::Table(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
    };
    let mut dependencies = of_package.dependencies.clone();
    for (_, spec) in dependencies.iter_mut() {
        spec.as_table_mut().map(|spec| spec.remove("optional"));
    }
    let package = [
        ("name", text(name)),
        ("version", text(&of_package.version)),
        ("edition", text(&of_package.edition)),
    ];
    let manifest: Table = [
        ("package", table(&package)),
        ("lib", table(&[("path", text("lib.rs"))])),
        ("dependencies", Value::Table(dependencies)),
        ("patch", Value::Table(of_package.patch.clone())),
        // It lies in the target folder, but is not a member of the application's workspace.
        ("workspace", table(&[])),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    manifest.to_string()
}

/// Returns the source of a crate root that contains the module `name`, whose file is in `folder`. A `path` attribute on
/// the module itself would change where its submodules are looked up, so an outer module has it.
fn root_of(name: &str, folder: &Path) -> String {
    format!(
        "#![no_std]\n#![feature(abi_ptx)]\n\n#[path = {:?}]\nmod folder {{\n    pub mod {name};\n}}\npub use folder::{name};\n",
        folder.display().to_string()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_a_crate_with_the_locked_versions() {
        let tmp = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| files::write_if_changed(&tmp.path().join(name), text).unwrap();
        put(
            "Cargo.toml",
            "[package]\nname = 'app'\nversion = '1.2.3'\nedition = '2024'\n\
             [dependencies]\nrushmem-device = { version = '0.1', optional = true }\n",
        );
        put("Cargo.lock", "version = 4\n");
        let manifest = Manifest::of_module(tmp.path(), &[DEVICE.into()]).unwrap();
        let dir = tmp.path().join("target/kernels");
        Module::new("kernels", Path::new("/a \"b\"/src"), &manifest).write(&dir).unwrap();
        let written = files::read(&dir.join("Cargo.toml")).unwrap().parse::<Table>().unwrap();
        let expected = "package = { name = 'kernels', version = '1.2.3', edition = '2024' }\nlib.path = 'lib.rs'\n\
                        dependencies.rushmem-device.version = '0.1'\npatch = {}\nworkspace = {}\n";
        assert_eq!(written, expected.parse::<Table>().unwrap());
        let root = files::read(&dir.join("lib.rs")).unwrap();
        assert!(
            root.contains("#[path = \"/a \\\"b\\\"/src\"]\nmod folder {\n    pub mod kernels;\n}"),
            "{root}"
        );
        assert_eq!(files::read(&dir.join("Cargo.lock")).unwrap(), "version = 4\n");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 3);
    }
}
