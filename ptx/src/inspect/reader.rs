//! Splits PTX text into the statements that the checks need.
//!
//! The reader handles the output of LLVM, including inline assembly, where several instructions may share a line. It is
//! not a complete PTX parser.

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Statement<'a> {
    /// The directive `.version`, with the major and minor PTX version.
    Version(u32, u32),
    /// The directive `.target`, with the GPU architecture.
    Target(&'a str),
    /// A function that is only declared, by `.extern .func`.
    ExternFunction { line: usize, name: &'a str },
    /// The start of a kernel (`entry`) or function with a body.
    Function { line: usize, name: &'a str, entry: bool },
    /// The closing brace of a kernel or function.
    End,
    /// The directive `.file`, which assigns a number to a source file.
    File { number: u32, path: &'a str },
    /// The directive `.loc`, which gives the source position of the following instructions.
    Location { file: u32, line: u32, column: u32 },
    /// A variable in local memory, declared by `.local`.
    Local { bytes: u64 },
    /// A label, which starts a new basic block.
    Label,
    /// An instruction, without its predicate.
    Instruction { line: usize, opcode: &'a str, text: &'a str },
}

pub(super) fn statements(ptx: &str) -> Vec<Statement<'_>> {
    let mut out = Vec::new();
    let mut depth = 0;
    let mut head: Option<(usize, &str)> = None;
    for (number, line) in ptx.lines().enumerate() {
        let line_number = number + 1;
        let code = line.split("//").next().unwrap_or("").trim();
        if depth == 0 {
            outer(line_number, code, &mut head, &mut out);
        }
        // Operand lists use braces, too, so count them to find the end of the body.
        let mut rest = code;
        while let Some(at) = rest.find(['{', '}']) {
            let open = rest[at..].starts_with('{');
            if open
                && depth == 0
                && let Some((line, text)) = head.take()
            {
                out.extend(function(line, text));
            }
            depth = if open { depth + 1 } else { depth - 1_i32 };
            if depth == 0 {
                out.push(Statement::End);
            }
            rest = &rest[at + 1..];
        }
        if depth > 0 {
            out.extend(code.split(';').filter_map(|part| inner(line_number, part)));
        }
    }
    out
}

/// Parses a line outside of function bodies. A function's signature may span several lines; its name is on the first.
fn outer<'a>(line: usize, code: &'a str, head: &mut Option<(usize, &'a str)>, out: &mut Vec<Statement<'a>>) {
    let mut words = code.split_whitespace();
    match words.next() {
        Some(".version") => {
            let (major, minor) = words.next().and_then(|v| v.split_once('.')).unwrap_or_default();
            out.push(Statement::Version(major.parse().unwrap_or(0), minor.parse().unwrap_or(0)));
        }
        Some(".target") => {
            out.push(Statement::Target(words.next().unwrap_or("").trim_end_matches(',')));
        }
        Some(".file") => out.extend(file(code)),
        Some(".extern") if words.next() == Some(".func") => {
            if let Some(name) = function_name(code) {
                out.push(Statement::ExternFunction { line, name });
            }
        }
        Some(_) if code.contains(".func") || code.contains(".entry") => *head = Some((line, code)),
        // This completes a declaration, which has no body.
        Some(_) if head.is_some() && code.ends_with(';') => *head = None,
        _ => {}
    }
}

/// Parses `.file 1 "path"`.
fn file(code: &str) -> Option<Statement<'_>> {
    let number = code.split_whitespace().nth(1)?.parse().ok()?;
    Some(Statement::File { number, path: code.split('"').nth(1)? })
}

/// Parses `1 10 38`, the operands of `.loc`.
fn location(operands: &str) -> Option<Statement<'_>> {
    let mut numbers =
        operands.split([' ', '\t', ',']).filter(|word| !word.is_empty()).map_while(|word| word.parse().ok());
    Some(Statement::Location { file: numbers.next()?, line: numbers.next()?, column: numbers.next()? })
}

fn function(line: usize, head: &str) -> Option<Statement<'_>> {
    let entry = head.contains(".entry");
    Some(Statement::Function { line, name: function_name(head)?, entry })
}

/// Returns the name in `.visible .entry name(` or `.func (.param .b64 r) name(`.
fn function_name(head: &str) -> Option<&str> {
    let after = head.split_once(".entry").or_else(|| head.split_once(".func"))?.1.trim_start();
    let after = match after.strip_prefix('(') {
        Some(result) => result.split_once(')')?.1.trim_start(),
        None => after,
    };
    let end = after.find(['(', ' ', ';', '\t']).unwrap_or(after.len());
    (end > 0).then(|| &after[..end])
}

/// Parses one statement of a function body.
fn inner(line: usize, part: &str) -> Option<Statement<'_>> {
    let text = part.trim().trim_start_matches(['{', '}']).trim_start();
    let text = match text.strip_prefix('@') {
        Some(predicated) => predicated.split_once(char::is_whitespace)?.1.trim_start(),
        None => text,
    };
    if let Some(operands) = text.strip_prefix(".loc\t").or_else(|| text.strip_prefix(".loc ")) {
        return location(operands);
    }
    if let Some(local) = text.strip_prefix(".local") {
        return Some(Statement::Local { bytes: declared_bytes(local) });
    }
    let opcode = text.split_whitespace().next()?;
    if opcode.ends_with(':') {
        return Some(Statement::Label);
    }
    let starts_well = opcode.starts_with(|c: char| c.is_ascii_lowercase());
    starts_well.then_some(Statement::Instruction { line, opcode, text })
}

/// Returns the size of ` .align 8 .b8 __local_depot4[128]`, in bytes.
fn declared_bytes(declaration: &str) -> u64 {
    let bits = declaration
        .split_whitespace()
        .filter_map(|w| w.strip_prefix(['.']))
        .find_map(|w| w.trim_start_matches(['b', 'u', 's', 'f']).parse::<u64>().ok())
        .unwrap_or(8);
    let count = declaration.split_once('[').and_then(|(_, rest)| rest.split(']').next());
    count.map_or(1, |n| n.trim().parse().unwrap_or(0)) * bits / 8
}

/// Returns the function called by `call.uni (retval0), name, (param0)`, or `None` for a call through a register.
pub(super) fn callee(text: &str) -> Option<&str> {
    let after = text.split_once(char::is_whitespace)?.1.trim_start();
    let after = match after.strip_prefix('(') {
        Some(result) => result.split_once(')')?.1.trim_start_matches([',', ' ', '\t']),
        None => after,
    };
    let name = after.split([',', ' ', ';', '\t']).next()?;
    (!name.is_empty() && !name.starts_with('%')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "\
.version 8.6
.target sm_90, debug
.extern .func (.param .b32 r) memcmp
()
;
.func _R5panic
()
.noreturn;
.func  (.param .b64 func_retval0) helper(
\t.param .b64 p
)
{
\tret; // }
}
.visible .entry k(
\t.param .u32 a
)
{
\t.local .align 8 .b8 \t__local_depot1[24];
\t.loc\t2 7 9, function_name $L__info_string0, inlined_at 1 2 3
\t@%p1 bra $L1;
\tmov.b32 {%h1, %h2}, %r1;
\t{ .reg .b64 t; mov.b64 t, 1; atom.add.u32 t, [x], 1; }
$L1:
\tret;
}
\t.file\t2 \"/k/src/lib.rs\"
";

    #[test]
    fn distinguishes_heads_bodies_and_declarations() {
        let all = statements(PTX);
        let kinds: Vec<String> = all
            .iter()
            .map(|s| match s {
                Statement::Version(a, b) => format!("version {a}.{b}"),
                Statement::Target(t) => format!("target {t}"),
                Statement::ExternFunction { line, name } => format!("extern {name} {line}"),
                Statement::Function { line, name, entry } => format!("function {name} {line} {entry}"),
                Statement::End => "end".into(),
                Statement::File { number, path } => format!("file {number} {path}"),
                Statement::Location { file, line, column } => format!("at {file} {line} {column}"),
                Statement::Local { bytes } => format!("local {bytes}"),
                Statement::Label => "label".into(),
                Statement::Instruction { line, opcode, .. } => format!("{opcode} {line}"),
            })
            .collect();
        assert_eq!(
            kinds,
            [
                "version 8.6",
                "target sm_90",
                "extern memcmp 3",
                "function helper 9 false",
                "ret 13",
                "end",
                "function k 15 true",
                "local 24",
                "at 2 7 9",
                "bra 21",
                "mov.b32 22",
                "mov.b64 23",
                "atom.add.u32 23",
                "label",
                "ret 25",
                "end",
                "file 2 /k/src/lib.rs",
            ]
        );
    }

    #[test]
    fn reads_sizes_of_variables() {
        assert_eq!(declared_bytes(" .align 8 .b8 d[128]"), 128);
        assert_eq!(declared_bytes(" .b64 d[4]"), 32);
        assert_eq!(declared_bytes(" .u32 x"), 4);
    }

    #[test]
    fn reads_callees() {
        assert_eq!(callee("call.uni (retval0), name, (param0)"), Some("name"));
        assert_eq!(callee("call.uni name, ()"), Some("name"));
        assert_eq!(callee("call (%r1), %rd2, (%r3), prototype_0"), None);
    }
}
