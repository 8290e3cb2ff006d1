//! Checks on recorded send entries, in the text format that the software ConnectX writes.
//!
//! Lines that start with `#` are comments, and those that start with `command` are commands. On other lines, the first
//! word is the service of the QP (`rc`, `uc`, `ud`, `dc`), the second is the index of the entry in the queue (four
//! hexadecimal digits), and the third is the bytes of its segments in memory order.

use rushmem_mlx5::{Opcode, Segment, View, seg::InlineHdr, wqe::Data};

/// Parses the send entry on a line, encodes it again field by field, and compares the bytes. Returns a description, or
/// `None` for a comment or a command.
///
/// # Panics
///
/// Panics if the bytes cannot be parsed, or if the encoded bytes differ.
pub(crate) fn check(line: &str) -> Option<String> {
    if line.starts_with('#') || line.starts_with("command ") || line.is_empty() {
        return None;
    }
    let mut words = line.split_whitespace();
    let mut word = || words.next().unwrap_or_else(|| panic!("a word is missing in: {line}"));
    let (service, index, digits) = (word(), word(), word());
    let index = u16::from_str_radix(index, 16).unwrap_or_else(|error| panic!("{error}: {line}"));
    let bytes = bytes(digits).unwrap_or_else(|| panic!("no pairs of digits: {line}"));
    assert_eq!(bytes.len() % 16, 0, "no whole segments: {line}");
    let segments: Vec<Segment> =
        bytes.as_chunks().0.iter().map(|chunk| Segment::from_bytes(*chunk)).collect();

    let view = match service {
        "rc" | "uc" => View::parse(&segments),
        "ud" => View::parse_datagram(&segments),
        "dc" => View::parse_dc(&segments),
        "xrc" => View::parse_xrc(&segments),
        other => panic!("no service is called {other}"),
    };
    let view = view.unwrap_or_else(|malformed| panic!("{malformed}: {line}"));
    assert_eq!((view.ctrl().index(), usize::from(view.ctrl().ds())), (index, segments.len()), "{line}");
    let mut again = vec![Segment([u32::MAX; 4]); segments.len()];
    assert_eq!(view.emit(&mut again).map(usize::from), Some(segments.len()), "{line}");
    assert_eq!(Segment::bytes_of(&again), without_leftovers(&view, bytes), "{view}");
    Some(format!("{service} {view}"))
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.as_bytes().chunks(2).map(pair).collect()
}

/// Zeroes the bytes that NICs ignore and drivers leave uninitialised: the immediate of opcodes without one, the compare
/// operand of fetch and add, and the padding of inline data.
fn without_leftovers(view: &View<'_>, mut bytes: Vec<u8>) -> Vec<u8> {
    if view.imm().is_none() {
        bytes[12..16].fill(0);
    }
    if view.opcode() == Opcode::ATOMIC_FA {
        let vector = view.av().map_or(0, |av| if av.is_extended() { 48 } else { 16 });
        let address = vector + if view.xrc_srqn().is_some() { 16 } else { 0 };
        bytes[address + 40..address + 48].fill(0);
    }
    let segments = |data: &Data<'_>| match data {
        Data::Pointer(_) => 1,
        Data::Inline(bytes) => InlineHdr::segments_for(bytes.len() as u32) as usize,
    };
    let mut at = bytes.len() - 16 * view.data().map(|data| segments(&data)).sum::<usize>();
    for data in view.data() {
        let end = at + 16 * segments(&data);
        if let Data::Inline(payload) = data {
            bytes[at + 4 + payload.len()..end].fill(0);
        }
        at = end;
    }
    bytes
}
