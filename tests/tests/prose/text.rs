//! Rules for paragraphs of English.

/// The most words in a sentence.
const LONGEST: usize = 25;

/// No sentence begins with one of these.
const STARTS: &[&str] = &["What", "Who", "Whoever", "Whose", "As"];

/// Phrases that never occur.
const BANNED: &[&str] = &[
    "whoever",
    "whose",
    "of which",
    "that of",
    "those of",
    "otherwise than",
    "who rings",
    "said to be",
    "is told",
];

/// Abbreviations that do not end a sentence.
const ABBREVIATIONS: &[&str] =
    &["e.g.", "i.e.", "etc.", "vs.", "cf.", "approx.", "No.", "Sec.", "sec.", "Fig."];

/// A rule that a text breaks, and the words that break it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The line of the file, from 1.
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) text: String,
}

/// Splits lines of Markdown, each with its number, into paragraphs. Code blocks are left out.
///
/// A list item, a heading and a cell of a table are paragraphs of their own.
pub(crate) fn paragraphs<'a>(lines: impl IntoIterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    let mut found = Paragraphs::default();
    let (mut in_code, mut in_list) = (false, false);
    for (number, line) in lines {
        let text = line.trim().trim_start_matches("> ");
        let is_fence = text.starts_with("```") || text.starts_with("~~~");
        in_code ^= is_fence;
        let is_indented_code = line.starts_with("    ") && !in_list && !found.is_open;
        if is_fence || text.is_empty() || is_link_definition(text) {
            found.close();
        } else if in_code || is_indented_code {
        } else if text.starts_with('|') {
            mask_code(text).split('|').for_each(|cell| found.whole(number, cell.trim()));
        } else if text.starts_with('#') {
            found.whole(number, text);
        } else {
            if is_list_item(text) || text.starts_with("SAFETY") {
                found.close();
            }
            in_list = is_list_item(text) || in_list && (line.starts_with(' ') || found.is_open);
            found.add(number, text);
        }
    }
    found.all
}

#[derive(Default)]
struct Paragraphs {
    all: Vec<(usize, String)>,
    /// Whether the next line continues the last paragraph.
    is_open: bool,
}

impl Paragraphs {
    fn close(&mut self) {
        self.is_open = false;
    }

    fn add(&mut self, number: usize, text: &str) {
        match self.all.last_mut().filter(|_| self.is_open) {
            Some((_, paragraph)) => *paragraph += &format!(" {text}"),
            None => self.all.push((number, text.into())),
        }
        self.is_open = true;
    }

    fn whole(&mut self, number: usize, text: &str) {
        self.close();
        self.add(number, text);
        self.close();
    }
}

fn is_list_item(text: &str) -> bool {
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = number.len() < text.len() && number.starts_with(". ");
    is_numbered || ["- ", "* ", "+ "].iter().any(|bullet| text.starts_with(bullet))
}

/// Returns whether `text` is `[name]: target`, which readers do not see.
fn is_link_definition(text: &str) -> bool {
    text.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).is_some_and(|(_, to)| !to.contains(' '))
}

/// Checks one paragraph that begins at `line`.
pub(crate) fn check(line: usize, paragraph: &str) -> Vec<Finding> {
    let plain = plain(paragraph);
    let mut found = Vec::new();
    let mut add = |rule, text: String| found.push(Finding { line, rule, text });
    let lower = format!(" {} ", words(&plain).join(" ").to_lowercase());
    for phrase in BANNED.iter().filter(|phrase| lower.contains(&format!(" {phrase} "))) {
        add("banned phrase", (*phrase).into());
    }
    for sentence in sentences(&plain) {
        let words = words(sentence);
        if words.first().is_some_and(|first| STARTS.contains(first)) {
            add("start of a sentence", sentence.into());
        }
        if words.len() > LONGEST {
            add("long sentence", format!("{} words: {sentence}", words.len()));
        }
    }
    found
}

/// Returns the text as a reader counts it: code and addresses are single words, links are their texts.
fn plain(text: &str) -> String {
    let mut plain = mask_code(text).replace("](", "] (");
    for abbreviation in ABBREVIATIONS {
        plain = plain.replace(abbreviation, abbreviation.trim_end_matches('.'));
    }
    let words = plain.split_whitespace().map(|word| match word {
        _ if word.contains("://") => "address",
        _ if word.starts_with('(') && is_link_target(word) => word.trim_start_matches(|c| c != ')'),
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns whether `word` is `(target)` of a Markdown link.
fn is_link_target(word: &str) -> bool {
    word.contains(')')
        && (word.contains(".md") || word.contains('/') || word.contains('#') || word.contains("::"))
}

/// Replaces each code span by the word `code`, which is small and so begins no sentence of a rule.
fn mask_code(text: &str) -> String {
    let (mut masked, mut rest) = (String::new(), text);
    while let Some(begin) = rest.find('`') {
        let ticks = rest[begin..].len() - rest[begin..].trim_start_matches('`').len();
        let (fence, body) = rest[begin..].split_at(ticks);
        masked += &rest[..begin];
        let Some(end) = body.find(fence) else {
            rest = body;
            continue;
        };
        masked += "code";
        rest = &body[end + ticks..];
    }
    masked + rest
}

/// Splits at `.`, `!`, `?`, `;` and `:` where white space follows.
fn sentences(plain: &str) -> Vec<&str> {
    let mut found = vec![0];
    let ends = |c: char| matches!(c, '.' | '!' | '?' | ';' | ':');
    for (at, space) in plain.match_indices(' ') {
        if plain[..at].trim_end_matches(['"', '\'', ')', '*', '_', ']']).ends_with(ends) {
            found.push(at + space.len());
        }
    }
    found.push(plain.len());
    found.windows(2).map(|pair| plain[pair[0]..pair[1]].trim()).collect()
}

/// Returns the words without punctuation around them. Marks of lists and numbers of list items are none.
pub(crate) fn words(sentence: &str) -> Vec<&str> {
    let parts = sentence.split(|c: char| c.is_whitespace() || matches!(c, '/' | '\u{2013}' | '\u{2014}'));
    parts
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|word| !word.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(paragraph: &str) -> Vec<&'static str> {
        check(1, paragraph).into_iter().map(|finding| finding.rule).collect()
    }

    fn texts(markdown: &str) -> Vec<String> {
        let lines = markdown.lines().enumerate();
        paragraphs(lines).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn accepts_plain_sentences() {
        assert!(rules("The poster rings the doorbell. It then leaves: `whose` is code.").is_empty());
        assert!(rules("`What` does as it likes; see [what](docs/whose.md).").is_empty());
    }

    #[test]
    fn rejects_banned_phrases() {
        assert_eq!(rules("The queue, of\nwhich one is full."), ["banned phrase"]);
        assert_eq!(rules("Whoever holds it waits."), ["banned phrase", "start of a sentence"]);
        assert_eq!(rules("The host is\ntold."), ["banned phrase"]);
    }

    #[test]
    fn rejects_starts() {
        for text in
            ["What a launch does.", "It ends. As it does.", "**Who** waits?", "- (As `x`.)", "1. What is."]
        {
            assert_eq!(rules(text), ["start of a sentence"], "{text}");
        }
        assert!(rules("Assigns what is left.").is_empty());
    }

    #[test]
    fn rejects_long_sentences() {
        let words = |count: usize| vec!["word"; count].join(" ");
        assert!(rules(&format!("{}, e.g. {}.", words(12), words(12))).is_empty());
        assert_eq!(rules(&format!("{}, e.g. {}.", words(13), words(12))), ["long sentence"]);
        assert_eq!(rules(&format!("[{}](a/b.md#c).", words(26))), ["long sentence"]);
        assert!(rules(&format!("{}; {}. `{}`", words(25), words(24), words(99))).is_empty());
        assert!(rules(&format!("{}. ({}.) \"{}.\"", words(25), words(25), words(25))).is_empty());
    }

    #[test]
    fn splits_markdown_into_paragraphs() {
        let text =
            "# Title\none\ntwo\n\n- item\n  more\n- next\n\n      deep\n\n```\ncode\n```\n| a `|` b | c |\n";
        assert_eq!(
            texts(text),
            ["# Title", "one two", "- item more", "- next", "deep", "", "a code b", "c", ""]
        );
        assert_eq!(texts("text\n\n    code\n\n[x]: y"), ["text"]);
    }
}
