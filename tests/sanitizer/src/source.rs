//! The source of a program: its doc and its marked lines. A program extends to the next one in its file, which allows
//! kernels to follow the function that launches them.

use crate::program::Topic;

/// The marked lines of a program, as line numbers of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Lines marked `// first`.
    pub first: Vec<u32>,
    /// Lines marked `// second`.
    pub second: Vec<u32>,
    /// Lines marked `// waits`.
    pub waits: Vec<u32>,
}

/// A program as found in its source file.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Doc of the function, on one line.
    pub doc: String,
    /// Line number of the function.
    pub line: u32,
    /// The marked lines.
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
