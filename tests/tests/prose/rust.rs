//! Rules for Rust source: its comments, docs, names and error texts.

use rushmem_tests::rust_source::{SourceLine, lines};

use crate::text::{Finding, check, paragraphs, words};

/// Words that end like a verb and are none.
const NO_VERBS: &[&str] = &[
    "this", "its", "always", "those", "thus", "besides", "plus", "less", "bits", "bytes", "words", "pes",
    "threads", "blocks", "is", "does",
];

/// Verbs that `of` may follow. Before `of`, other words that end in `s` are plural nouns.
const VERBS_WITH_OF: &[&str] = &["consists", "disposes"];

/// Words that begin no noun phrase.
const NO_NOUNS: &[&str] = &[
    "what", "who", "how", "whether", "as", "like", "where", "which", "is", "has", "does", "says", "tells",
    "if", "when", "true", "false", "whatever",
];

/// Parts of function names that ask a riddle.
const NAME_PARTS: &[&str] = &["who", "whom", "whose", "what", "whoever", "otherwise"];

/// Names that say nothing about a type.
const TYPE_NAMES: &[&str] =
    &["Place", "Way", "Mark", "Line", "Words", "Pair", "Card", "Letter", "Mail", "Board", "What", "Tries"];

/// Checks a source file. `needs_errors` tells whether fallible functions must list their errors.
pub(crate) fn check_rust(source: &str, needs_errors: bool) -> Vec<Finding> {
    let lines = lines(source);
    let mut found = Vec::new();
    let mut next = 0;
    while next < lines.len() {
        let begin = next;
        next += 1;
        if lines[begin].is_comment() {
            let marker = marker(&lines[begin]);
            next += lines[next..].iter().take_while(|l| l.is_comment() && self::marker(l) == marker).count();
            check_comment(&lines, begin, next, needs_errors, &mut found);
        } else {
            check_code(&lines, begin, &mut found);
        }
    }
    found.extend(lines.iter().enumerate().flat_map(|(i, line)| check_comment_line(i + 1, line)));
    found
}

/// Returns `///`, `//!` or `//`.
fn marker(line: &SourceLine) -> &'static str {
    let comment = line.comment.as_deref().unwrap_or_default();
    ["///", "//!"].into_iter().find(|marker| comment.starts_with(marker)).unwrap_or("//")
}

/// Returns the comment without its marker and the space behind that.
fn body(line: &SourceLine) -> &str {
    let text = line.comment.as_deref().unwrap_or_default().strip_prefix(marker(line)).unwrap_or_default();
    text.strip_prefix(' ').unwrap_or(text)
}

/// Checks the comment in the lines from `begin` to `end`, and the item that it documents.
fn check_comment(
    lines: &[SourceLine],
    begin: usize,
    end: usize,
    needs_errors: bool,
    found: &mut Vec<Finding>,
) {
    let paragraphs = paragraphs((begin..end).map(|i| (i + 1, body(&lines[i]))));
    found.extend(paragraphs.iter().flat_map(|(line, text)| check(*line, text)));
    let Some((line, summary)) = paragraphs.first().filter(|_| marker(&lines[begin]) == "///") else { return };
    let item = item(&lines[end..]);
    let first = words(summary).first().copied().unwrap_or_default().to_owned();
    let mut add = |rule, text: &str| found.push(Finding { line: *line, rule, text: text.into() });
    if is_function(&item) && !begins_with_verb(summary) {
        add("doc of a function begins with a verb", summary);
    }
    if type_name(&item).is_some() && NO_NOUNS.contains(&first.to_lowercase().as_str()) {
        add("doc of a type begins with a noun", summary);
    }
    if needs_errors && item.starts_with("pub ") && returns_result(&item) {
        let heading = paragraphs.iter().position(|(_, text)| text == "# Errors");
        let section = heading.and_then(|i| paragraphs.get(i + 1)).map_or("", |(_, text)| text);
        if section.is_empty() || section.starts_with("As ") {
            add("`# Errors` lists the errors", &item);
        }
    }
}

/// Applies the rules that concern a line of a comment rather than a sentence.
fn check_comment_line(number: usize, line: &SourceLine) -> Option<Finding> {
    let first = words(body(line)).first().copied().unwrap_or_default();
    let is_start = line.is_comment() && body(line).starts_with(first);
    (is_start && ["What", "Who", "Whoever", "Whose"].contains(&first)).then(|| Finding {
        line: number,
        rule: "start of a comment line",
        text: body(line).into(),
    })
}

/// Checks the names and texts in line `i`, which is code.
fn check_code(lines: &[SourceLine], i: usize, found: &mut Vec<Finding>) {
    let line = &lines[i];
    if line.comment.is_some() {
        found.extend(check(i + 1, body(line)));
    }
    let mut add = |rule, text: &str| found.push(Finding { line: i + 1, rule, text: text.into() });
    let code = line.code.trim();
    for (at, _) in code.match_indices("fn ") {
        let name = identifier(&code[at + 3..]);
        if name.split('_').any(|part| NAME_PARTS.contains(&part)) {
            add("name of a function", name);
        }
    }
    if let Some(name) = type_name(code).filter(|name| TYPE_NAMES.contains(name)) {
        add("name of a type", name);
    }
    if code.starts_with("#[error(") {
        let after = lines[i..].iter().scan(false, |ended, line| {
            let take = !*ended;
            *ended |= line.code.contains(")]");
            take.then_some(line)
        });
        for text in after.flat_map(|line| &line.strings) {
            error_paragraphs(text).iter().for_each(|text| found.extend(check(i + 1, text)));
        }
    }
}

/// Returns the lines of an error's text. A value that is put in counts as one word.
fn error_paragraphs(literal: &str) -> Vec<String> {
    let mut text = String::new();
    for (i, part) in literal.split("\\\n").enumerate() {
        text += if i == 0 { part } else { part.trim_start() };
    }
    let mut masked = String::new();
    let mut depth = 0;
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ if depth == 0 => masked.push(c),
            _ => {}
        }
        if c == '}' {
            masked += "x";
        }
    }
    masked.split("\\n").map(|line| line.trim().to_owned()).collect()
}

/// Returns the head of the item behind a doc comment, on one line, without its attributes.
fn item(lines: &[SourceLine]) -> String {
    let mut head = String::new();
    let mut depth = 0;
    for line in lines {
        let code = line.code.trim();
        if head.is_empty() && (depth > 0 || code.starts_with("#[") || code.is_empty()) {
            depth += code.matches('[').count() as i64 - code.matches(']').count() as i64;
            continue;
        }
        head += code;
        head.push(' ');
        if code.contains(['{', ';']) || !head.contains("fn ") {
            break;
        }
    }
    head
}

fn identifier(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())]
}

/// Returns `item` without visibility and the words before `fn`, `struct` and the like.
fn keyword(item: &str) -> &str {
    let mut rest = item.trim_start();
    loop {
        let word = rest.split([' ', '(']).next().unwrap_or_default();
        rest = match word {
            "pub" if rest.starts_with("pub(") => rest.split_once(')').map_or("", |(_, rest)| rest),
            "pub" | "default" | "const" | "async" | "unsafe" | "extern" | "\"\"" => &rest[word.len()..],
            _ => return rest,
        }
        .trim_start();
    }
}

fn is_function(item: &str) -> bool {
    keyword(item).starts_with("fn ")
}

/// Returns the name of the type that `item` defines.
fn type_name(item: &str) -> Option<&str> {
    let rest = keyword(item);
    let (word, name) = rest.split_once(' ')?;
    ["struct", "enum", "trait", "union", "type"].contains(&word).then(|| identifier(name.trim_start()))
}

fn returns_result(item: &str) -> bool {
    let Some((_, result)) = item.rsplit_once("-> ").filter(|_| is_function(item)) else { return false };
    let name = result.split(['<', ' ', '{', ';']).next().unwrap_or_default();
    name == "Result" || name.ends_with("::Result")
}

/// Returns whether a doc begins with a verb in the third person, such as `Returns`.
fn begins_with_verb(summary: &str) -> bool {
    let mut words = summary.split_whitespace();
    let first = words.next().unwrap_or_default().trim_matches(|c: char| !c.is_alphanumeric());
    let lower = first.to_lowercase();
    let is_plural = words.next() == Some("of") && !VERBS_WITH_OF.contains(&lower.as_str());
    let is_form = lower.ends_with('s') && !lower.ends_with("ss") && !lower.ends_with("us");
    is_form && first.starts_with(char::is_uppercase) && !is_plural && !NO_VERBS.contains(&lower.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(source: &str) -> Vec<&'static str> {
        check_rust(source, true).into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn accepts_plain_source() {
        let source = "//! The queue.\n\n/// A queue.\n#[derive(\n    Debug\n)]\npub struct Queue;\n\n\
            /// Returns the length.\n///\n/// # Errors\n/// - `Full`\npub fn len() -> Result<u32, E> {}\n\
            /// Consists of parts.\nfn f() { let x = \"// What whose\"; }\n";
        assert!(rules(source).is_empty());
    }

    #[test]
    fn rejects_docs_of_functions_without_a_verb() {
        for doc in
            ["The length.", "Return it.", "Bytes of the heap.", "Address of it.", "`x` is.", "Is there any."]
        {
            let source = format!("/// {doc}\n#[inline]\npub(crate) const unsafe fn f() {{}}");
            assert_eq!(rules(&source), ["doc of a function begins with a verb"], "{doc}");
        }
    }

    #[test]
    fn rejects_docs_of_types_without_a_noun() {
        assert_eq!(rules("/// Whether it is.\n#[repr(C)]\nenum E {}"), ["doc of a type begins with a noun"]);
        assert!(rules("/// Whether it is.\nflag: bool,").is_empty());
    }

    #[test]
    fn rejects_public_functions_without_a_list_of_errors() {
        let wrong = ["`# Errors` lists the errors"];
        assert_eq!(rules("/// Gets it.\npub fn f(\n) -> io::Result<u8> {"), wrong);
        assert_eq!(
            rules("/// Gets it.\n/// # Errors\n/// As [`g`].\npub fn f() -> Result<u8, E>;").last(),
            wrong.last()
        );
        assert!(rules("/// Gets it.\nfn f() -> Result<u8, E>;").is_empty());
        assert!(rules("/// Gets it.\npub fn f() -> Vec<Result<u8, E>>;").is_empty());
        assert!(check_rust("/// Gets it.\npub fn f() -> Result<u8, E>;", false).is_empty());
    }

    #[test]
    fn rejects_names() {
        assert_eq!(rules("fn who_waits() {}"), ["name of a function"]);
        assert_eq!(rules("    pub fn otherwise_put() {}"), ["name of a function"]);
        assert_eq!(rules("pub(super) struct Place<T> {"), ["name of a type"]);
        assert!(rules("fn whole() {}\nstruct Placement;").is_empty());
    }

    #[test]
    fn checks_comments_behind_code_and_inside_of_blocks() {
        assert_eq!(rules("f(\"x\"); // As before."), ["start of a sentence"]);
        assert_eq!(rules("/* The queue,\n * whose end is near. */"), ["banned phrase"]);
        assert_eq!(rules("// It is so. See\n// Who Is Who."), ["start of a comment line"]);
    }

    #[test]
    fn checks_error_texts() {
        let long = ["word"; 26].join(" ");
        assert_eq!(rules(&format!("#[error(\"{long}\")]\nA,")), ["long sentence"]);
        assert_eq!(
            rules("#[error(\n  \"{x} is wrong\\n\\\n   As it {y:?} was\"\n)]\nA,"),
            ["start of a sentence"]
        );
        assert!(rules("#[error(\"{x} is wrong\")]\nA { what: \"As it was\" }").is_empty());
    }
}
