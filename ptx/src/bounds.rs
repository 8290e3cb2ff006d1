//! How many threads a block of a kernel has at most: what `#[kernel(max_threads = ..)]` says, as PTX says it.
//!
//! There is no attribute of Rust's for it. The macro makes a variable whose name says so, and its place is taken by a
//! directive of the entry here.

/// How the name of such a variable begins; the number, `_` and the kernel's name follow. The macro `#[kernel]` makes the same.
const VARIABLE: &str = " rushmem_max_threads_";

/// Replaces the variables with directives.
pub(crate) fn apply(text: &str) -> String {
    let said = |line: &str| {
        let (threads, name) = line.split_once(VARIABLE)?.1.split_once('_')?;
        Some((name.split(['[', ';', ' ']).next()?.to_owned(), threads.parse::<u32>().ok()?))
    };
    let bounds: Vec<(String, u32)> = text.lines().filter_map(said).collect();
    let mut out = String::with_capacity(text.len());
    let mut bound = None;
    for line in text.lines().filter(|line| said(line).is_none()) {
        let entry = line.split_once(".entry ").map(|(_, rest)| rest.split('(').next().unwrap_or(rest));
        if let Some(name) = entry {
            bound = bounds.iter().find(|(of, _)| of == name).map(|&(_, threads)| threads);
        }
        // The body begins at the first brace of a line's own.
        if let (Some(threads), "{") = (bound, line) {
            // One block is enough: without that, the compiler spares registers for more of them at once.
            out += &format!(".maxntid {threads}\n.minnctapersm 1\n");
            bound = None;
        }
        out += line;
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::apply;

    #[test]
    fn a_variable_becomes_a_directive_of_its_entry() {
        let text = ".version 8.2\n.visible .global .align 1 .b8 rushmem_max_threads_512_b[1];\n.entry a(\n)\n{\n\tret;\n}\n\
                    .visible .entry b(\n\t.param .u32 b_param_0\n)\n{\n\tret;\n}\n.func b2()\n{\n}\n";
        let wanted = ".version 8.2\n.entry a(\n)\n{\n\tret;\n}\n\
                      .visible .entry b(\n\t.param .u32 b_param_0\n)\n.maxntid 512\n.minnctapersm 1\n{\n\tret;\n}\n.func b2()\n{\n}\n";
        assert_eq!(apply(text), wanted);
    }
}
