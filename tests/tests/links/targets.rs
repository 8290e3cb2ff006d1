//! Parses and resolves links between Markdown documents.

use std::path::{Component, Path, PathBuf};

/// Returns the targets of the links `[..](target)` in a Markdown text, ignoring code.
pub(crate) fn targets(text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        if !in_code && !is_fence {
            // Every second part is code.
            let prose: Vec<&str> = line.split('`').step_by(2).collect();
            let after = prose.join("");
            let links = after.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            found.extend(links.map(|(target, _)| target.to_owned()));
        }
    }
    found
}

/// Returns why a link in the file at `path` is broken, if it is. `read` returns the text of a file, an empty text for a
/// folder, or `None` if neither exists.
pub(crate) fn problem(path: &Path, target: &str, read: impl Fn(&Path) -> Option<String>) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let to = if file.is_empty() { path.to_owned() } else { join(path, file) };
    let Some(text) = read(&to) else {
        return Some(format!("{target}: {} does not exist", to.display()));
    };
    let known = heading.is_empty() || anchors(&text).iter().any(|anchor| anchor == heading);
    (!known).then(|| format!("{target}: {} has no such heading", to.display()))
}

/// Resolves the path `file` relative to the document at `from`.
fn join(from: &Path, file: &str) -> PathBuf {
    let mut joined = from.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => drop(joined.pop()),
            Component::CurDir => {}
            part => joined.push(part),
        }
    }
    joined
}

/// Returns the anchors of the headings of a Markdown text.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        line.trim_start_matches('#').trim().to_lowercase().chars().filter(kept).collect::<String>()
    };
    headings.map(|line| anchor(line).replace(' ', "-")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_links_outside_code() {
        let text = "See [a](a.md) and [b](../b.md#c), not `[c](c)`.\n```\n[d](d)\n```\n[e](#e)";
        assert_eq!(targets(text), ["a.md", "../b.md#c", "#e"]);
    }

    #[test]
    fn reports_missing_files_and_headings() {
        let read = |path: &Path| (path == "docs/a.md").then(|| "# A: `x` of y\n".into());
        let problem = |target: &str| problem(Path::new("docs/deep/b.md"), target, read);
        for good in ["../a.md", "../a.md#a-x-of-y", "https://example.org/a"] {
            assert_eq!(problem(good), None);
        }
        assert_eq!(problem("a.md").unwrap(), "a.md: docs/deep/a.md does not exist");
        assert_eq!(problem("../a.md#b").unwrap(), "../a.md#b: docs/a.md has no such heading");
    }
}
