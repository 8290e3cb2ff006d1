//! Formats a Markdown table of all test programs.

use std::fmt::Write;

use crate::program::{Topic, Verdict};
use crate::source::Listing;

/// Formats a Markdown table of the programs of `topics`, with their descriptions and verdicts.
pub fn markdown(topics: &[Topic]) -> String {
    let mut text = String::from("# Programs of the sanitizer suite\n");
    for topic in topics {
        let file = topic.file.rsplit('/').next().unwrap_or(topic.file);
        let _ = write!(text, "\n## {}\n\nFile `{file}`.\n\n", topic.title);
        text += "| program | description | verdict |\n|---|---|---|\n";
        for program in topic.programs {
            let doc = Listing::of(topic, program.name).map_or(String::new(), |listing| listing.doc);
            let verdict = match program.verdict {
                Verdict::Clean => "clean",
                Verdict::Race => "race",
                Verdict::Deadlock => "deadlock",
            };
            let _ = writeln!(text, "| `{}` | {doc} | {verdict} |", program.name);
        }
    }
    text
}
