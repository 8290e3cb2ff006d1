//! Collects and hashes all source files that determine the PTX of a kernel crate or module.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::manifest::Manifest;
use crate::module::{DEVICE, Module};

/// Version of the compilation process, which is part of the source hash. Incrementing it makes all committed PTX stale.
const RECIPE: u32 = 2;

/// Folders of a package that are not part of its library.
const NOT_LIBRARY: [&str; 5] = ["target", "tests", "benches", "examples", "fuzz"];

/// The source of a kernel crate or kernel module, including its path dependencies.
#[derive(Debug)]
pub struct Source {
    /// Folder of the package that contains the kernels.
    pub dir: PathBuf,
    /// Name of the crate or module in Rust. The PTX file is `<crate_name>.ptx`.
    pub crate_name: String,
    /// Folder of the workspace that the package belongs to.
    pub workspace: PathBuf,
    /// SHA-256, in hexadecimal, of everything that determines the PTX, except for compiler and target.
    ///
    /// The hash covers names, versions, manifests and sources of path packages, and versions and checksums of other
    /// packages. It does not depend on the location of files or on the kind of line breaks.
    pub hash: String,
    /// All files covered by the hash, which must trigger a rebuild when they change.
    pub files: Vec<PathBuf>,
    /// Folder and `name-version` of every path package, to remap paths in the PTX.
    pub(crate) packages: Vec<(PathBuf, String)>,
    /// The generated crate, if the source is a kernel module.
    pub(crate) module: Option<Module>,
}

impl Source {
    /// Reads the kernel crate in `dir`.
    ///
    /// # Errors
    /// - [`Error::Io`] if a file cannot be read.
    /// - [`Error::Manifest`] for an invalid manifest or lock file.
    pub fn read(dir: &Path) -> Result<Self> {
        let dir = dir.canonicalize().map_err(Error::io("find kernel crate", dir))?;
        let kernels = Manifest::read(&dir)?;
        let files = package_files(&dir, &kernels)?;
        let crate_name = kernels.crate_name.clone();
        Self::gather(dir, kernels, files, crate_name, None)
    }

    /// Reads the kernel module in `file` of the package in `dir`.
    ///
    /// Its submodules are in the folder of the same name. It can use `rushmem-device` and those of the package's
    /// dependencies that are listed in `used`.
    ///
    /// # Errors
    /// - [`Error::Io`] if a file cannot be read.
    /// - [`Error::Manifest`] if the manifest or lock file is invalid, or if the manifest lacks a dependency.
    pub fn read_module(file: &Path, dir: &Path, used: &[String]) -> Result<Self> {
        let dir = dir.canonicalize().map_err(Error::io("find package", dir))?;
        let file = file.canonicalize().map_err(Error::io("find kernel module", file))?;
        let parent = file.parent().unwrap_or(&dir);
        // `kernels.rs`, or `kernels/mod.rs`
        let module = if file.ends_with("mod.rs") { parent.to_owned() } else { file.with_extension("") };
        let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();

        let used: Vec<String> = [DEVICE.to_owned()].into_iter().chain(used.iter().cloned()).collect();
        let manifest = Manifest::of_module(&dir, &used)?;
        let mut files = vec![file.clone()];
        if module.is_dir() {
            collect(&dir, &module, &mut files)?;
        }
        let krate = Module::new(&name, module.parent().unwrap_or(&dir), &manifest);
        Self::gather(dir, manifest, files, name, Some(krate))
    }

    /// Adds the path dependencies to the package `kernels`, whose own source files are `own`, and hashes everything.
    fn gather(
        dir: PathBuf,
        kernels: Manifest,
        own: Vec<PathBuf>,
        crate_name: String,
        module: Option<Module>,
    ) -> Result<Self> {
        let lock_path = kernels.root.join("Cargo.lock");
        let lock = Lock::read(&lock_path)?;
        let workspace = kernels.root.clone();

        let mut packages = BTreeMap::from([(dir.clone(), kernels)]);
        let mut todo = vec![dir.clone()];
        while let Some(at) = todo.pop() {
            for path in packages[&at].paths.clone() {
                let path = path.canonicalize().map_err(Error::io("find dependency", &path))?;
                if !packages.contains_key(&path) {
                    packages.insert(path.clone(), Manifest::read(&path)?);
                    todo.push(path);
                }
            }
        }

        let mut files = Vec::new();
        let mut lines = Vec::new();
        for (at, manifest) in &packages {
            let found = if *at == dir { own.clone() } else { package_files(at, manifest)? };
            lines.push(package_line(at, manifest, &found)?);
            files.extend(manifest.read.iter().cloned().chain(found));
            let registry = lock.closure(&manifest.name, &manifest.registry);
            lines.extend(registry.into_iter().map(|r| format!("registry {r}")));
        }
        // The order must not depend on paths: sort by name.
        lines.sort();
        lines.dedup();
        if lock_path.exists() {
            files.push(lock_path);
        }
        files.sort();
        files.dedup();

        let mut hash = Sha256::new();
        hash.update(format!("rushmem-ptx recipe {RECIPE}\n"));
        for line in &lines {
            hash.update(line);
            hash.update("\n");
        }
        let packages = packages.into_iter().map(|(d, m)| (d, format!("{}-{}", m.name, m.version))).collect();
        Ok(Self { dir, crate_name, workspace, hash: hex(&hash.finalize()), files, packages, module })
    }
}

fn package_files(dir: &Path, manifest: &Manifest) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect(dir, dir, &mut found)?;
    found.extend(manifest.lib.clone());
    Ok(found)
}

/// Formats a package's name, manifest hash and file hashes as a line of the source hash's input.
fn package_line(dir: &Path, manifest: &Manifest, files: &[PathBuf]) -> Result<String> {
    let mut named = BTreeMap::new();
    for path in files {
        let relative = path.strip_prefix(dir).unwrap_or(path);
        let name =
            relative.components().map(|c| c.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/");
        named.insert(name, hash_file(path)?);
    }
    let files: String = named.iter().map(|(name, hash)| format!(" {name}={hash}")).collect();
    Ok(format!("package {} {}{files}", manifest.name, hex(&Sha256::digest(&manifest.canonical))))
}

/// Adds the files below `dir` to `found`: everything in the package's `src`, and other Rust files such as `build.rs`.
/// `root` is the package's folder.
fn collect(root: &Path, dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let path = entry.map_err(Error::io("list", dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            let foreign = path.join("Cargo.toml").exists() || (dir == root && NOT_LIBRARY.contains(&&*name));
            if !foreign {
                collect(root, &path, found)?;
            }
        } else if path.starts_with(root.join("src")) || path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

fn hash_file(path: &Path) -> Result<String> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    let digest = match String::from_utf8(bytes) {
        Ok(text) => Sha256::digest(text.replace("\r\n", "\n")),
        Err(binary) => Sha256::digest(binary.as_bytes()),
    };
    Ok(hex(&digest))
}

pub(crate) fn hash(text: &str) -> String {
    hex(&Sha256::digest(text))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a kernel crate `k` that has a path dependency `d` with a nested package, and a locked registry
    /// dependency.
    fn tree(root: &Path) -> PathBuf {
        let put = |name: &str, text: &str| {
            let path = root.join(name);
            crate::files::create_dir(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(
            "Cargo.toml",
            "[workspace]\nmembers = ['k', 'd']\n[workspace.dependencies]\nd = { path = 'd' }\npod = '1'\n",
        );
        put(
            "Cargo.lock",
            "[[package]]\nname='k'\nversion='0.1.0'\ndependencies=['d']\n\
             [[package]]\nname='d'\nversion='0.1.0'\ndependencies=['pod','test-only']\n\
             [[package]]\nname='pod'\nversion='1.0.0'\nsource='r'\nchecksum='aa'\n\
             [[package]]\nname='test-only'\nversion='1.0.0'\nsource='r'\nchecksum='bb'\n",
        );
        put("k/Cargo.toml", "[package]\nname = 'k'\nversion = '0.1.0'\n[dependencies]\nd.workspace = true\n");
        put("k/src/lib.rs", "//! k\nmod a;\n");
        put("k/src/a.rs", "fn a() {}\n");
        put(
            "d/Cargo.toml",
            "[package]\nname = 'd'\nversion = '0.1.0'\n[dependencies]\npod.workspace = true\n[dev-dependencies]\ntest-only = '1'\n",
        );
        put("d/src/lib.rs", "//! d\n");
        put("d/src/table.bin", "1");
        put("d/tests/t.rs", "fn t() {}\n");
        put("d/nested/Cargo.toml", "[package]\nname = 'nested'\n");
        put("d/nested/src/lib.rs", "//! n\n");
        root.join("k")
    }

    #[test]
    fn hash_ignores_location_and_line_ends() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = Source::read(&tree(one.path())).unwrap();
        let k = tree(&two.path().join("elsewhere"));
        fs::write(k.join("src/lib.rs"), "//! k\r\nmod a;\r\n").unwrap();
        assert_eq!(Source::read(&k).unwrap().hash, first.hash);
        assert_eq!(first.crate_name, "k");
        assert_eq!(first.hash.len(), 64);
    }

    #[test]
    fn hash_covers_sources_manifests_and_checksums() {
        let tmp = tempfile::tempdir().unwrap();
        let k = tree(tmp.path());
        let before = Source::read(&k).unwrap().hash;
        for (file, text) in [
            ("k/src/a.rs", "fn b() {}\n"),
            ("k/src/new.rs", ""),
            ("k/build.rs", "fn main() {}"),
            ("d/src/table.bin", "2"),
            (
                "d/Cargo.toml",
                "[package]\nname = 'd'\nversion = '0.1.0'\nedition = '2024'\n[dependencies]\npod.workspace = true\n",
            ),
            (
                "Cargo.toml",
                "[workspace]\n[workspace.dependencies]\nd = { path = 'd', features = ['x'] }\npod = '1'\n",
            ),
        ] {
            tree(tmp.path());
            fs::write(tmp.path().join(file), text).unwrap();
            assert_ne!(Source::read(&k).unwrap().hash, before, "{file}");
            fs::remove_file(tmp.path().join(file)).unwrap();
        }
        tree(tmp.path());
        let lock = tmp.path().join("Cargo.lock");
        let text = fs::read_to_string(&lock).unwrap();
        fs::write(&lock, text.replace("'aa'", "'ab'")).unwrap();
        assert_ne!(Source::read(&k).unwrap().hash, before, "a checksum");
        fs::write(&lock, text).unwrap();
        assert_eq!(Source::read(&k).unwrap().hash, before);
    }

    #[test]
    fn hash_ignores_tests_nested_packages_and_build_output() {
        let tmp = tempfile::tempdir().unwrap();
        let k = tree(tmp.path());
        let before = Source::read(&k).unwrap().hash;
        let lock = fs::read_to_string(tmp.path().join("Cargo.lock")).unwrap();
        for (file, text) in [
            ("d/tests/t.rs", "fn u() {}\n"),
            ("d/nested/src/lib.rs", "//! changed\n"),
            ("d/README.md", "changed"),
            ("k/target/x.rs", "changed"),
            ("Cargo.lock", &lock.replace("'bb'", "'bc'")),
        ] {
            let path = tmp.path().join(file);
            crate::files::create_dir(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            assert_eq!(Source::read(&k).unwrap().hash, before, "{file}");
        }
    }

    /// Writes the package `d` of [`tree`] as an application with a kernel module. Returns the module's hash and file
    /// names.
    fn module(root: &Path) -> (String, Vec<String>) {
        let app = tree(root).with_file_name("d");
        let manifest = "[package]\nname = 'd'\nversion = '0.1.0'\n[dependencies]\nrushmem-device = { path = '../k' }\n\
                        pod.workspace = true\nhostly = '1'\n";
        for (file, text) in [
            ("Cargo.toml", manifest),
            ("src/main.rs", "mod kernels;\n"),
            ("src/kernels.rs", "mod a;\n"),
            ("src/kernels/a.rs", "fn a() {}\n"),
        ] {
            crate::files::create_dir(app.join(file).parent().unwrap()).unwrap();
            fs::write(app.join(file), text).unwrap();
        }
        summary(&app)
    }

    fn summary(app: &Path) -> (String, Vec<String>) {
        let source = Source::read_module(&app.join("src/kernels.rs"), app, &["pod".into()]).unwrap();
        assert_eq!(source.crate_name, "kernels");
        let root = app.parent().unwrap().canonicalize().unwrap();
        let name = |path: &PathBuf| path.strip_prefix(&root).unwrap().display().to_string();
        (source.hash, source.files.iter().map(name).collect())
    }

    #[test]
    fn module_consists_of_its_file_and_its_folder() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (hash, files) = module(one.path());
        let expected = [
            "Cargo.lock",
            "Cargo.toml",
            "d/Cargo.toml",
            "d/src/kernels/a.rs",
            "d/src/kernels.rs",
            "k/Cargo.toml",
            "k/src/a.rs",
            "k/src/lib.rs",
        ];
        assert_eq!(files, expected);
        assert_eq!(module(&two.path().join("elsewhere")).0, hash);

        let app = one.path().join("d");
        fs::write(app.join("src/main.rs"), "mod kernels; mod more;\n").unwrap();
        assert_eq!(summary(&app).0, hash, "the host side");
        fs::write(app.join("src/kernels/a.rs"), "fn b() {}\n").unwrap();
        assert_ne!(summary(&app).0, hash, "a submodule");
    }

    #[test]
    fn reports_a_missing_crate() {
        let error = Source::read(Path::new("/nowhere/kernels")).unwrap_err().to_string();
        assert!(error.starts_with("cannot find kernel crate /nowhere/kernels: "), "{error}");
    }
}
