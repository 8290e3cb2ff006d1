//! Builds the dependency graph of a crate's modules from the tokens of its source.
//!
//! An arrow is a path from one module to another that starts with `crate::`, `self::` or `super::`. An imported or
//! re-exported name counts as a use of the module that defines it. Ignored are test code, `$crate::` paths, paths that
//! start with an imported module, and names imported by a glob.
//!
//! The modules of a crate form a tree. A module and one that contains it may use each other. Otherwise an arrow counts
//! at the level where the two paths diverge: between two children of the same parent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rushmem_tests::repository;
use rushmem_tests::rust_source::{Token, tokens};

/// The names of a module and its ancestors, starting below the crate root.
type Module = Vec<String>;

/// The modules of a crate and the dependencies between them, with the `file:line` of one path for each dependency.
#[derive(Default)]
pub(crate) struct Graph {
    arrows: BTreeMap<Module, BTreeMap<Module, String>>,
}

struct File {
    /// Path of the source file relative to the root of the repository.
    path: String,
    /// The module that the source file holds. Empty for the crate root.
    module: Module,
    tokens: Vec<Token>,
}

/// A path in the source: the module that it is relative to, and the names that follow.
struct Path {
    base: Module,
    names: Vec<String>,
    /// The name that a `use` item introduces for the path.
    name: Option<String>,
    line: usize,
}

/// The modules of a crate, and the names that they import.
#[derive(Default)]
struct Names {
    modules: BTreeSet<Module>,
    /// The module and remaining names of each imported path, keyed by importing module and name.
    imports: BTreeMap<(Module, String), (Module, Vec<String>)>,
}

impl Graph {
    /// Reads the module graph of the crate with this source folder, such as `host/src`. `files` lists the repository's
    /// files.
    pub(crate) fn read(folder: &str, files: &[PathBuf]) -> Self {
        let prefix = format!("{folder}/");
        let paths = files.iter().filter_map(|path| path.to_str()).filter(|path| path.starts_with(&prefix));
        let sources = paths.map(|path| (path.to_owned(), repository::read(path)));
        Self::new(sources.filter_map(|(path, text)| File::new(&path, &path[prefix.len()..], &text)).collect())
    }

    fn new(mut files: Vec<File>) -> Self {
        let tests: Vec<_> = files.iter_mut().flat_map(File::remove_tests).collect();
        files.retain(|file| !tests.iter().any(|test| file.module.starts_with(test)));
        let mut names = Names::default();
        for file in &files {
            names.modules.extend((0..=file.module.len()).map(|length| file.module[..length].to_vec()));
        }
        let paths: Vec<_> = files.iter().map(|file| file.paths(&names.modules)).collect();
        for (file, paths) in files.iter().zip(&paths) {
            for path in paths {
                if let Some(name) = &path.name {
                    let target = (path.base.clone(), path.names.clone());
                    names.imports.insert((file.module.clone(), name.clone()), target);
                }
            }
        }
        let mut graph = Self::default();
        for (file, paths) in files.iter().zip(&paths) {
            for path in paths {
                let target = names.resolve(&path.base, &path.names, 0);
                let common = file.module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (file.module.get(..=common), target.get(..=common)) {
                    let arrows = graph.arrows.entry(from.to_vec()).or_default();
                    arrows.entry(to.to_vec()).or_insert_with(|| format!("{}:{}", file.path, path.line));
                }
            }
        }
        graph
    }

    /// Returns the sets of sibling modules that use each other, directly or indirectly.
    pub(crate) fn circles(&self) -> BTreeSet<BTreeSet<Module>> {
        let circle = |module: &Module| {
            let peers = self.arrows.keys().filter(|other| self.path(module, other).is_some());
            peers.filter(|other| self.path(other, module).is_some()).cloned().collect::<BTreeSet<_>>()
        };
        self.arrows.keys().map(circle).filter(|circle| circle.len() > 1).collect()
    }

    /// Returns the top-level modules in layers, lowest first. Each module is in the lowest layer above all modules that
    /// it uses.
    pub(crate) fn layers(&self) -> Vec<BTreeSet<String>> {
        let is_top = |module: &&Module| module.len() == 1;
        let all: BTreeSet<&Module> = self
            .arrows
            .iter()
            .flat_map(|(from, to)| std::iter::once(from).chain(to.keys()))
            .filter(is_top)
            .collect();
        let mut layers: Vec<BTreeSet<String>> = Vec::new();
        let mut placed = BTreeSet::new();
        while placed.len() < all.len() {
            let is_next = |module: &&&Module| {
                let uses = self.arrows.get(**module).into_iter().flat_map(BTreeMap::keys);
                !placed.contains(**module) && uses.into_iter().all(|used| placed.contains(used))
            };
            let next: Vec<&Module> = all.iter().filter(is_next).copied().collect();
            // Modules of a cycle are never ready, so without this check the loop would not terminate.
            assert!(!next.is_empty(), "modules use each other");
            layers.push(next.iter().map(|module| module[0].clone()).collect());
            placed.extend(next);
        }
        layers
    }

    /// Returns the shortest cycle through each dependency between `modules`, with the source location of each
    /// dependency.
    pub(crate) fn explain(&self, modules: &BTreeSet<Module>) -> String {
        let mut circles = BTreeSet::new();
        for from in modules {
            for to in self.arrows[from].keys().filter(|to| modules.contains(*to)) {
                let mut circle = self.path(to, from).unwrap_or_default();
                let first = circle.iter().enumerate().min_by_key(|(_, name)| *name).map_or(0, |(i, _)| i);
                circle.rotate_left(first);
                circles.insert((circle.len(), circle));
            }
        }
        let mut text = String::new();
        for (_, circle) in circles {
            text += "circle:\n";
            for (i, from) in circle.iter().enumerate() {
                let to = &circle[(i + 1) % circle.len()];
                text += &format!("  {} -> {}: {}\n", from.join("::"), to.join("::"), self.arrows[from][to]);
            }
        }
        text
    }

    /// Returns the modules on the shortest path of dependencies, including `from` and `to`.
    fn path(&self, from: &Module, to: &Module) -> Option<Vec<Module>> {
        // A breadth-first search: `paths` grows in order of length, so the first path to `to` is a shortest one.
        let mut paths = vec![vec![from.clone()]];
        let mut seen = BTreeSet::from([from.clone()]);
        let mut next = 0;
        while next < paths.len() {
            let last = paths[next].last()?;
            if last == to {
                return Some(paths.swap_remove(next));
            }
            for target in self.arrows.get(last).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(target.clone()) {
                    let longer = [paths[next].clone(), vec![target.clone()]].concat();
                    paths.push(longer);
                }
            }
            next += 1;
        }
        None
    }
}

impl Names {
    /// Maximum number of imports to follow when resolving a name. Imports may be cyclic.
    const MAX_IMPORTS: usize = 8;

    /// Returns the module that defines the item at `names`, as seen from the module `base`.
    fn resolve(&self, base: &Module, names: &[String], imports: usize) -> Module {
        let mut module = base.clone();
        for (i, name) in names.iter().enumerate() {
            let inner = [&module[..], std::slice::from_ref(name)].concat();
            if self.modules.contains(&inner) {
                module = inner;
            } else if let Some((base, first)) = self.imports.get(&(module.clone(), name.clone()))
                && imports < Self::MAX_IMPORTS
            {
                return self.resolve(base, &[first, &names[i + 1..]].concat(), imports + 1);
            } else {
                break;
            }
        }
        module
    }
}

impl File {
    /// Parses a file at `inside`, a path relative to the crate's root. Programs below `bin` are separate crates.
    fn new(path: &str, inside: &str, text: &str) -> Option<Self> {
        let mut module: Module = inside.trim_end_matches(".rs").split('/').map(Into::into).collect();
        if module.last().is_some_and(|name| name == "mod") || ["lib.rs", "main.rs"].contains(&inside) {
            module.pop();
        }
        let is_program = module.first().is_some_and(|name| name == "bin");
        (!is_program).then(|| Self { path: path.into(), module, tokens: tokens(text) })
    }

    /// Removes items with `#[cfg(test)]` from the file. Returns the modules in other files among them.
    fn remove_tests(&mut self) -> Vec<Module> {
        let mut tests = Vec::new();
        while let Some(begin) = (0..self.tokens.len()).find(|at| is_test_attribute(&self.tokens[*at..])) {
            if self.tokens[begin + 1].text == "!" {
                tests.push(self.module.clone());
                self.tokens.clear();
                return tests;
            }
            let end = end_of_item(&self.tokens, begin);
            let item: Vec<&str> = self.tokens[begin..end].iter().map(|token| token.text.as_str()).collect();
            if let [.., "mod", name, ";"] = item[..] {
                tests.push([self.module.clone(), vec![name.into()]].concat());
            }
            self.tokens.drain(begin..end);
        }
        tests
    }

    /// Returns the paths in the source file that start at a module of the crate.
    fn paths(&self, modules: &BTreeSet<Module>) -> Vec<Path> {
        let tokens = &self.tokens;
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
        let is_child = |name: &str| modules.contains(&[&self.module[..], &[name.to_owned()]].concat());
        let mut found = Vec::new();
        let (mut depth, mut inline) = (0, Vec::new());
        for at in 0..tokens.len() {
            let before = if at == 0 { "" } else { text(at - 1) };
            match text(at) {
                "{" => {
                    depth += 1;
                    if at > 1 && text(at - 2) == "mod" {
                        inline.push(depth);
                    }
                }
                "}" => {
                    if inline.last() == Some(&depth) {
                        inline.pop();
                    }
                    depth -= 1;
                }
                // `$crate::x` belongs to the caller of a macro, and `pub(in crate::x)` imports nothing.
                _ if ["::", "$"].contains(&before) => {}
                _ if before == "in" && at > 2 && text(at - 2) == "(" && text(at - 3) == "pub" => {}
                "crate" | "self" | "super" if text(at + 1) == "::" => {
                    let supers = (0..).take_while(|i| text(at + 2 * i) == "super").count();
                    let first = at + 2 * supers.max(1);
                    let base = match text(at) {
                        "crate" => Vec::new(),
                        _ => {
                            // An inline module counts as part of its file.
                            let up = supers.saturating_sub(inline.len());
                            self.module[..self.module.len().saturating_sub(up)].to_vec()
                        }
                    };
                    found.extend(leaves(&tokens[first..], &base, before == "use"));
                }
                name if before == "use" && is_child(name) => {
                    found.extend(leaves(&tokens[at..], &self.module, true));
                }
                _ => {}
            }
        }
        found
    }
}

/// Whether `tokens` starts with `#[cfg(test)]`, `#[cfg(all(test, ...))]`, or the inner (`#!`) form of one of them.
fn is_test_attribute(tokens: &[Token]) -> bool {
    let words = tokens.iter().take(8).map(|token| token.text.as_str()).filter(|text| *text != "!");
    let text: String = words.collect();
    text.starts_with("#[cfg(test)") || text.starts_with("#[cfg(all(test")
}

/// Returns the index after the item whose attributes start at `begin`, that is after its `;` or closing brace.
fn end_of_item(tokens: &[Token], begin: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(begin) {
        depth += match token.text.as_str() {
            "(" | "[" | "{" => 1,
            ")" | "]" | "}" => -1,
            _ => 0,
        };
        // A field or variant stops at a comma, the last one at the closing brace of its type.
        let is_end = match token.text.as_str() {
            "}" if depth < 0 => return at,
            "}" => depth == 0 && !is_use_tree(tokens, at),
            ";" | "," => depth == 0,
            _ => false,
        };
        if is_end {
            return at + 1;
        }
    }
    tokens.len()
}

/// Whether the brace at `at` closes the tree of a `use` item: it is followed by `;`.
fn is_use_tree(tokens: &[Token], at: usize) -> bool {
    tokens.get(at + 1).is_some_and(|token| token.text == ";")
}

/// Returns the path at the start of `tokens`, or all paths of a tree in braces. Paths of a `use` item have names.
fn leaves(tokens: &[Token], base: &Module, is_use: bool) -> Vec<Path> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut found = Vec::new();
    let (mut names, mut open) = (Vec::<String>::new(), Vec::new());
    let mut at = 0;
    loop {
        match text(at) {
            "{" => open.push(names.len()),
            "," => {}
            "}" => {
                open.pop();
            }
            word => {
                if word != "self" && word != "*" {
                    names.push(word.to_owned());
                }
                if text(at + 1) == "::" {
                    at += 2;
                    continue;
                }
                let line = tokens.get(at).map_or(0, |token| token.line);
                let renamed = text(at + 1) == "as";
                at += 2 * usize::from(renamed);
                let name = if renamed { Some(text(at).to_owned()) } else { names.last().cloned() };
                let name = name.filter(|_| is_use && word != "*");
                found.push(Path { base: base.clone(), names: names.clone(), name, line });
            }
        }
        let Some(length) = open.last() else { return found };
        names.truncate(*length);
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Graph {
        Graph::new(files.iter().filter_map(|(path, text)| File::new(path, path, text)).collect())
    }

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        graph(files)
            .circles()
            .into_iter()
            .map(|circle| circle.iter().map(|module| module.join("::")).collect())
            .collect()
    }

    #[test]
    fn finds_cycles_between_modules() {
        let files = [
            ("a.rs", "use crate::{x::Y, b::{self, C}};"),
            ("b/mod.rs", "mod inner;"),
            ("b/inner.rs", "\nfn f() { super::super::c::f() }"),
            ("c.rs", "use super::A;"),
            ("d.rs", "use crate::a; mod m { use super::super::c; use super::e; }"),
            ("e.rs", ""),
            ("lib.rs", "mod a; pub use a::{A, z::B as D};"),
        ];
        assert_eq!(circles(&files), [["a", "b", "c"]]);
        let graph = graph(&files);
        let text = graph.explain(graph.circles().first().unwrap());
        assert_eq!(text, "circle:\n  a -> b: a.rs:1\n  b -> c: b/inner.rs:2\n  c -> a: c.rs:1\n");
    }

    #[test]
    fn layers_place_modules_above_their_dependencies() {
        let files = [
            ("a.rs", "use crate::b;"),
            ("b/mod.rs", ""),
            ("c.rs", "use crate::{a, b};"),
            ("d.rs", "use crate::b;"),
        ];
        let layers = [&["b"][..], &["a", "d"], &["c"]];
        assert_eq!(
            graph(&files).layers(),
            layers.map(|layer| layer.iter().map(|name| (*name).to_owned()).collect())
        );
    }

    #[test]
    fn finds_cycles_within_a_folder() {
        let files =
            [("a/b.rs", "use super::c; use crate::a::c::X;"), ("a/c.rs", "use super::b;"), ("a.rs", "")];
        assert_eq!(circles(&files), [["a::b", "a::c"]]);
    }

    #[test]
    fn parent_and_child_modules_may_use_each_other() {
        let files = [("a/b.rs", "use super::f;"), ("a.rs", "mod b; use b::g;"), ("c.rs", "use crate::a::b;")];
        assert!(circles(&files).is_empty());
    }

    #[test]
    fn imported_names_resolve_to_their_origin() {
        let files = [
            ("a/mod.rs", "use crate::c::X; mod b; pub use b::{Y, f as g};"),
            ("a/b.rs", "use super::X;"),
            ("c.rs", "fn f() { crate::a::g() }"),
            ("d.rs", "use crate::a::Y; use crate::e::*;"),
            ("e.rs", "use crate::d;"),
        ];
        assert_eq!(circles(&files), [["a", "c"], ["d", "e"]]);
    }

    #[test]
    fn comments_strings_visibility_and_tests_are_ignored() {
        let files = [
            ("a.rs", "use crate::b;"),
            (
                "b.rs",
                "// crate::a\nconst X: &str = \"crate::a\";\npub(in crate::a) fn f() {}\n#[cfg(test)]\nmod t;",
            ),
            ("b/t.rs", "use crate::a;"),
            (
                "c.rs",
                "#[cfg(test)]\n#[allow(x)]\nmod tests { use crate::d::{e, f}; }\n#[cfg(test)]\nuse crate::{d};",
            ),
            ("d.rs", "use crate::c; struct S { #[cfg(test)] x: u8 }"),
        ];
        assert!(circles(&files).is_empty());
    }
}
