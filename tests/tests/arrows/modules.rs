//! The graph of a crate's top-level modules, read from its source as text.
//!
//! A top-level module is a file or folder directly under `src`. An arrow is a path of the code that begins with `crate::`, or
//! that reaches the root with `super::`. A name that the root re-exports counts as its module. Test code is left out.

use std::collections::{BTreeMap, BTreeSet};

use rushmem_tests::{repository, rust_source};

/// The modules of a crate and the arrows between them, each with `file:line` of one path.
#[derive(Default)]
pub(crate) struct Graph {
    arrows: BTreeMap<String, BTreeMap<String, String>>,
}

/// A source file.
struct File {
    /// The path from the root of the repository.
    path: String,
    /// The module that the file holds, such as `["queues", "links"]`. It is empty for the root.
    module: Vec<String>,
    tokens: Vec<Token>,
}

/// A word, `::`, or one other character of code.
struct Token {
    text: String,
    line: usize,
}

impl Graph {
    /// Reads the crate with this source folder, such as `host/src`.
    pub(crate) fn read(folder: &str) -> Self {
        let prefix = format!("{folder}/");
        let files = repository::files(&["rs"]);
        let paths = files.iter().filter_map(|path| path.to_str()).filter(|path| path.starts_with(&prefix));
        let sources = paths.map(|path| (path.to_owned(), repository::read(path)));
        Self::new(sources.filter_map(|(path, text)| File::new(&path, &path[prefix.len()..], &text)).collect())
    }

    fn new(mut files: Vec<File>) -> Self {
        let tests: Vec<_> = files.iter_mut().flat_map(File::remove_tests).collect();
        files.retain(|file| !tests.iter().any(|test| file.module.starts_with(test)));
        let modules: BTreeSet<_> = files.iter().filter_map(|file| file.module.first().cloned()).collect();
        let roots = files.iter().filter(|file| file.module.is_empty());
        let exports: BTreeMap<_, _> = roots.flat_map(|file| exports(&file.tokens, &modules)).collect();
        let mut graph = Self::default();
        for file in files.iter().filter(|file| !file.module.is_empty()) {
            for (name, line) in file.root_names() {
                let to = if modules.contains(name) { Some(&name.to_owned()) } else { exports.get(name) };
                if let Some(to) = to.filter(|to| **to != file.module[0]) {
                    let arrows = graph.arrows.entry(file.module[0].clone()).or_default();
                    arrows.entry(to.clone()).or_insert_with(|| format!("{}:{line}", file.path));
                }
            }
        }
        graph
    }

    /// Returns the sets of modules that use each other, directly or not.
    pub(crate) fn circles(&self) -> BTreeSet<BTreeSet<String>> {
        let circle = |module: &String| {
            let peers = self.arrows.keys().filter(|other| self.path(module, other).is_some());
            peers.filter(|other| self.path(other, module).is_some()).cloned().collect::<BTreeSet<_>>()
        };
        self.arrows.keys().map(circle).filter(|circle| circle.len() > 1).collect()
    }

    /// Returns the shortest circle through each arrow between `modules`, with the place of each arrow.
    pub(crate) fn explain(&self, modules: &BTreeSet<String>) -> String {
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
                text += &format!("  {from} -> {to}: {}\n", self.arrows[from][to]);
            }
        }
        text
    }

    /// Returns the modules on the shortest path, both ends included.
    fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let mut paths = vec![vec![from.to_owned()]];
        let mut seen = BTreeSet::from([from.to_owned()]);
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

impl File {
    /// Reads a file at `inside`, a path below `src`. Programs below `bin` are crates of their own.
    fn new(path: &str, inside: &str, text: &str) -> Option<Self> {
        let mut module: Vec<String> = inside.trim_end_matches(".rs").split('/').map(Into::into).collect();
        if module.last().is_some_and(|name| name == "mod") || ["lib.rs", "main.rs"].contains(&inside) {
            module.pop();
        }
        let is_program = module.first().is_some_and(|name| name == "bin");
        (!is_program).then(|| Self { path: path.into(), module, tokens: tokens(text) })
    }

    /// Removes items with `#[cfg(test)]`, and returns the modules of other files that are for tests.
    fn remove_tests(&mut self) -> Vec<Vec<String>> {
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

    /// Returns the names that follow the crate's root in paths, and their lines.
    fn root_names(&self) -> Vec<(&str, usize)> {
        let tokens = &self.tokens;
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
        let mut found = Vec::new();
        let (mut depth, mut inline) = (0, Vec::new());
        for at in 0..tokens.len() {
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
                // `pub(in crate::x)` imports nothing.
                "crate" | "super" if at > 0 && ["::", "in"].contains(&text(at - 1)) => {}
                "crate" if text(at + 1) == "::" => found.extend(first_names(&tokens[at + 2..])),
                "super" if text(at + 1) == "::" => {
                    let supers = (0..).take_while(|i| text(at + 2 * i) == "super").count();
                    if supers >= self.module.len() + inline.len() {
                        found.extend(first_names(&tokens[at + 2 * supers..]));
                    }
                }
                _ => {}
            }
        }
        found
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn tokens(source: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (i, line) in rust_source::lines(source).iter().enumerate() {
        let mut rest = line.code.trim_start();
        while let Some(c) = rest.chars().next() {
            let word = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            let length = if rest.starts_with("::") { 2 } else { word.max(c.len_utf8()) };
            tokens.push(Token { text: rest[..length].into(), line: i + 1 });
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// Returns whether `#[cfg(test)]`, `#[cfg(all(test, ...))]` or one of them with `!` is at the start.
fn is_test_attribute(tokens: &[Token]) -> bool {
    let words = tokens.iter().take(8).map(|token| token.text.as_str()).filter(|text| *text != "!");
    let text: String = words.collect();
    text.starts_with("#[cfg(test)") || text.starts_with("#[cfg(all(test")
}

/// Returns the end of the item with attributes at `begin`: behind its `;`, or behind its last brace.
fn end_of_item(tokens: &[Token], begin: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(begin) {
        depth += match token.text.as_str() {
            "(" | "[" | "{" => 1,
            ")" | "]" | "}" => -1,
            _ => 0,
        };
        // A field or a variant ends with a comma, and the last one before the brace of its type.
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

/// Returns whether the brace at `at` ends the tree of a `use` item, which `;` follows.
fn is_use_tree(tokens: &[Token], at: usize) -> bool {
    tokens.get(at + 1).is_some_and(|token| token.text == ";")
}

/// Returns the first names of the paths at the start: one, or all of a tree in braces.
fn first_names(tokens: &[Token]) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    let (mut depth, mut is_first) = (0, true);
    for token in tokens {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," => is_first |= depth == 1,
            name if is_first => {
                found.push((name, token.line));
                is_first = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// Returns the names that the `use` items of a root bring there, each with its module.
fn exports(tokens: &[Token], modules: &BTreeSet<String>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for item in tokens.split(|token| token.text == ";") {
        let Some(begin) = item.iter().rposition(|token| token.text == "use") else { continue };
        let path: Vec<&str> = item[begin + 1..].iter().map(|token| token.text.as_str()).collect();
        let path =
            path.strip_prefix(&["crate", "::"]).or(path.strip_prefix(&["self", "::"])).unwrap_or(&path);
        let Some(module) = path.first().filter(|name| modules.contains(**name)) else { continue };
        for (i, name) in path.iter().enumerate().skip(1) {
            let is_leaf = path.get(i + 1).is_none_or(|next| [",", "}"].contains(next));
            if is_leaf && name.starts_with(is_word) {
                found.push(((*name).to_owned(), (*module).to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Graph {
        Graph::new(files.iter().filter_map(|(path, text)| File::new(path, path, text)).collect())
    }

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        graph(files).circles().into_iter().map(|circle| circle.into_iter().collect()).collect()
    }

    #[test]
    fn finds_circles_between_modules() {
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
    fn circles_inside_of_a_folder_are_allowed() {
        let files =
            [("a/b.rs", "use super::c; use crate::a::c::X;"), ("a/c.rs", "use super::b;"), ("a.rs", "")];
        assert!(circles(&files).is_empty());
    }

    #[test]
    fn comments_strings_visibility_and_tests_are_no_arrows() {
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
