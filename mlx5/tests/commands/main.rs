//! How other programs set up CQs, QPs, DC targets and memory keys on a ConnectX, next to ours: the mailboxes of their
//! commands, which `rushmem softnic --record` has recorded, are compared with ours field by field. `docs/qp-compat.md`
//! lists every field that differs, with the reason. A difference without a reason fails, and so does a reason without a
//! difference.
//!
//! `UPDATE_DOCS=1 cargo test -p rushmem-mlx5 --test commands` writes the page. With `RECORDINGS=DIR`, it first replaces
//! the recordings in `recorded/` by those of the same name in DIR, one object of each kind.

mod compare;
mod fields;
mod known;
mod page;
mod recording;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Once;

use compare::{Difference, compare, steps};
use known::{KNOWN, NOT_OURS, PROGRAMS};
use recording::{Sent, parse, reduce};
use rushmem_mlx5::prm::CmdOpcode;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands").join(path)
}

fn updates() -> bool {
    std::env::var_os("UPDATE_DOCS").is_some()
}

/// Replaces the recordings by those of the folder `RECORDINGS`, once.
fn update_recordings() {
    static UPDATE: Once = Once::new();
    let Some(folder) = std::env::var_os("RECORDINGS").filter(|_| updates()) else { return };
    UPDATE.call_once(|| {
        for name in PROGRAMS.iter().flat_map(|program| [program.ours, program.recording]) {
            if let Ok(raw) = std::fs::read_to_string(Path::new(&folder).join(format!("{name}.commands"))) {
                std::fs::write(here(&format!("recorded/{name}.txt")), reduce(&raw)).unwrap();
            }
        }
    });
}

fn recorded(name: &str) -> Vec<Sent> {
    update_recordings();
    let file = here(&format!("recorded/{name}.txt"));
    let text = std::fs::read_to_string(&file);
    let sent = parse(&text.unwrap_or_else(|error| panic!("{}: {error}", file.display())));
    assert!(!sent.is_empty(), "{} has no commands", file.display());
    sent
}

fn differences() -> Vec<Difference> {
    let of_program = |program: &known::Program| {
        let (ours, theirs) = (recorded(program.ours), recorded(program.recording));
        compare(program.name, &ours, &theirs)
    };
    PROGRAMS.iter().flat_map(of_program).collect()
}

#[test]
fn the_page_explains_every_difference() {
    let differences = differences();
    let mut used = BTreeSet::new();
    let mut unexplained = Vec::new();
    for difference in &differences {
        let reasons: Vec<usize> = (0..KNOWN.len()).filter(|&i| KNOWN[i].covers(difference)).collect();
        match reasons[..] {
            [reason] => _ = used.insert((reason, difference.program)),
            _ => unexplained.push(format!("{} reasons: {difference:?}", reasons.len())),
        }
    }
    assert!(unexplained.is_empty(), "{}:\n{}", unexplained.len(), unexplained.join("\n"));
    for (i, known) in KNOWN.iter().enumerate() {
        for program in known.programs {
            assert!(used.contains(&(i, *program)), "{program} has no difference in {:?}", known.fields);
        }
    }
    let page = page::page(&differences);
    let file = here("../../../docs/qp-compat.md");
    if updates() {
        std::fs::write(&file, &page).unwrap();
    }
    assert!(std::fs::read_to_string(&file).unwrap() == page, "docs/qp-compat.md is stale: set UPDATE_DOCS=1");
}

#[test]
fn steps_that_only_others_have_are_named() {
    let mut found = BTreeSet::new();
    for program in PROGRAMS {
        let (ours, theirs) = (steps(&recorded(program.ours)), steps(&recorded(program.recording)));
        found.extend(theirs.difference(&ours).map(ToString::to_string));
        assert!(theirs.intersection(&ours).count() > 1, "{} and ours have no step in common", program.name);
    }
    let named: BTreeSet<String> =
        NOT_OURS.iter().flat_map(|(steps, _)| steps.iter().map(|&step| step.into())).collect();
    assert_eq!(found, named);
}

#[test]
fn a_changed_bit_is_a_difference() {
    let ours = recorded(PROGRAMS[0].ours);
    assert!(compare("itself", &ours, &ours).is_empty());
    let mut changed = ours.clone();
    for cq in changed.iter_mut().filter(|sent| sent.step.opcode == CmdOpcode::CREATE_CQ) {
        // `cc` of the CQ context, and a bit that no field has.
        cq.input[17] ^= 0x10;
        cq.input[0x6f] ^= 1;
    }
    let found = compare("itself", &ours, &changed);
    let fields: Vec<_> = found.iter().map(|difference| &*difference.field).collect();
    assert_eq!(fields, ["cqc.cc", "reserved 0x360"]);
}

#[test]
fn a_recording_keeps_one_object_of_each_kind() {
    let text =
        std::fs::read_to_string(here("recorded").join(PROGRAMS[0].ours).with_extension("txt")).unwrap();
    assert_eq!(reduce(&format!("# comment\n{text}{text}")), text);
}
