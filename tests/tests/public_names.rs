//! Tests that `docs/public-names.txt` lists all public names of the crates that applications use.
//!
//! The list contains what rustdoc sees, so a change of the API shows up in review as a change of this file. Update it
//! with `UPDATE_DOCS=1 cargo test -p rushmem-tests --test public_names -- --ignored`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use rushmem_tests::repository::root;

/// The crates whose names are listed. Items that they re-export from other crates of the workspace are listed with
/// their members.
const LISTED: [&str; 2] = ["rushmem", "rushmem-device"];

#[test]
#[ignore = "slow: runs with --ignored"]
fn list_of_public_names_is_current() {
    let documented = documented();
    let mut names = BTreeSet::new();
    for package in LISTED {
        let name = package.replace('-', "_");
        let krate = &documented.0[&name];
        documented.list(krate, &krate.root, &name, &mut names);
    }
    assert!(names.contains("rushmem::Pe::alloc fn") && names.contains("rushmem_device::Ctx::put_nbi fn"));
    let current = names.into_iter().map(|name| name + "\n").collect::<String>();

    let page = root().join("docs/public-names.txt");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&page, &current).unwrap();
    }
    let committed = std::fs::read_to_string(&page).unwrap_or_default();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (old, new) = (lines(&committed), lines(&current));
    let gone = old.difference(&new).map(|name| format!("-{name}\n"));
    let added = new.difference(&old).map(|name| format!("+{name}\n"));
    let changes = gone.chain(added).collect::<String>();
    assert!(changes.is_empty(), "the public names have changed; set UPDATE_DOCS=1 to list them:\n{changes}");
}

/// The rustdoc output of one crate.
struct Krate {
    root: String,
    index: BTreeMap<String, Value>,
    /// Paths of items in the crate that defines the items, by rustdoc ID.
    paths: BTreeMap<String, String>,
    /// Path and kind of each item that the crate mentions, including foreign ones, by rustdoc ID.
    known: BTreeMap<String, (String, String)>,
}

/// rustdoc's output for the crates of the workspace, by crate name.
struct Documented(BTreeMap<String, Krate>);

/// Runs rustdoc on all crates of the workspace that the listed ones may re-export.
fn documented() -> Documented {
    let folder = tempfile::tempdir().unwrap();
    // Only rustdoc needs the unstable option. Passed to cargo, the variable would cause dependencies to be rebuilt.
    let rustdoc = folder.path().join("rustdoc");
    std::fs::write(&rustdoc, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n").unwrap();
    std::fs::set_permissions(&rustdoc, std::fs::Permissions::from_mode(0o755)).unwrap();
    let metadata =
        Command::new(env!("CARGO")).args(["metadata", "--no-deps", "--format-version=1"]).output().unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let libraries = packages.filter(|package| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        manifest.starts_with(root().join("host")) || LISTED.contains(&package["name"].as_str().unwrap())
    });
    let mut command = Command::new(env!("CARGO"));
    command.args(["doc", "--quiet", "--locked", "--no-deps", "--lib"]);
    let mut names = Vec::new();
    for library in libraries {
        let name = library["name"].as_str().unwrap();
        command.args(["-p", name]);
        names.push(name.replace('-', "_"));
    }
    command.env("RUSTDOC", &rustdoc).env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    let output = command.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let pages = Path::new(metadata["target_directory"].as_str().unwrap()).join("doc");
    Documented(
        names.into_iter().map(|name| (name.clone(), Krate::read(&pages.join(name + ".json")))).collect(),
    )
}

impl Krate {
    fn read(file: &Path) -> Self {
        let json: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let members = |field: &str| json[field].as_object().unwrap().clone();
        let known = members("paths").into_iter().map(|(id, item)| {
            let path = item["path"].as_array().unwrap().iter().filter_map(Value::as_str).collect::<Vec<_>>();
            (id, (path.join("::"), item["kind"].as_str().unwrap().to_owned()))
        });
        let known: BTreeMap<_, _> = known.collect();
        let paths = known.iter().map(|(id, (path, _))| (path.clone(), id.clone())).collect();
        Self { root: json["root"].to_string(), index: members("index").into_iter().collect(), paths, known }
    }
}

impl Documented {
    /// Returns the item with a rustdoc ID and the crate that defines it, which need not be `krate`.
    fn find<'a>(&'a self, krate: &'a Krate, id: &str) -> Option<(&'a Krate, &'a Value)> {
        if let Some(item) = krate.index.get(id) {
            return Some((krate, item));
        }
        let (path, _) = krate.known.get(id)?;
        let owner = self.0.get(path.split("::").next()?)?;
        Some((owner, owner.index.get(owner.paths.get(path)?)?))
    }

    /// Adds the names in the module or type `id` to `names`, as members of `path`.
    fn list(&self, krate: &Krate, id: &str, path: &str, names: &mut BTreeSet<String>) {
        let Some((krate, item)) = self.find(krate, id) else { return };
        let (kind, inner) = item["inner"].as_object().unwrap().iter().next().unwrap();
        let ids =
            |list: &Value| list.as_array().into_iter().flatten().map(Value::to_string).collect::<Vec<_>>();
        let members = match kind.as_str() {
            "module" | "trait" => ids(&inner["items"]),
            "enum" => ids(&inner["variants"]),
            "struct" => ids(&inner["kind"]["plain"]["fields"]),
            _ => Vec::new(),
        };
        for member in members {
            self.list_member(krate, &member, path, kind == "module", names);
        }
        for implementation in ids(&inner["impls"]) {
            let Some((krate, block)) = self.find(krate, &implementation) else { continue };
            let block = &block["inner"]["impl"];
            if block["trait"].is_null() {
                for member in ids(&block["items"]) {
                    self.list_member(krate, &member, path, true, names);
                }
            }
        }
    }

    fn list_member(
        &self,
        krate: &Krate,
        id: &str,
        path: &str,
        must_be_public: bool,
        names: &mut BTreeSet<String>,
    ) {
        let Some(item) = krate.index.get(id) else { return };
        let is_public = item["visibility"] == "public";
        if !is_public && (must_be_public || item["visibility"] != "default") {
            return;
        }
        let (kind, inner) = item["inner"].as_object().unwrap().iter().next().unwrap();
        if kind != "use" {
            let path = format!("{path}::{}", item["name"].as_str().unwrap_or_default());
            names.insert(format!("{path} {}", short(kind)));
            return self.list(krate, id, &path, names);
        }
        let target = inner["id"].to_string();
        if inner["is_glob"] == true {
            return self.list(krate, &target, path, names);
        }
        let path = format!("{path}::{}", inner["name"].as_str().unwrap());
        let (found, known) = (self.find(krate, &target), krate.known.get(&target));
        let kind = match (&found, known) {
            (Some((_, item)), _) => item["inner"].as_object().unwrap().keys().next().unwrap().clone(),
            (None, Some((_, kind))) => kind.clone(),
            (None, None) => "use".to_owned(),
        };
        names.insert(format!("{path} {}", short(&kind)));
        // The prelude repeats items whose members are listed elsewhere.
        if let (Some((krate, item)), false) = (found, path.contains("::prelude::")) {
            self.list(krate, &item["id"].to_string(), &path, names);
        }
    }
}

/// Returns the Rust keyword for rustdoc's kind of an item.
fn short(kind: &str) -> &str {
    match kind {
        "function" => "fn",
        "module" => "mod",
        "struct_field" => "field",
        "assoc_const" | "constant" => "const",
        "assoc_type" | "type_alias" => "type",
        "proc_attribute" | "proc_derive" => "macro",
        kind => kind,
    }
}
