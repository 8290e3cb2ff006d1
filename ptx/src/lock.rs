//! Reads `Cargo.lock`: which versions of registry and Git packages a kernel crate is built with.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table, Value};

use crate::error::{Error, Result};
use crate::files;

/// The packages of a `Cargo.lock`.
#[derive(Default)]
pub(crate) struct Lock {
    packages: Vec<Locked>,
}

struct Locked {
    name: String,
    version: String,
    /// URL of the registry or Git repository. `None` for path packages.
    source: Option<String>,
    checksum: Option<String>,
    /// Dependencies as spelled in the file: `name`, or `name version` or `name version (source)` if the name is
    /// ambiguous.
    dependencies: Vec<String>,
}

impl Lock {
    /// Reads the lock file at `path`. A missing file yields a lock without packages.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        Self::parse(&files::read(path)?).map_err(|problem| Error::Manifest { path: path.into(), problem })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let table: Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
        let packages = match table.get("package") {
            Some(Value::Array(list)) => list.iter().map(locked).collect::<Result<_, _>>()?,
            Some(_) => return Err("`package` is not a list".into()),
            None => Vec::new(),
        };
        Ok(Self { packages })
    }

    /// Returns the registry and Git packages that the path package `name` needs, directly or indirectly, through its
    /// dependencies `direct`. Each is a line with name, version, and checksum or source.
    pub(crate) fn closure(&self, name: &str, direct: &[String]) -> Vec<String> {
        let Some(from) = self.packages.iter().find(|p| p.name == name && p.source.is_none()) else {
            return Vec::new();
        };
        let mut found = BTreeMap::new();
        let mut todo: Vec<&Locked> = from
            .dependencies
            .iter()
            .filter(|d| direct.iter().any(|name| name == word(d, 0)))
            .filter_map(|d| self.resolve(d))
            .collect();
        while let Some(package) = todo.pop() {
            let Some(source) = &package.source else { continue };
            let id = package.checksum.as_ref().unwrap_or(source);
            if found.insert(format!("{} {} {id}", package.name, package.version), ()).is_none() {
                todo.extend(package.dependencies.iter().filter_map(|d| self.resolve(d)));
            }
        }
        found.into_keys().collect()
    }

    fn resolve(&self, dependency: &str) -> Option<&Locked> {
        let (name, version) = (word(dependency, 0), word(dependency, 1));
        self.packages.iter().find(|p| p.name == name && (version.is_empty() || p.version == version))
    }
}

fn word(text: &str, index: usize) -> &str {
    text.split(' ').nth(index).unwrap_or("")
}

fn locked(value: &Value) -> Result<Locked, String> {
    let text = |key| value.get(key).and_then(Value::as_str).map(str::to_owned);
    Ok(Locked {
        name: text("name").ok_or("a package without a name")?,
        version: text("version").ok_or("a package without a version")?,
        source: text("source"),
        checksum: text("checksum"),
        dependencies: value
            .get("dependencies")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|d| d.as_str().map(str::to_owned))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
version = 4
[[package]]
name = "app"
version = "0.1.0"
dependencies = ["pod 2.0.0", "local", "test-only"]
[[package]]
name = "local"
version = "0.1.0"
dependencies = ["pod 1.0.0"]
[[package]]
name = "pod"
version = "1.0.0"
source = "registry+x"
checksum = "aa"
[[package]]
name = "pod"
version = "2.0.0"
source = "registry+x"
checksum = "bb"
dependencies = ["derive"]
[[package]]
name = "derive"
version = "3.0.0"
source = "git+https://example.com#123"
dependencies = ["pod 2.0.0"]
[[package]]
name = "test-only"
version = "9.0.0"
source = "registry+x"
checksum = "cc"
"#;

    #[test]
    fn closure_follows_direct_dependencies_in_their_locked_versions() {
        let lock = Lock::parse(TEXT).unwrap();
        let direct = ["pod".to_owned()];
        assert_eq!(
            lock.closure("app", &direct),
            ["derive 3.0.0 git+https://example.com#123", "pod 2.0.0 bb"]
        );
        assert_eq!(lock.closure("local", &direct), ["pod 1.0.0 aa"]);
        assert_eq!(lock.closure("app", &["local".to_owned()]), [""; 0]);
        assert_eq!(lock.closure("absent", &direct), [""; 0]);
    }

    #[test]
    fn rejects_damaged_files() {
        assert!(Lock::parse("package = 3").is_err());
        assert!(Lock::parse("[[package]]\nversion = '1'").is_err());
        assert!(Lock::parse("[[").is_err());
    }
}
