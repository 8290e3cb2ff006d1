//! Parses a program's source file for its doc comment and its marked lines.
//!
//! A program extends to the next one in its file, which allows kernels to follow the function that launches them.

use crate::program::Topic;

/// Lines of a program that are marked by a comment, as line numbers in the source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Line numbers marked `// first`, with the first access of a race.
    pub first: Vec<u32>,
    /// Line numbers marked `// second`, with the second access of a race.
    pub second: Vec<u32>,
    /// Line numbers marked `// waits`, with the waits of a deadlock.
    pub waits: Vec<u32>,
}

/// A program as found in its source file.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Doc comment of the program's function, joined into one line.
    pub doc: String,
    /// Line of the function, counted from 1.
    pub line: u32,
    /// Lines of the function that are marked by a comment.
    pub marks: Marks,
}

impl Listing {
    /// Finds a program in the file of its topic. Returns `None` if there is no function with this name.
    pub fn of(topic: &Topic, name: &str) -> Option<Self> {
        let lines: Vec<&str> = topic.text.lines().collect();
        let head = lines.iter().position(|line| line.starts_with(&format!("fn {name}(")))?;
        let above = lines[..head].iter().rev().skip_while(|line| line.starts_with("#["));
        let mut doc: Vec<&str> = above.map_while(|line| line.strip_prefix("/// ")).collect();
        doc.reverse();
        let mut marks = Marks::default();
        let is_next =
            |line: &&str| topic.programs.iter().any(|p| line.starts_with(&format!("fn {}(", p.name)));
        let end = lines[head + 1..].iter().position(is_next).map_or(lines.len(), |next| head + 1 + next);
        for (number, line) in (head as u32 + 1..).zip(&lines[head..end]) {
            match line.rsplit_once(" // ").map(|(_, mark)| mark) {
                Some("first") => marks.first.push(number),
                Some("second") => marks.second.push(number),
                Some("first and second") => {
                    marks.first.push(number);
                    marks.second.push(number);
                }
                Some("waits") => marks.waits.push(number),
                _ => {}
            }
        }
        Some(Self { doc: doc.join(" "), line: head as u32 + 1, marks })
    }
}
