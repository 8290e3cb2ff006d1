//! Parses the public items and the tests of the workspace from its source.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use rushmem::config::SETTINGS;
use syn::{Attribute, Fields, ImplItem, Item, TraitItem, Visibility};

use crate::macros::Macros;

/// Crates with public items, and their source folders.
const CRATES: &[(&str, &str)] = &[
    ("rushmem_mlx5", "mlx5/src"),
    ("rushmem_device", "device/src"),
    ("rushmem_softnic", "softnic/src"),
    ("rushmem_uverbs", "softnic/uverbs/src"),
    ("rushmem", "host/src"),
    // Re-exported by `rushmem`.
    ("rushmem", "host/base/src"),
    ("rushmem", "host/bootstrap/src"),
    ("rushmem", "host/config/src"),
    ("rushmem", "host/cuda/src"),
    ("rushmem", "host/error/src"),
    ("rushmem", "host/fabric/src"),
    ("rushmem", "host/machine/src"),
    ("rushmem", "host/memory/src"),
    ("rushmem", "host/observe/src"),
    ("rushmem", "host/native/src"),
    ("rushmem_cli", "tools/cli/src"),
    ("rushmem_ptx", "ptx/src"),
];

pub(crate) struct Source {
    /// Public items, as `crate::name` or `crate::Type::name`.
    items: BTreeSet<String>,
}

/// Finds tests in source files. Parses each file once.
pub(crate) struct TestFiles {
    root: PathBuf,
    parsed: HashMap<String, Option<(Vec<Item>, Macros)>>,
}

impl Source {
    pub(crate) fn read(root: &Path) -> Self {
        let mut items = BTreeSet::new();
        for (name, folder) in CRATES {
            let (mut files, mut macros) = (Vec::new(), Macros::default());
            walk(&root.join(folder), &mut |file| files.push(parse(file)));
            files.iter().for_each(|file| macros.add(&file.items));
            files.iter().for_each(|file| collect(name, &file.items, &macros, &mut items));
        }
        items.extend(SETTINGS.iter().map(|setting| format!("setting {}", setting.key)));
        Self { items }
    }

    /// Whether a public item or setting exists. Modules in the path are ignored: `crate::module::name` is looked up as
    /// `crate::name`.
    pub(crate) fn has(&self, path: &str) -> bool {
        if path.starts_with("setting ") {
            return self.items.contains(path);
        }
        let mut parts: Vec<&str> = path.split("::").collect();
        // Modules start with a lower-case letter and are followed by another name.
        while parts.len() > 2 && parts[1].starts_with(|c: char| c.is_lowercase()) {
            parts.remove(1);
        }
        self.items.contains(&parts.join("::"))
    }
}

impl TestFiles {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.into(), parsed: HashMap::new() }
    }

    /// Whether the test `file::name` exists.
    pub(crate) fn has_test(&mut self, path: &str) -> bool {
        let Some((file, name)) = path.rsplit_once("::") else { return false };
        let root = &self.root;
        let parsed = self.parsed.entry(file.into()).or_insert_with(|| {
            let file = root.join(file);
            file.is_file().then(|| {
                let (items, mut macros) = (parse(&file).items, Macros::default());
                macros.add(&items);
                (items, macros)
            })
        });
        parsed.as_ref().is_some_and(|(items, macros)| has_test(items, macros, name))
    }
}

fn parse(file: &Path) -> syn::File {
    let text = fs::read_to_string(file).unwrap();
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn walk(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, visit);
        } else if path.extension().is_some_and(|e| e == "rs") {
            visit(&path);
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Adds public items to `found` as `krate::name`, and associated items as `krate::Type::name`.
fn collect(krate: &str, items: &[Item], macros: &Macros, found: &mut BTreeSet<String>) {
    let mut add = |name: String| {
        found.insert(format!("{krate}::{name}"));
    };
    for item in items {
        match item {
            Item::Fn(i) if is_public(&i.vis) => add(i.sig.ident.to_string()),
            Item::Const(i) if is_public(&i.vis) => add(i.ident.to_string()),
            Item::Type(i) if is_public(&i.vis) => add(i.ident.to_string()),
            Item::Macro(i) => {
                i.ident.iter().for_each(|name| add(name.to_string()));
                let name = i.mac.path.get_ident().map(ToString::to_string).unwrap_or_default();
                for f in macros.generated(&name, &i.mac.tokens).into_iter().filter(|f| f.is_public) {
                    add(f.of.map_or(f.name.clone(), |of| format!("{of}::{}", f.name)));
                }
            }
            Item::Struct(i) if is_public(&i.vis) => {
                add(i.ident.to_string());
                if let Fields::Named(fields) = &i.fields {
                    for field in fields.named.iter().filter(|field| is_public(&field.vis)) {
                        field.ident.iter().for_each(|name| add(format!("{}::{name}", i.ident)));
                    }
                }
            }
            Item::Enum(i) if is_public(&i.vis) => {
                add(i.ident.to_string());
                i.variants.iter().for_each(|v| add(format!("{}::{}", i.ident, v.ident)));
            }
            Item::Trait(i) if is_public(&i.vis) => {
                add(i.ident.to_string());
                for member in &i.items {
                    if let TraitItem::Fn(f) = member {
                        add(format!("{}::{}", i.ident, f.sig.ident));
                    }
                }
            }
            Item::Impl(i) if i.trait_.is_none() => {
                let syn::Type::Path(of) = &*i.self_ty else { continue };
                let Some(of) = of.path.segments.last() else { continue };
                for member in &i.items {
                    match member {
                        ImplItem::Fn(f) if is_public(&f.vis) => add(format!("{}::{}", of.ident, f.sig.ident)),
                        ImplItem::Const(c) if is_public(&c.vis) => add(format!("{}::{}", of.ident, c.ident)),
                        _ => {}
                    }
                }
            }
            Item::Mod(i) if !is_test_only(&i.attrs) => {
                if let Some((_, items)) = &i.content {
                    let mut inner = BTreeSet::new();
                    collect(krate, items, macros, &mut inner);
                    inner.into_iter().for_each(|name| add(name[krate.len() + 2..].to_owned()));
                }
            }
            _ => {}
        }
    }
}

fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| a.path().is_ident("cfg"))
}

/// Whether a function `name` with `#[test]` is among the items. Searches modules, `proptest!` and local macros too.
fn has_test(items: &[Item], macros: &Macros, name: &str) -> bool {
    items.iter().any(|item| match item {
        Item::Fn(f) => f.sig.ident == name && f.attrs.iter().any(|a| a.path().is_ident("test")),
        Item::Mod(m) => m.content.as_ref().is_some_and(|(_, items)| has_test(items, macros, name)),
        Item::Macro(m) => {
            let of = m.mac.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
            let is_proptest = of == "proptest";
            is_proptest && m.mac.tokens.to_string().contains(&format!("fn {name} ("))
                || macros.generated(&of, &m.mac.tokens).iter().any(|f| f.is_test && f.name == name)
        }
        _ => false,
    })
}
