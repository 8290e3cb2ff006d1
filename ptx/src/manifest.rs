//! Reads `Cargo.toml` files: the name of a package, its dependencies, and what determines the compiled code.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::canonical::canonical_table;
use crate::error::{Error, Result};
use crate::files;

/// A package's manifest, including the values inherited from its workspace.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    /// Name of the library in Rust, which is also the name of the PTX file.
    pub(crate) crate_name: String,
    pub(crate) version: String,
    pub(crate) edition: String,
    /// Source file of the library, if it is not `src/lib.rs`.
    pub(crate) lib: Option<PathBuf>,
    /// Folder of the workspace, which contains `Cargo.lock`.
    pub(crate) root: PathBuf,
    /// Folders of the package's path dependencies.
    pub(crate) paths: Vec<PathBuf>,
    /// Names of the package's registry and Git dependencies.
    pub(crate) registry: Vec<String>,
    /// Dependencies in a form that is valid in any manifest: without inheritance, and with absolute paths.
    pub(crate) dependencies: Table,
    /// The workspace's `[patch]` section, with absolute paths.
    pub(crate) patch: Table,
    /// Canonical spelling of all values that affect the build, for hashing.
    pub(crate) canonical: String,
    /// Paths of the files that were read: the manifest, and that of the workspace.
    pub(crate) read: Vec<PathBuf>,
}

/// The `cfg` of dependencies that never apply to GPU code.
const HOST_ONLY: &str = r#"cfg(not(target_arch="nvptx64"))"#;

/// Tables of a manifest that do not affect what is compiled for the GPU.
const IRRELEVANT: [&str; 10] = [
    "dev-dependencies",
    "lints",
    "badges",
    "bin",
    "bench",
    "example",
    "test",
    "workspace",
    "profile",
    "patch",
];

/// Keys of `[package]` that affect what is compiled.
const PACKAGE_KEYS: [&str; 5] = ["name", "version", "edition", "build", "links"];

impl Manifest {
    /// Reads the manifest of the package in `dir`, which is an absolute path.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        Self::read_part(dir, |table| Ok(table.clone()))
    }

    /// Reads the part of the manifest in `dir` that concerns a kernel module, whose only dependencies are `used`.
    pub(crate) fn of_module(dir: &Path, used: &[String]) -> Result<Self> {
        Self::read_part(dir, |table| for_module(table, used))
    }

    fn read_part(dir: &Path, part: impl FnOnce(&Table) -> Result<Table, String>) -> Result<Self> {
        let path = dir.join("Cargo.toml");
        let text = files::read(&path)?;
        let table = table(&path, &text)?;
        let workspace = Workspace::of(dir, &path, &table)?;
        let mut read = vec![path.clone()];
        read.extend(workspace.path.clone().filter(|p| *p != path));
        part(&table)
            .and_then(|table| Self::build(dir, &table, &workspace, read))
            .map_err(|problem| Error::Manifest { path, problem })
    }

    fn build(dir: &Path, table: &Table, workspace: &Workspace, read: Vec<PathBuf>) -> Result<Self, String> {
        let own = table.get("package").and_then(Value::as_table).ok_or("it has no [package]")?;
        let mut package = Table::new();
        for key in PACKAGE_KEYS {
            if let Some(value) = own.get(key) {
                package.insert(key.into(), workspace.inherited("package", key, value)?);
            }
        }
        let text = |t: &Table, key| t.get(key).and_then(Value::as_str).map(str::to_owned);
        let name = text(&package, "name").ok_or("the package has no name")?;
        let version = text(&package, "version").unwrap_or_else(|| "0.0.0".into());
        let edition = text(&package, "edition").unwrap_or_else(|| "2015".into());
        let lib = table.get("lib").and_then(Value::as_table);
        let crate_name = lib.and_then(|l| text(l, "name")).unwrap_or_else(|| name.replace('-', "_"));

        let mut all = table.clone();
        all.retain(|key, _| !IRRELEVANT.contains(&key));
        all.insert("package".into(), Value::Table(package));
        let mut found =
            Dependencies { dir, workspace, paths: Vec::new(), registry: Vec::new(), specs: Table::new() };
        found.resolve_in(&mut all)?;
        if let Some(Value::Table(targets)) = all.get_mut("target") {
            targets.retain(|cfg, _| cfg.replace(' ', "") != HOST_ONLY);
            for (_, target) in targets.iter_mut() {
                if let Value::Table(target) = target {
                    target.remove("dev-dependencies");
                    found.resolve_in(target)?;
                }
            }
        }
        let Dependencies { paths, registry, specs, .. } = found;
        Ok(Self {
            name,
            crate_name,
            version,
            edition,
            lib: lib.and_then(|l| text(l, "path")).map(|p| dir.join(p)),
            root: workspace.dir.clone(),
            paths,
            registry,
            dependencies: specs,
            patch: workspace.patch.clone(),
            canonical: canonical_table(&all),
            read,
        })
    }
}

/// Reduces a package's manifest to what concerns a kernel module with the dependencies `used`.
fn for_module(table: &Table, used: &[String]) -> Result<Table, String> {
    let package = table.get("package").ok_or("it has no [package]")?;
    let all = table.get("dependencies").and_then(Value::as_table);
    let spec = |name: &String| {
        let found = all.and_then(|all| all.get(name)).cloned();
        let found = found.ok_or_else(|| format!("the kernels need `{name}` in [dependencies]"))?;
        Ok::<_, String>((name.clone(), found))
    };
    let dependencies = used.iter().map(spec).collect::<Result<Table, _>>()?;
    Ok(Table::from_iter([
        ("package".to_owned(), package.clone()),
        ("dependencies".to_owned(), Value::Table(dependencies)),
    ]))
}

/// A package's dependencies, collected while walking through its manifest.
struct Dependencies<'a> {
    dir: &'a Path,
    workspace: &'a Workspace,
    paths: Vec<PathBuf>,
    registry: Vec<String>,
    specs: Table,
}

impl Dependencies<'_> {
    /// Collects the dependencies in `table` and replaces inherited ones. Removes their paths from `table`, because the
    /// location of a package does not affect the build.
    fn resolve_in(&mut self, table: &mut Table) -> Result<(), String> {
        for kind in ["dependencies", "build-dependencies"] {
            let Some(Value::Table(dependencies)) = table.get_mut(kind) else { continue };
            for (key, spec) in dependencies.iter_mut() {
                *spec = self.resolve(key, spec)?;
            }
        }
        Ok(())
    }

    fn resolve(&mut self, key: &str, spec: &Value) -> Result<Value, String> {
        let mut full = match spec {
            Value::String(version) => {
                Table::from_iter([("version".to_owned(), Value::String(version.clone()))])
            }
            Value::Table(t) => t.clone(),
            _ => return Err(format!("dependency `{key}` is neither a version nor a table")),
        };
        let mut base = self.dir;
        if full.remove("workspace").is_some() {
            base = &self.workspace.dir;
            let mut shared = match self.workspace.dependency(key)? {
                Value::String(version) => {
                    Table::from_iter([("version".to_owned(), Value::String(version.clone()))])
                }
                Value::Table(t) => t.clone(),
                _ => return Err(format!("workspace dependency `{key}` is neither a version nor a table")),
            };
            let features =
                |t: &Table| t.get("features").and_then(Value::as_array).cloned().unwrap_or_default();
            let both = [features(&shared), features(&full)].concat();
            full.remove("features");
            shared.extend(full);
            if !both.is_empty() {
                shared.insert("features".into(), Value::Array(both));
            }
            full = shared;
        }
        let package = full.get("package").and_then(Value::as_str).unwrap_or(key).to_owned();
        self.specs.insert(key.into(), placed(&full, base));
        match full.remove("path") {
            Some(Value::String(path)) => self.paths.push(base.join(path)),
            Some(_) => return Err(format!("the path of dependency `{key}` is not text")),
            None => self.registry.push(package),
        }
        Ok(Value::Table(full))
    }
}

/// Resolves the path of a dependency, which is relative to the manifest in `dir`.
fn placed(spec: &Table, dir: &Path) -> Value {
    let mut spec = spec.clone();
    if let Some(Value::String(path)) = spec.get_mut("path") {
        *path = dir.join(&*path).display().to_string();
    }
    Value::Table(spec)
}

/// Returns the `[patch]` section of the manifest in `dir`, with absolute paths.
fn patch(manifest: &Table, dir: &Path) -> Table {
    let Some(Value::Table(registries)) = manifest.get("patch") else { return Table::new() };
    let placed_all = |patches: &Value| match patches {
        Value::Table(patches) => {
            let placed_one = |spec: &Value| spec.as_table().map_or(spec.clone(), |spec| placed(spec, dir));
            Value::Table(patches.iter().map(|(name, spec)| (name.clone(), placed_one(spec))).collect())
        }
        other => other.clone(),
    };
    registries.iter().map(|(registry, patches)| (registry.clone(), placed_all(patches))).collect()
}

/// The workspace that a package belongs to. A package without one is its own workspace.
struct Workspace {
    dir: PathBuf,
    path: Option<PathBuf>,
    table: Table,
    patch: Table,
}

impl Workspace {
    fn of(dir: &Path, path: &Path, package: &Table) -> Result<Self> {
        if let Some(Value::Table(table)) = package.get("workspace") {
            let patch = patch(package, dir);
            return Ok(Self { dir: dir.into(), path: Some(path.into()), table: table.clone(), patch });
        }
        let named = package.get("package").and_then(|p| p.get("workspace")).and_then(Value::as_str);
        let candidates: Vec<PathBuf> = match named {
            Some(named) => vec![dir.join(named)],
            None => dir.ancestors().skip(1).map(Path::to_owned).collect(),
        };
        for dir in candidates {
            let path = dir.join("Cargo.toml");
            if !path.exists() {
                continue;
            }
            let manifest = table(&path, &files::read(&path)?)?;
            if let Some(Value::Table(found)) = manifest.get("workspace") {
                let patch = patch(&manifest, &dir);
                return Ok(Self { dir, path: Some(path), table: found.clone(), patch });
            }
        }
        Ok(Self { dir: dir.into(), path: None, table: Table::new(), patch: patch(package, dir) })
    }

    /// Returns `value`, unless it is `key.workspace = true`, which inherits the value from the workspace.
    fn inherited(&self, section: &str, key: &str, value: &Value) -> Result<Value, String> {
        if value.get("workspace").is_none() {
            return Ok(value.clone());
        }
        let shared = self.table.get(section).and_then(|s| s.get(key));
        shared.cloned().ok_or_else(|| format!("`{key}` is inherited, and the workspace has none"))
    }

    fn dependency(&self, key: &str) -> Result<&Value, String> {
        let shared = self.table.get("dependencies").and_then(|d| d.get(key));
        shared.ok_or_else(|| format!("dependency `{key}` is inherited, and the workspace has none"))
    }
}

fn table(path: &Path, text: &str) -> Result<Table> {
    text.parse().map_err(|e: toml::de::Error| Error::Manifest { path: path.into(), problem: e.to_string() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(dir: &Path, text: &str) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("Cargo.toml"), text).unwrap();
    }

    #[test]
    fn resolves_inheritance_and_omits_paths() {
        let tmp = tempfile::tempdir().unwrap();
        write(
            tmp.path(),
            "[workspace]\nmembers = ['k']\n[workspace.package]\nversion = '1.2.3'\n\
             [workspace.dependencies]\ndev = { path = 'far/dev' }\npod = { version = '2', features = ['a'] }\n",
        );
        let k = tmp.path().join("k");
        write(
            &k,
            "[package]\nname = 'my-kernels'\nversion.workspace = true\n[dependencies]\ndev.workspace = true\n\
             pod = { workspace = true, features = ['b'] }\nother = { package = 'real', version = '1' }\n\
             near = { path = '../near' }\n[dev-dependencies]\ntrybuild = '1'\n\
             [target.'cfg(not(target_arch = \"nvptx64\"))'.dependencies]\nhostly = '1'\n",
        );
        let m = Manifest::read(&k).unwrap();
        assert_eq!((&*m.name, &*m.crate_name, &*m.version), ("my-kernels", "my_kernels", "1.2.3"));
        assert_eq!(m.root, tmp.path());
        assert_eq!(m.paths, [tmp.path().join("far/dev"), k.join("../near")]);
        assert_eq!(m.registry, ["real", "pod"]);
        assert!(m.canonical.contains(r#""features"=["a","b",]"#), "{}", m.canonical);
        for absent in ["far", "../near", "trybuild", "hostly"] {
            assert!(!m.canonical.contains(absent), "{absent} in {}", m.canonical);
        }
    }

    #[test]
    fn standalone_package_is_its_own_workspace() {
        let tmp = tempfile::tempdir().unwrap();
        write(tmp.path(), "[package]\nname = 'k'\n[lib]\nname = 'other'\npath = 'k.rs'\n");
        let m = Manifest::read(tmp.path()).unwrap();
        assert_eq!((&*m.crate_name, m.root.as_path()), ("other", tmp.path()));
        assert_eq!(m.lib, Some(tmp.path().join("k.rs")));
    }

    #[test]
    fn module_has_only_the_named_dependencies() {
        let tmp = tempfile::tempdir().unwrap();
        write(
            tmp.path(),
            "[workspace]\nmembers = ['app']\n[workspace.dependencies]\ndev = { path = 'far/dev', features = ['a'] }\n\
             [patch.crates-io]\npod = { path = 'pod' }\n",
        );
        let app = tmp.path().join("app");
        write(
            &app,
            "[package]\nname = 'my-app'\nversion = '1.2.3'\nedition = '2024'\n[dependencies]\ndev.workspace = true\n\
             hostly = '1'\npod = '2'\n[build-dependencies]\nbuilder = '1'\n",
        );
        let m = Manifest::of_module(&app, &["dev".into(), "pod".into()]).unwrap();
        assert_eq!((&*m.edition, &*m.registry), ("2024", &["pod".to_owned()][..]));
        let (dev, pod) = (tmp.path().join("far/dev"), tmp.path().join("pod"));
        assert_eq!(m.paths, std::slice::from_ref(&dev));
        let expected =
            format!("dev = {{ path = '{}', features = ['a'] }}\npod = {{ version = '2' }}\n", dev.display());
        assert_eq!(m.dependencies, expected.parse::<Table>().unwrap());
        let expected = format!("crates-io.pod.path = '{}'", pod.display());
        assert_eq!(m.patch, expected.parse::<Table>().unwrap());

        let error = Manifest::of_module(&app, &["absent".into()]).unwrap_err().to_string();
        assert!(error.ends_with("app/Cargo.toml: the kernels need `absent` in [dependencies]"), "{error}");
    }

    #[test]
    fn errors_name_the_manifest() {
        let tmp = tempfile::tempdir().unwrap();
        let message = |text| {
            write(tmp.path(), text);
            Manifest::read(tmp.path()).unwrap_err().to_string()
        };
        assert!(message("[lib]").ends_with("Cargo.toml: it has no [package]"));
        assert!(
            message("[package]\nname='k'\n[dependencies]\nx.workspace = true")
                .contains("dependency `x` is inherited")
        );
        let absent = Manifest::read(&tmp.path().join("absent")).unwrap_err().to_string();
        assert!(absent.starts_with("cannot read "), "{absent}");
    }
}
