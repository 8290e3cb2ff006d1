//! The page `docs/qp-compat.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::compare::{Difference, is_devx, of_step, steps};
use crate::known::{HEAD, KNOWN, NOT_OURS, PROGRAMS, TAIL};
use crate::recorded;
use crate::recording::Step;

/// Returns the page, given all differences, each of which has a reason.
pub(crate) fn page(differences: &[Difference]) -> String {
    let mut page = HEAD.to_owned();
    page += "\n| program | recorded | mailboxes by DevX | by verbs |\n|---|---|---|---|\n";
    for program in PROGRAMS {
        let sent = recorded(program.recording);
        let (mut devx, mut verbs) = (BTreeSet::new(), BTreeSet::new());
        for step in steps(&sent) {
            let by =
                if of_step(&sent, step).iter().all(|sent| is_devx(sent)) { &mut devx } else { &mut verbs };
            by.insert(step.opcode.to_string());
        }
        let list = |names: BTreeSet<String>| Vec::from_iter(names).join(", ");
        writeln!(page, "| {} | {} | {} | {} |", program.name, program.how, list(devx), list(verbs)).unwrap();
    }
    page += "\n## Differences\n\nAny other difference is an error. `set` is any number but 0.\n";
    let steps: BTreeSet<Step> = differences.iter().map(|difference| difference.step).collect();
    for step in steps {
        writeln!(
            page,
            "\n### {step}\n\n| field | ours | theirs | why, and why it does no harm |\n|---|---|---|---|"
        )
        .unwrap();
        write_step(&mut page, differences.iter().filter(|difference| difference.step == step));
    }
    page += "\n## Only theirs\n\n| step | why |\n|---|---|\n";
    for (steps, why) in NOT_OURS {
        writeln!(page, "| {} | {why} |", steps.join(", ")).unwrap();
    }
    page + TAIL
}

/// A row of a step's table.
struct Row<'d> {
    field: &'d str,
    why: &'static str,
    ours: BTreeSet<String>,
    /// Names of the programs with the same values.
    theirs: BTreeMap<String, Vec<&'static str>>,
}

/// Writes the rows of a step: one for each field and reason.
fn write_step<'d>(page: &mut String, differences: impl Iterator<Item = &'d Difference>) {
    let list = |values: &BTreeSet<String>| Vec::from_iter(values.iter().cloned()).join(", ");
    let mut rows: Vec<Row<'_>> = Vec::new();
    for difference in differences {
        let Some(known) = KNOWN.iter().find(|known| known.covers(difference)) else { continue };
        let (field, why) = (&*difference.field, known.why);
        let at = rows.iter().position(|row| (row.field, row.why) == (field, why)).unwrap_or(rows.len());
        if at == rows.len() {
            rows.push(Row { field, why, ours: BTreeSet::new(), theirs: BTreeMap::new() });
        }
        rows[at].ours.extend(difference.ours.iter().cloned());
        rows[at].theirs.entry(list(&difference.theirs)).or_default().push(difference.program);
    }
    for Row { field, why, ours, theirs } in rows {
        let theirs: Vec<String> =
            theirs.iter().map(|(values, programs)| format!("{values} ({})", programs.join(", "))).collect();
        writeln!(page, "| `{field}` | {} | {} | {why} |", list(&ours), theirs.join("; ")).unwrap();
    }
}
