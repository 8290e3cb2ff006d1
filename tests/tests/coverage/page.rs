//! Formats the coverage table as a Markdown page: a summary, a narrow table for each family, and a table of the other
//! libraries.

use std::fmt::Write;

use crate::{Row, State};

const HEAD: &str = "\
# Coverage

OpenSHMEM, NVSHMEM, rocSHMEM, NCCL's GIN and DOCA GPUNetIO offer 218 operations between them. This page states for each
one whether Rushmem has it. It is generated from `coverage.json`, which also names the tests of each operation.
`cargo test -p rushmem-tests --test coverage` fails if a named item or test does not exist.

- **done**: every side that the row names has the operation, and a test shows it.
- **partial**: some of the operation exists, and the note says what is missing.
- **no**: the operation does not exist, and the note says why.

The tests run natively, with the software ConnectX or P2P between PEs. `tests/gpu.sh` runs the same suites on GPUs. They
have passed on two and on four H200s. Nothing has run on a ConnectX in silicon.

## Summary
";

const TIERS: &str = "
Tier 1: a PGAS library needs the operation. Tier 2: users of NVSHMEM expect it. Tier 3: everything else.
";

const LIBRARIES: &str = "
## Other libraries

A version is the first that has the operation. `partial` means restricted, or reachable by composition.

| row | tier | Rushmem | OpenSHMEM | NVSHMEM | rocSHMEM | GIN | GPUNetIO |
|---|---|---|---|---|---|---|---|
";

/// The states of a row, in the column order of the summary.
const STATES: [State; 3] = [State::Done, State::Partial, State::No];

pub(crate) fn page(rows: &[Row]) -> String {
    let families: Vec<&[Row]> = rows.chunk_by(|one, next| family(one) == family(next)).collect();
    let mut page = HEAD.to_owned();
    summarize_families(&mut page, &families, rows);
    page += TIERS;
    summarize_tiers(&mut page, rows);
    for rows in families {
        describe_family(&mut page, rows);
    }
    compare_libraries(&mut page, rows);
    page
}

fn summarize_families(page: &mut String, families: &[&[Row]], all: &[Row]) {
    *page += "\n| family | done | partial | no |\n|---|---|---|---|\n";
    for rows in families {
        let name = title(rows);
        let anchor = name.replace(' ', "-");
        line(page, &format!("[{name}](#{anchor})"), *rows);
    }
    line(page, "**all**", all);
}

fn summarize_tiers(page: &mut String, rows: &[Row]) {
    *page += "\n| tier | done | partial | no |\n|---|---|---|---|\n";
    for tier in 1..=3 {
        line(page, &tier.to_string(), rows.iter().filter(|row| row.tier == tier));
    }
}

/// Writes one line of a summary: a name, and the number of rows in each state.
fn line<'r>(page: &mut String, name: &str, rows: impl IntoIterator<Item = &'r Row> + Clone) {
    let count = |state| rows.clone().into_iter().filter(|row| row.state == state).count();
    let [done, partial, no] = STATES.map(count);
    writeln!(page, "| {name} | {done} | {partial} | {no} |").unwrap();
}

fn describe_family(page: &mut String, rows: &[Row]) {
    writeln!(page, "\n## {}\n", title(rows)).unwrap();
    *page += "| operation | state | item | note |\n|---|---|---|---|\n";
    for row in rows {
        let items: Vec<String> = row.items.iter().map(|item| format!("`{item}`")).collect();
        writeln!(
            page,
            "| {} {} ({}) | {} | {} | {} |",
            number(row),
            escape(&row.operation),
            row.side.replace('|', ", "),
            word(row.state),
            items.join("<br>"),
            escape(&row.note),
        )
        .unwrap();
    }
}

fn compare_libraries(page: &mut String, rows: &[Row]) {
    *page += LIBRARIES;
    for row in rows {
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            row.id,
            row.tier,
            word(row.state),
            row.openshmem,
            row.nvshmem,
            row.rocshmem,
            row.nccl_gin,
            row.gpunetio
        )
        .unwrap();
    }
}

/// Returns the first part of a row's ID, which names its family.
fn family(row: &Row) -> &str {
    row.id.split('.').next().unwrap_or_default()
}

/// Returns the second part of a row's ID, its number within the family.
fn number(row: &Row) -> &str {
    row.id.split('.').nth(1).unwrap_or_default()
}

fn title(rows: &[Row]) -> String {
    rows.first().map(|row| family(row).replace('_', " ")).unwrap_or_default()
}

fn word(state: State) -> &'static str {
    match state {
        State::Done => "**done**",
        State::Partial => "partial",
        State::No => "no",
    }
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}
