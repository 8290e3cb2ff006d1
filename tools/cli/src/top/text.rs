//! Sanitizes texts of other processes for display on a terminal.

/// Maximum length of a text from another process, in characters. Longer ones are truncated.
const MAX_CHARS: usize = 240;

/// Replaces control characters in a text, and truncates it.
pub(super) fn harmless(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    let mut chars = text.chars().map(shown);
    let mut short: String = chars.by_ref().take(MAX_CHARS).collect();
    if chars.next().is_some() {
        short += "...";
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_sanitized_and_truncated() {
        assert_eq!(harmless("a\x1b]0;b\r\n\u{9b}c"), "a?]0;b???c");
        assert_eq!(harmless(&"x".repeat(1000)), format!("{}...", "x".repeat(MAX_CHARS)));
        assert_eq!(harmless("Größe"), "Größe");
    }
}
