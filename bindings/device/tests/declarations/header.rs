//! Writes the C header.

use std::fmt::Write;

use crate::table::{Family, Function, declared};

/// The longest line of a comment.
const WIDTH: usize = 100;

const TOP: &str = include_str!("top.h");

pub(crate) fn header(families: &[Family]) -> String {
    let mut out = TOP.to_owned();
    for family in families {
        let _ = write!(out, "\n/* {}. */\n", family.title);
        let mut doc = "";
        for function in &family.functions {
            // The scopes and types of a function share its comment.
            if function.doc != doc {
                doc = &function.doc;
                out.push('\n');
                comment(&mut out, doc);
            }
            declaration(&mut out, function);
        }
    }
    out + "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n"
}

fn comment(out: &mut String, text: &str) {
    let mut line = String::from("/*");
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            *out += &line;
            line = String::from("\n  ");
        }
        line += " ";
        line += word;
    }
    *out += &line;
    *out += " */\n";
}

fn declaration(out: &mut String, function: &Function) {
    let head = function.returns.declare(&function.name);
    let _ = writeln!(out, "RUSHMEM_DEVICE {head}({});", declared(&function.parameters));
}
