//! Receive-side scaling: the hash by which a TIR chooses a receive queue.

use crate::frame::Layers;
use rushmem_mlx5::cqe::FrameReception;
use rushmem_mlx5::prm::tir::{HashFields, HashFunction, TirContext};

/// Returns the hash of a frame, and what it covers as a completion reports it.
pub(super) fn hash(context: &TirContext, frame: &[u8], layers: &Layers) -> (u32, u8) {
    let mut input = Vec::with_capacity(36);
    let selected = context.outer.selected;
    if let Some(ip) = layers.ip {
        let (source, destination) = ip.addresses(frame, layers.network);
        let ports = if ip.has_ports() { &frame[ip.transport..ip.transport + 4] } else { &[0; 4] };
        // A symmetric hash is the same in both directions of a flow.
        let sorted =
            |pair: (_, _)| if context.rx_hash_symmetric && pair.1 < pair.0 { (pair.1, pair.0) } else { pair };
        let (source, destination) = sorted((source, destination));
        let (source_port, destination_port) = sorted((&ports[..2], &ports[2..]));
        let fields = [
            (HashFields::SOURCE_IP, source),
            (HashFields::DESTINATION_IP, destination),
            (HashFields::SOURCE_PORT, source_port),
            (HashFields::DESTINATION_PORT, destination_port),
            (HashFields::IPSEC_SPI, ip.security_index(frame)),
        ];
        for (bit, bytes) in fields {
            if selected & bit != 0 {
                input.extend_from_slice(bytes);
            }
        }
    }
    let value = match context.rx_hash_fn {
        HashFunction::TOEPLITZ => toeplitz(&context.rx_hash_toeplitz_key.0, &input),
        HashFunction::INVERTED_XOR8 => u32::from(!input.iter().fold(0, |sum, byte| sum ^ byte)),
        _ => return (0, 0),
    };
    let has_ports = selected & (HashFields::SOURCE_PORT | HashFields::DESTINATION_PORT) != 0;
    let covers = match (input.is_empty(), has_ports) {
        (true, _) => 0,
        (false, false) => FrameReception::HASH_IP,
        (false, true) => FrameReception::HASH_IP | FrameReception::HASH_L4,
    };
    (value, covers)
}

/// Returns the Toeplitz hash: the XOR of the 32 bits of the key at each bit that is set in the input.
fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let bits = |bytes: &[u8], at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
    let mut window = key.iter().take(4).fold(0u32, |window, byte| window << 8 | u32::from(*byte));
    let mut hash = 0;
    for at in 0..input.len() * 8 {
        if bits(input, at) != 0 {
            hash ^= window;
        }
        window = window << 1 | u32::from(bits(key, at + 32));
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::frame;
    use crate::frame::{TCP, parse};
    use rushmem_mlx5::prm::Bytes;

    #[test]
    fn a_symmetric_hash_ignores_the_direction() {
        let mut frame = frame(TCP, b"data");
        let layers = parse(&frame).unwrap();
        let selected = HashFields::SOURCE_IP | HashFields::DESTINATION_IP | HashFields::SOURCE_PORT;
        let outer = HashFields { selected: selected | HashFields::DESTINATION_PORT, ..HashFields::default() };
        let key = Bytes(std::array::from_fn(|i| i as u8));
        let plain = TirContext {
            rx_hash_fn: HashFunction::TOEPLITZ,
            rx_hash_toeplitz_key: key,
            outer,
            ..Default::default()
        };
        let symmetric = TirContext { rx_hash_symmetric: true, ..plain };
        let there = [plain, symmetric].map(|context| hash(&context, &frame, &layers));
        frame[26..34].rotate_left(4);
        frame[34..38].rotate_left(2);
        let back = [plain, symmetric].map(|context| hash(&context, &frame, &layers));
        assert!(there[0] != back[0] && there[1] == back[1]);
        assert_eq!(there[0].1, FrameReception::HASH_IP | FrameReception::HASH_L4);
    }

    #[test]
    fn the_published_verification_suite_holds() {
        // Of Microsoft's documentation of receive-side scaling, for IPv4 with TCP and without.
        let key = [
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
            0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
            0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
        ];
        let input = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
        assert_eq!(toeplitz(&key, &input), 0x51cc_c178);
        assert_eq!(toeplitz(&key, &input[..8]), 0x323e_8fc2);
    }
}
