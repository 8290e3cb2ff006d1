//! The table as a Markdown page.

use std::fmt::Write;

use crate::{Row, State};

const HEAD: &str = "\
# Coverage

OpenSHMEM, NVSHMEM, rocSHMEM, NCCL's GIN and DOCA GPUNetIO offer 218 families of operations between them. This page lists
each one with its state in Rushmem. It is generated from `coverage.json`. `cargo test -p rushmem-tests --test coverage` fails
if an item or a test that the page names does not exist.

Tier 1: a PGAS library needs it. Tier 2: users of NVSHMEM expect it. Tier 3: beyond that. In the columns of the other
libraries, a version is the first that has the operation. `partial` means restricted, or reachable by composition.

In the column of Rushmem, `done` means that every side that the row names has the operation, and that a test shows it. The
note says what is missing. The tests run natively, with the software ConnectX or P2P between PEs. `tests/gpu.sh` runs the
same suites on GPUs, where they have passed on two and on four H200s. Nothing has run on a ConnectX in silicon.
";

fn word(state: State) -> &'static str {
    match state {
        State::Done => "**done**",
        State::Partial => "partial",
        State::No => "no",
    }
}

/// Returns the page.
pub(crate) fn page(rows: &[Row]) -> String {
    let mut page = HEAD.to_owned();
    let mut write = |line: String| writeln!(page, "{line}").unwrap();
    write("\n| tier | done | partial | no |\n|---|---|---|---|".into());
    for tier in 1..=3 {
        let count = |state| rows.iter().filter(|row| row.tier == tier && row.state == state).count();
        let [done, partial, no] = [State::Done, State::Partial, State::No].map(count);
        write(format!("| {tier} | {done} | {partial} | {no} |"));
    }
    let mut group = "";
    for row in rows {
        let of = row.id.split('.').next().unwrap_or_default();
        if of != group {
            group = of;
            write(format!("\n## {}\n", group.replace('_', " ")));
            write("| row | operation | tier | side | Rushmem | items | tests | note | OpenSHMEM | NVSHMEM | rocSHMEM | GIN | GPUNetIO |".into());
            write("|---|---|---|---|---|---|---|---|---|---|---|---|---|".into());
        }
        let code =
            |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join("<br>");
        write(format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row.id,
            row.operation.replace('|', "\\|"),
            row.tier,
            row.side.replace('|', ", "),
            word(row.state),
            code(&row.items),
            code(&row.tests),
            row.note.replace('|', "\\|"),
            row.openshmem,
            row.nvshmem,
            row.rocshmem,
            row.nccl_gin,
            row.gpunetio
        ));
    }
    page
}
