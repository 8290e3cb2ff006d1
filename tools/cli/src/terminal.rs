//! Layout of text on standard output: wrapped rows, and headings that stand out on a terminal.

use std::io::IsTerminal;

/// Assumed width of a terminal that does not report its own.
const COLUMNS: usize = 100;
/// Minimum width of the wrapped text of a row.
const MIN_TEXT: usize = 30;
/// Indentation of text that does not fit next to the head of its row.
const INDENT: usize = 6;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Width in columns. `None` leaves rows unwrapped, for programs that search them.
    width: Option<usize>,
    has_colour: bool,
}

impl Layout {
    /// Layout for output that other programs read: unwrapped rows without colour.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { width: None, has_colour: false };

    /// Returns the layout for standard output. `COLUMNS` sets the width, and `NO_COLOR` forbids colour.
    pub(crate) fn of_stdout() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let is_forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            width: columns.or(is_terminal.then_some(COLUMNS)),
            has_colour: is_terminal && !is_forbidden && !is_dumb,
        }
    }

    /// Formats the heading of a section: bold if colours are enabled.
    pub(crate) fn heading(self, text: &str) -> String {
        if self.has_colour { format!("\x1b[1m{text}\x1b[0m\n") } else { format!("{text}\n") }
    }

    /// Formats a row: its head, and next to it a text that wraps in its own columns.
    pub(crate) fn row(self, head: &str, text: &str) -> String {
        let Some(width) = self.width else { return format!("{head}{text}\n") };
        let mut column = head.chars().count();
        let indent = if column + MIN_TEXT <= width { column } else { INDENT };
        let mut row = head.to_owned();
        let mut is_first = true;
        for word in text.split(' ') {
            let length = word.chars().count();
            let gap = usize::from(!is_first);
            if column + gap + length > width && column > indent {
                row.truncate(row.trim_end().len());
                row += &format!("\n{:indent$}", "");
                column = indent;
            } else if !is_first {
                row.push(' ');
                column += 1;
            }
            row += word;
            column += length;
            is_first = false;
        }
        row + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_wraps_beside_the_head() {
        let layout = Layout { width: Some(40), has_colour: false };
        let row = layout.row("  NAME  ", "words that need more than one line of this width");
        assert_eq!(row, "  NAME  words that need more than one\n        line of this width\n");
        assert_eq!(Layout::PLAIN.row("  NAME  ", "as it is"), "  NAME  as it is\n");
    }

    #[test]
    fn text_wraps_below_a_long_head() {
        let layout = Layout { width: Some(40), has_colour: false };
        let row = layout.row("  A_NAME_THAT_IS_LONG ", "words that need another line");
        assert_eq!(row, "  A_NAME_THAT_IS_LONG words that need\n      another line\n");
    }

    #[test]
    fn headings_are_bold_only_with_colour() {
        assert_eq!(Layout::PLAIN.heading("Memory"), "Memory\n");
        assert_eq!(Layout { has_colour: true, ..Layout::PLAIN }.heading("Memory"), "\x1b[1mMemory\x1b[0m\n");
    }
}
