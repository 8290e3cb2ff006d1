//! Comparison of the commands of another program with ours, field by field.

use std::collections::BTreeSet;

use rushmem_mlx5::prm::Header;

use crate::fields::{Value, fields};
use crate::recording::{Sent, Step};

/// A field that another program sets to values that ours does not use, or the reverse.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) program: &'static str,
    pub(crate) step: Step,
    pub(crate) field: String,
    pub(crate) ours: BTreeSet<Value>,
    pub(crate) theirs: BTreeSet<Value>,
}

/// Returns the commands of a step. If the program sent some by DevX, only those: Linux, or here its stand-in, has made
/// the others.
pub(crate) fn of_step(sent: &[Sent], step: Step) -> Vec<&Sent> {
    let all: Vec<&Sent> = sent.iter().filter(|sent| sent.step == step).collect();
    let by_devx: Vec<&Sent> = all.iter().copied().filter(|sent| is_devx(sent)).collect();
    if by_devx.is_empty() { all } else { by_devx }
}

/// Whether the program wrote the mailbox. Otherwise, the kernel did, for a call of verbs.
pub(crate) fn is_devx(sent: &Sent) -> bool {
    Header::decode(&sent.input).is_ok_and(|header| header.uid != 0)
}

/// Returns the steps of a recording, each once.
pub(crate) fn steps(sent: &[Sent]) -> BTreeSet<Step> {
    sent.iter().map(|sent| sent.step).collect()
}

/// Compares the steps that both programs have.
pub(crate) fn compare(program: &'static str, ours: &[Sent], theirs: &[Sent]) -> Vec<Difference> {
    let mut found = Vec::new();
    for step in steps(theirs).intersection(&steps(ours)).copied() {
        let (our, their) = (of_step(ours, step), of_step(theirs, step));
        for field in fields(step.opcode) {
            let of = |sent: &[&Sent]| -> BTreeSet<Value> {
                sent.iter().filter_map(|sent| field.value(&sent.input)).collect()
            };
            let (ours, theirs) = (of(&our), of(&their));
            if ours != theirs {
                found.push(Difference { program, step, field: field.name, ours, theirs });
            }
        }
    }
    found
}
