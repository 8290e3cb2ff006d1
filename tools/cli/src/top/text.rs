//! Texts of other processes, made harmless for a terminal.

/// The largest number of characters of a text.
const LONGEST: usize = 240;

/// Returns a text without control characters, and not too long.
pub(super) fn harmless(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    let mut chars = text.chars().map(shown);
    let mut short: String = chars.by_ref().take(LONGEST).collect();
    if chars.next().is_some() {
        short += "...";
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_plain_and_short() {
        assert_eq!(harmless("a\x1b]0;b\r\n\u{9b}c"), "a?]0;b???c");
        assert_eq!(harmless(&"x".repeat(1000)), format!("{}...", "x".repeat(LONGEST)));
        assert_eq!(harmless("Größe"), "Größe");
    }
}
