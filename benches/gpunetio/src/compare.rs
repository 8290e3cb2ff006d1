//! Field-by-field comparison of the WQEs that NVIDIA's device code and ours post for the same operation.

use std::fmt;
use std::ops::Range;

use rushmem_mlx5::seg::{SEGMENT_BYTES, WQEBB_BYTES};
use rushmem_mlx5::{CtrlSeg, Flags, Opcode, Segment, View};
use rushmem_softnic::Rule;

use crate::bed::{Bed, UNWRITTEN};
use crate::case::{Case, Images};
use crate::{Error, Result};

/// The bytes of a WQE. Every compared WQE occupies one 64-byte basic block.
pub type Entry = [u8; WQEBB_BYTES];

/// A known, harmless difference between NVIDIA's WQEs and ours.
pub struct Known {
    /// Name of the WQE field that differs.
    pub field: &'static str,
    holds: fn(&FieldPair<'_>) -> bool,
    /// The reason for the difference, as in `docs/wqe-compat.md`.
    pub why: &'static str,
}

/// The same field of our WQE and NVIDIA's WQE at one index of the send queue.
struct FieldPair<'a> {
    ours: &'a [u8],
    theirs: &'a [u8],
    opcode: Opcode,
    /// Whether the WQE is the last one that the operation posted.
    last: bool,
    add: &'a [u8],
}

impl FieldPair<'_> {
    fn ours_is(&self, byte: u8) -> bool {
        self.ours.iter().all(|&b| b == byte)
    }

    fn theirs_is(&self, byte: u8) -> bool {
        self.theirs.iter().all(|&b| b == byte)
    }
}

const UNINITIALISED: &str =
    "NVIDIA's code does not set it and stores what a register held; the NIC does not look at it";
const OLD_BYTES: &str =
    "NVIDIA's code does not write it: what was in the slot stays; ds or the inline length end before it";

/// All accepted differences between NVIDIA's WQEs and ours.
pub const KNOWN: &[Known] = &[
    Known { field: "signature", holds: |p| p.ours_is(0), why: UNINITIALISED },
    Known { field: "stream channel", holds: |p| p.ours_is(0), why: UNINITIALISED },
    Known { field: "imm", holds: |p| p.ours_is(0) && !carries_imm(p.opcode), why: UNINITIALISED },
    Known { field: "raddr reserved", holds: |p| p.ours_is(0), why: UNINITIALISED },
    Known {
        field: "fm_ce_se",
        holds: |p| p.ours_is(Flags::NONE.0) && p.theirs_is(Flags::SIGNALED.0) && !p.last,
        why: "NVIDIA's code asks for a completion of every entry, ours of the last one that a call posts",
    },
    Known {
        field: "compare",
        holds: |p| p.ours_is(0) && p.theirs == p.add,
        why: "NVIDIA's code repeats the number to add; a fetch and add compares nothing",
    },
    Known { field: "inline padding", holds: |p| p.ours_is(0) && p.theirs_is(UNWRITTEN), why: OLD_BYTES },
    Known { field: "unused", holds: |p| p.ours_is(0) && p.theirs_is(UNWRITTEN), why: OLD_BYTES },
];

/// Opcodes of WQEs that only NVIDIA's code posts, each with the reason.
pub const ONLY_THEIRS: &[(Opcode, &str)] = &[
    (Opcode::NOP, "NVIDIA's code posts a NOP for a put of 0 bytes; ours posts nothing"),
    (
        Opcode::DUMP,
        "NVIDIA's code can post a DUMP after a READ, for GPUs that do not see a NIC's writes in order; ours has none",
    ),
];

fn carries_imm(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::RDMA_WRITE_IMM | Opcode::SEND_IMM | Opcode::SEND_INVAL)
}

/// A field whose bytes differ between our WQE and NVIDIA's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Index of the WQE in the send queue, from 0.
    pub entry: usize,
    /// Name of the WQE field that differs.
    pub field: &'static str,
    /// The field's bytes in our WQE.
    pub ours: Vec<u8>,
    /// The field's bytes in NVIDIA's WQE.
    pub theirs: Vec<u8>,
    /// Why the difference is accepted, if it is a known one.
    pub why: Option<&'static str>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, field, ours, theirs, why } = self;
        let why = why.unwrap_or("UNEXPECTED");
        write!(f, "[{entry}] {field}: ours {}, theirs {}: {why}", hex(ours), hex(theirs))
    }
}

/// Formats bytes as hexadecimal digits, without separators.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares the WQEs that our code and NVIDIA's code posted for a case.
///
/// # Errors
/// - [`Error::Wrong`]: a difference is not a known one, or the number of WQEs is not the expected one.
pub fn compare(case: &Case, ours: &[Entry], theirs: &[Entry]) -> Result<Vec<Difference>> {
    if (ours.len(), theirs.len()) != (case.our_wqes(), case.their_wqes()) {
        return Err(Error::wrong(
            case,
            format!("{} entries of ours, {} of theirs", ours.len(), theirs.len()),
        ));
    }
    let mut found = Vec::new();
    for (i, (our, their)) in ours.iter().zip(theirs).enumerate() {
        found.extend(differences(i, our, their, i + 1 == ours.len()));
    }
    let unexpected: Vec<_> = found.iter().filter(|d| d.why.is_none()).map(ToString::to_string).collect();
    if !unexpected.is_empty() {
        return Err(Error::wrong(case, format!("unexpected differences:\n{}", unexpected.join("\n"))));
    }
    for their in &theirs[ours.len()..] {
        let opcode = control(their).opcode();
        if !ONLY_THEIRS.iter().any(|(known, _)| *known == opcode) {
            return Err(Error::wrong(case, format!("only theirs posts: {}", dump(their))));
        }
    }
    Ok(found)
}

fn differences(entry: usize, ours: &Entry, theirs: &Entry, last: bool) -> Vec<Difference> {
    let fields = fields(ours);
    let bytes = |of: &'static str| {
        fields.iter().find(|(name, _)| *name == of).map_or(&[][..], |(_, range)| &ours[range.clone()])
    };
    let of_field = |(field, range): &(&'static str, Range<usize>)| {
        let (our, their) = (&ours[range.clone()], &theirs[range.clone()]);
        let opcode = control(ours).opcode();
        let pair = FieldPair { ours: our, theirs: their, opcode, last, add: bytes("add") };
        let known = KNOWN.iter().find(|known| known.field == *field && (known.holds)(&pair));
        let why = known.map(|known| known.why);
        let (field, ours, theirs) = (*field, our.to_vec(), their.to_vec());
        (our != their).then_some(Difference { entry, field, ours, theirs, why })
    };
    fields.iter().filter_map(of_field).collect()
}

fn control(entry: &Entry) -> CtrlSeg {
    CtrlSeg::from_segment(segments(entry)[0])
}

fn segments(entry: &Entry) -> [Segment; 4] {
    bytemuck::cast(*entry)
}

/// Formats a WQE as one line of text.
pub fn dump(entry: &Entry) -> String {
    match View::parse(&segments(entry)) {
        Ok(view) => view.to_string(),
        Err(malformed) => format!("{} ({malformed})", hex(entry)),
    }
}

fn fields(entry: &Entry) -> Vec<(&'static str, Range<usize>)> {
    let mut fields = Vec::new();
    let mut at = 0;
    let mut take = |name, bytes: usize| {
        fields.push((name, at..at + bytes));
        at += bytes;
    };
    for (name, bytes) in [("opmod", 1), ("index", 2), ("opcode", 1), ("qpn", 3), ("ds", 1)] {
        take(name, bytes);
    }
    for (name, bytes) in [("signature", 1), ("stream channel", 2), ("fm_ce_se", 1), ("imm", 4)] {
        take(name, bytes);
    }
    let ctrl = control(entry);
    if !matches!(ctrl.opcode(), Opcode::NOP | Opcode::DUMP) {
        for (name, bytes) in [("raddr", 8), ("rkey", 4), ("raddr reserved", 4)] {
            take(name, bytes);
        }
    }
    if ctrl.opcode() == Opcode::ATOMIC_FA {
        take("add", 8);
        take("compare", 8);
    }
    let end = usize::from(ctrl.ds()) * SEGMENT_BYTES;
    let inline = View::parse(&segments(entry)).ok().and_then(|view| match view.data().next()? {
        rushmem_mlx5::wqe::Data::Inline(bytes) => Some(bytes.len()),
        rushmem_mlx5::wqe::Data::Pointer(_) => None,
    });
    match inline {
        Some(len) => {
            take("inline length", 4);
            take("inline data", len);
            let start = 2 * SEGMENT_BYTES + 4 + len;
            take("inline padding", end.saturating_sub(start));
        }
        None if ctrl.opcode() != Opcode::NOP => {
            for (name, bytes) in [("byte count", 4), ("lkey", 4), ("laddr", 8)] {
                take(name, bytes);
            }
        }
        None => {}
    }
    take("unused", WQEBB_BYTES.saturating_sub(end));
    fields
}

/// Checks the effects of a case: both heaps, the doorbell record, and the adapter's rules other than `tolerated`.
///
/// # Errors
/// - [`Error::Wrong`]: an effect differs from the expected one.
pub fn check_effects(bed: &Bed, case: &Case, wqes: usize, tolerated: &[Rule]) -> Result {
    let expected = Images::after(case);
    for (end, found, wanted) in [
        ("initiator", bed.initiator.image()?, expected.initiator),
        ("target", bed.target.image()?, expected.target),
    ] {
        if let Some(at) = (0..found.len()).find(|&i| found[i] != wanted[i]) {
            let what =
                format!("the {end}'s heap holds {:#04x} at {at:#x}, not {:#04x}", found[at], wanted[at]);
            return Err(Error::wrong(case, what));
        }
    }
    if usize::from(bed.posted()) != wqes {
        let what = format!("the doorbell record says {} blocks, not {wqes}", bed.posted());
        return Err(Error::wrong(case, what));
    }
    check_rules(bed, case, tolerated)
}

/// Checks that the adapter saw no violation of its rules other than `tolerated`.
///
/// # Errors
/// - [`Error::Wrong`]: a rule is violated.
pub fn check_rules(bed: &Bed, what: impl fmt::Display, tolerated: &[Rule]) -> Result {
    let broken = bed.nic.violations().into_iter().find(|v| !tolerated.contains(&v.rule));
    broken.map_or(Ok(()), |violation| Err(Error::wrong(what, violation)))
}
