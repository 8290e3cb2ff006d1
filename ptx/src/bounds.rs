//! Translates `#[kernel(max_threads = ..)]`, a bound on the number of threads per block, to a PTX directive.
//!
//! Rust has no attribute for such a bound. The macro defines a variable with the bound in its name, and this module
//! replaces the variable by a directive on the kernel's entry.

/// Prefix of the variable that the macro `#[kernel]` defines for a bound. The bound, `_` and the kernel's name follow.
const VARIABLE: &str = " rushmem_max_threads_";

/// Replaces the variables that stand for thread bounds with PTX directives.
pub(crate) fn apply(text: &str) -> String {
    let bound_in = |line: &str| {
        let (threads, name) = line.split_once(VARIABLE)?.1.split_once('_')?;
        Some((name.split(['[', ';', ' ']).next()?.to_owned(), threads.parse::<u32>().ok()?))
    };
    let bounds: Vec<(String, u32)> = text.lines().filter_map(bound_in).collect();
    let mut out = String::with_capacity(text.len());
    let mut bound = None;
    for line in text.lines().filter(|line| bound_in(line).is_none()) {
        let entry = line.split_once(".entry ").map(|(_, rest)| rest.split('(').next().unwrap_or(rest));
        if let Some(name) = entry {
            bound = bounds.iter().find(|(of, _)| of == name).map(|&(_, threads)| threads);
        }
        // The body starts at the first line that is just a brace.
        if let (Some(threads), "{") = (bound, line) {
            // One block per multiprocessor is enough. Without this line, ptxas uses fewer registers to fit more blocks.
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
    fn variables_become_directives_of_their_entries() {
        let text = ".version 8.2\n.visible .global .align 1 .b8 rushmem_max_threads_512_b[1];\n.entry a(\n)\n{\n\tret;\n}\n\
                    .visible .entry b(\n\t.param .u32 b_param_0\n)\n{\n\tret;\n}\n.func b2()\n{\n}\n";
        let wanted = ".version 8.2\n.entry a(\n)\n{\n\tret;\n}\n\
                      .visible .entry b(\n\t.param .u32 b_param_0\n)\n.maxntid 512\n.minnctapersm 1\n{\n\tret;\n}\n.func b2()\n{\n}\n";
        assert_eq!(apply(text), wanted);
    }
}
