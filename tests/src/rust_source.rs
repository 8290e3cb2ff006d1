//! A reader of Rust source that separates code, comments and string literals line by line.
//!
//! The tests of module dependencies work on it. It needs no full parser, so it also reads code inside macros.

/// One line of a source file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SourceLine {
    /// The code, in which every string literal is `""` and every character literal is `' '`.
    pub code: String,
    /// The comment with its marker, such as `/// Returns ...`.
    pub comment: Option<String>,
    /// The contents of the string literals that begin on this line, escapes included.
    pub strings: Vec<String>,
}

impl SourceLine {
    /// Returns whether the line holds a comment and nothing else.
    pub fn is_comment(&self) -> bool {
        self.comment.is_some() && self.code.trim().is_empty()
    }
}

/// Splits `source` into lines. The first line has index 0.
pub fn lines(source: &str) -> Vec<SourceLine> {
    let mut reader = Reader { rest: source, lines: vec![SourceLine::default()], previous: ' ' };
    while !reader.rest.is_empty() {
        reader.step();
    }
    reader.lines
}

struct Reader<'a> {
    rest: &'a str,
    lines: Vec<SourceLine>,
    /// The last character of code.
    previous: char,
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> &mut SourceLine {
        self.lines.last_mut().expect("one line at least")
    }

    /// Takes `length` bytes off the rest, and begins a new line for each line break in them.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        for _ in 0..taken.matches('\n').count() {
            self.lines.push(SourceLine::default());
        }
        taken
    }

    fn step(&mut self) {
        let rest = self.rest;
        if rest.starts_with("//") {
            let comment = self.take(rest.find('\n').unwrap_or(rest.len()));
            self.line().comment = Some(comment.into());
        } else if rest.starts_with("/*") {
            self.block_comment();
        } else if let Some(hashes) = self.raw_string() {
            self.take(1 + hashes);
            self.string(&format!("\"{}", "#".repeat(hashes)), false);
        } else if rest.starts_with('"') {
            self.string("\"", true);
        } else if let Some(length) = character(rest) {
            self.take(length);
            self.line().code += "' '";
            self.previous = '\'';
        } else {
            let c = rest.chars().next().expect("a character");
            self.take(c.len_utf8());
            if c != '\n' {
                self.line().code.push(c);
            }
            self.previous = c;
        }
    }

    /// Returns the number of hashes if the rest begins a raw string.
    fn raw_string(&self) -> Option<usize> {
        let after = self.rest.strip_prefix('r')?;
        let is_word =
            self.previous.is_alphanumeric() && !matches!(self.previous, 'b' | 'c') || self.previous == '_';
        let hashes = after.len() - after.trim_start_matches('#').len();
        (!is_word && after[hashes..].starts_with('"')).then_some(hashes)
    }

    /// Takes a string literal. The rest begins with its opening quote.
    fn string(&mut self, end: &str, has_escapes: bool) {
        let body = &self.rest[1..];
        let mut length = 0;
        while length < body.len() && !body[length..].starts_with(end) {
            let escaped = has_escapes && body[length..].starts_with('\\');
            let count = if escaped { 2 } else { 1 };
            length += body[length..].chars().take(count).map(char::len_utf8).sum::<usize>();
        }
        self.line().code += "\"\"";
        self.line().strings.push(body[..length].into());
        self.take((1 + length + end.len()).min(self.rest.len()));
        self.previous = '"';
    }

    /// Takes a block comment, which may contain others, as one comment a line.
    fn block_comment(&mut self) {
        let mut depth = 0;
        let mut length = 0;
        while length < self.rest.len() {
            let tail = &self.rest[length..];
            length += if tail.starts_with("/*") || tail.starts_with("*/") {
                depth += if tail.starts_with("/*") { 1 } else { -1 };
                2
            } else {
                tail.chars().next().map_or(1, char::len_utf8)
            };
            if depth == 0 {
                break;
            }
        }
        let (comment, rest) = self.rest.split_at(length);
        self.rest = rest;
        for (i, line) in comment.split('\n').enumerate() {
            if i > 0 {
                self.lines.push(SourceLine::default());
            }
            let text = line.trim_matches(|c: char| c == '/' || c == '*' || c.is_whitespace());
            self.line().comment = Some(format!("// {text}"));
        }
    }
}

/// Returns the length of the character literal at the start of `rest`. A lifetime is none.
fn character(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('\'')?;
    let first = body.chars().next()?;
    if first == '\\' {
        let skipped = 1 + body[1..].chars().next()?.len_utf8();
        return Some(1 + skipped + body[skipped..].find('\'')? + 1);
    }
    body[first.len_utf8()..].starts_with('\'').then_some(first.len_utf8() + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> Vec<String> {
        lines(source).into_iter().map(|line| line.code).collect()
    }

    #[test]
    fn separates_code_comments_and_strings() {
        let found = lines("let a = \"// no\"; // yes\n/// doc\nfn f() {}");
        assert_eq!(found[0].code, "let a = \"\"; ");
        assert_eq!(found[0].comment.as_deref(), Some("// yes"));
        assert_eq!(found[0].strings, ["// no"]);
        assert!(!found[0].is_comment() && found[1].is_comment());
        assert_eq!(found[2].code, "fn f() {}");
    }

    #[test]
    fn counts_lines_inside_of_strings_and_block_comments() {
        assert_eq!(code("a(\"x\\\ny\\\"z\");\nb"), ["a(\"\"", ");", "b"].map(String::from));
        let found = lines("/* one\n * /* two */\n */ c");
        assert_eq!(found[1].comment.as_deref(), Some("// two"));
        assert_eq!(found[2].code, " c");
    }

    #[test]
    fn reads_raw_strings_characters_and_lifetimes() {
        assert_eq!(code("f(r#\"a\"b\"#, br\"\\\", '\"', '\\'', 'é')"), ["f(\"\", b\"\", ' ', ' ', ' ')"]);
        assert_eq!(code("fn f<'a>(x: &'a str) {} // x"), ["fn f<'a>(x: &'a str) {} "]);
    }
}
