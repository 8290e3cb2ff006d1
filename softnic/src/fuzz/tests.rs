//! Runs the fuzz targets with random inputs, as part of the ordinary tests.

use super::{seeds, *};
use crate::roce::Op;
use proptest::prelude::*;
use rushmem_corpus::target;
use rushmem_mlx5::Opcode;

fn bytes(len: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..len)
}

/// Generates WQE blocks with a known opcode, few segments and valid reserved bits.
fn ring() -> impl Strategy<Value = Vec<u8>> {
    let opcodes = [
        Opcode::NOP,
        Opcode::RDMA_WRITE,
        Opcode::RDMA_WRITE_IMM,
        Opcode::RDMA_READ,
        Opcode::SEND,
        Opcode::SEND_IMM,
        Opcode::ATOMIC_CS,
        Opcode::ATOMIC_FA,
        Opcode::ATOMIC_MASKED_CS,
        Opcode::ATOMIC_MASKED_FA,
        Opcode::DUMP,
        Opcode::WAIT,
    ];
    let block = (any::<[u8; 32]>(), any::<[u8; 32]>(), 0..opcodes.len(), 0u8..40, 0u8..5).prop_map(
        move |(a, b, opcode, ds, fence)| {
            let mut block = [0; 64];
            block[..32].copy_from_slice(&a);
            block[32..].copy_from_slice(&b);
            let opcode = opcodes[opcode];
            let masked = matches!(opcode, Opcode::ATOMIC_MASKED_CS | Opcode::ATOMIC_MASKED_FA);
            // All WQEs have one block, so masked compare-and-swap is limited to 4 bytes.
            block[0] =
                if masked { 8 + u8::from(opcode == Opcode::ATOMIC_MASKED_FA) * (block[0] & 1) } else { 0 };
            block[3] = opcode.0;
            // Usually a size that fits the opcode.
            block[7] = match (ds, opcode) {
                (0..6, _) => ds,
                (_, Opcode::NOP) => 1,
                (_, Opcode::DUMP | Opcode::WAIT | Opcode::SEND | Opcode::SEND_IMM) => 2,
                (_, Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM | Opcode::RDMA_READ) => 3 + ds % 2,
                _ => 4,
            };
            block[11] = fence << 5 | 8;
            block
        },
    );
    (1u8..34, 0u8..5, proptest::collection::vec(block, 1..32)).prop_map(|(announced, service, blocks)| {
        let mut bytes = vec![announced, service << 1 | 1];
        bytes.extend(blocks.iter().flatten());
        bytes
    })
}

/// Generates packets with a known opcode and a short payload.
fn traffic() -> impl Strategy<Value = Vec<u8>> {
    let known: Vec<u8> = (0..=0xff).filter(|byte| Op::from_byte(*byte).is_some()).collect();
    let packet =
        (any::<u8>(), 0..known.len(), bytes(120), 0usize..4).prop_map(move |(choice, op, body, pad)| {
            let mut packet = vec![known[op], (pad as u8) << 4];
            packet.extend(body);
            packet.truncate(packet.len() / 4 * 4);
            let mut framed = vec![choice, packet.len() as u8];
            framed.append(&mut packet);
            framed
        });
    (0u8..5, any::<bool>(), proptest::collection::vec(packet, 1..24)).prop_map(
        |(service, faults, packets)| [vec![service | u8::from(faults) << 7], packets.concat()].concat(),
    )
}

/// Returns a configuration of 300 cases, or the number in `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(300), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_mailboxes(data in bytes(2000)) {
        mailboxes(&data);
    }

    #[test]
    fn any_entries_over_loopback(data in bytes(2100)) {
        loopback_entries(&data);
    }

    #[test]
    fn likely_entries_over_loopback(data in ring()) {
        loopback_entries(&data);
    }

    #[test]
    fn likely_entries_over_the_wire(data in ring()) {
        wire_entries(&data);
    }

    #[test]
    fn any_packets(data in bytes(2000)) {
        packets(&data);
    }

    #[test]
    fn any_frames(data in bytes(2000)) {
        frames(&data);
    }

    #[test]
    fn any_rings(data in bytes(400)) {
        rings(&data);
    }

    #[test]
    fn likely_rings(tail in 0u64..9000, head in 0u64..9000, lens in proptest::collection::vec(0u64..4200, 1..40)) {
        rings(&seeds::ring(8 * tail, 8 * head, &lens));
    }

    #[test]
    fn likely_packets(data in traffic()) {
        packets(&data);
    }
}

#[test]
fn fuzz_corpus() {
    target!("mailboxes").messages(seeds::mailboxes()).run(1000, mailboxes);
    target!("loopback_entries").messages(seeds::entries()).run(1000, loopback_entries);
    target!("wire_entries").messages(seeds::entries()).run(1000, wire_entries);
    target!("packets").messages(seeds::packets()).run(1000, packets);
    target!("frames").messages(seeds::frames()).run(1000, frames);
    target!("rings").messages(seeds::rings()).run(300, rings);
    let texts = ["drop=0.01 seed=7 black_hole=10.0.0.2", "delay=1,delay_us=50 late=0.5"];
    target!("faults").messages(texts).run(20_000, faults);
}
