//! Bodies of the fuzz targets, which feed arbitrary bytes to every input of the adapter.
//!
//! No input may cause a panic, or keep the adapter busy forever.

mod harness;
#[cfg(test)]
mod seeds;
pub(crate) mod station;
#[cfg(test)]
mod tests;

use crate::cmd;
use crate::engine::core::Core;
pub(crate) use harness::Harness;
#[cfg(test)]
pub(crate) use harness::{DC_KEY, PEER};
use station::Station;

/// Number of engine passes within which the adapter must become idle.
const PASSES: usize = 4096;

/// Executes commands. Each consists of two bytes (opcode choice and length) and a mailbox.
pub fn mailboxes(data: &[u8]) {
    let mut harness = Harness::new(false, 0);
    let opcodes = harness::opcodes();
    let mut rest = data;
    while let Some(([choice, len], tail)) = rest.split_first_chunk() {
        let len = (usize::from(*len) * 2).min(tail.len());
        let (body, tail) = tail.split_at(len);
        rest = tail;
        let mut input = vec![0; 512];
        input[..len].copy_from_slice(body);
        let opcode = opcodes[usize::from(*choice) % opcodes.len()];
        input[..2].copy_from_slice(&opcode.to_be_bytes());
        if choice & 0x80 != 0 {
            harness.use_known_numbers(&mut input);
        }
        // One bit of the choice truncates the mailbox.
        let input = if choice & 0x40 != 0 { &input[..len.max(2)] } else { &input[..] };
        let mut output = [0; 272];
        cmd::execute(&mut harness.core, harness.context, input, &mut output);
        harness.core.pass(|| false);
    }
    harness.core.close_context(harness.context);
}

/// Executes send WQEs over loopback.
///
/// The first byte is the announced producer counter. The second one selects plausible WQEs and the service. The rest
/// fills the ring.
pub fn loopback_entries(data: &[u8]) {
    entries(false, data);
}

/// Executes send WQEs whose peer is on another adapter. The input has the format of [`loopback_entries`].
pub fn wire_entries(data: &[u8]) {
    entries(true, data);
}

fn entries(wire: bool, data: &[u8]) {
    let Some(([announced, style], data)) = data.split_first_chunk() else { return };
    let mut harness = Harness::new(wire, style >> 1);
    harness.fill_ring(data, style & 1 != 0);
    harness.ring(u16::from(*announced));
    settle(&mut harness.core);
}

/// Processes packets. The first byte selects the service. Each packet consists of a choice, a length, and bytes without
/// a CRC.
pub fn packets(data: &[u8]) {
    let Some((service, data)) = data.split_first() else { return };
    let mut harness = Harness::new(true, *service);
    harness.post_some();
    harness.core.pass(|| false);
    harness.connect_both_ways();
    harness.core.pass(|| false);
    let mut rest = data;
    while let Some(([choice, len], tail)) = rest.split_first_chunk() {
        let (body, tail) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = tail;
        let mut packet = body.to_vec();
        packet.resize(packet.len() + crate::roce::ICRC, 0);
        harness.make_packet_plausible(&mut packet, *choice);
        harness.packet(&packet);
        harness.core.pass(|| false);
    }
}

/// Drives an Ethernet function. Each message consists of a kind, a length, and bytes: a send entry, a frame that arrives,
/// or a command.
pub fn frames(data: &[u8]) {
    let mut station = Station::new();
    station.post_receives();
    let mut rest = data;
    while let Some(([kind, len], tail)) = rest.split_first_chunk() {
        let (body, tail) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = tail;
        match kind & 3 {
            0 => station.fuzzed_entry(body),
            1 => {
                let mut frame = body.to_vec();
                frame.iter_mut().zip(station.mac()).for_each(|(to, from)| *to = from);
                station.receive(&frame);
            }
            2 => station.receive(body),
            _ => station.fuzzed_command(kind >> 2, body),
        }
        station.core.pass(|| false);
    }
    settle(&mut station.core);
    station.core.close_context(station.context);
}

/// Reads and writes a packet ring in shared memory whose contents a hostile peer has written.
pub fn rings(data: &[u8]) {
    crate::link::shared::hostile_ring(data);
}

/// Parses the text form of injected faults.
pub fn faults(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        // Any result is acceptable.
        let _ = text.parse::<crate::Faults>();
    }
}

/// Runs engine passes until the adapter is idle. Panics if it stays busy.
fn settle(core: &mut Core) {
    for _ in 0..PASSES {
        if !core.pass(|| false) {
            return;
        }
    }
    panic!("still busy after {PASSES} passes");
}
