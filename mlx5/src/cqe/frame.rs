//! Completions of received Ethernet frames.

use super::{Cqe, CqeOpcode, CqeTail, OpOwn};
use crate::be::{Be16, Be32, Be64};
use crate::ctrl::Opcode;

/// The decoded contents of the completion of a received Ethernet frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameReception {
    /// Flow tag of the entry of a flow table that matched the frame, 24 bits.
    pub flow_tag: u32,
    /// Index of the receive entry that was consumed.
    pub wqe_counter: u16,
    /// User index of the receive queue, 24 bits.
    pub user_index: u32,
    /// Length of the frame, in bytes.
    pub byte_cnt: u32,
    /// Time of the completion, in ticks of the NIC's free-running clock.
    pub timestamp: u64,
    /// Hash by which the receive queue was chosen.
    pub hash: u32,
    /// What `hash` covers: [`FrameReception::HASH_IP`], [`FrameReception::HASH_L4`], or 0 without a hash.
    pub hash_type: u8,
    /// Ones' complement sum of the frame after its Ethernet header.
    pub check_sum: u16,
    /// Which layers are correct, as a union of [`FrameReception::L2_OK`] and the other constants.
    pub correct: u8,
    /// Types of the headers, as a union of [`FrameReception::IPV4`] and the other constants.
    pub headers: u8,
    /// Tag control information of the VLAN tag that was removed.
    pub vlan: Option<u16>,
}

impl FrameReception {
    /// Value of `hash_type`: the IP addresses.
    pub const HASH_IP: u8 = 0x3 << 2;
    /// Value of `hash_type`: the ports, too.
    pub const HASH_L4: u8 = 0x3 << 6;
    /// Bit of `correct`: the frame is complete.
    pub const L2_OK: u8 = 1;
    /// Bit of `correct`: the IP header has the right checksum.
    pub const L3_OK: u8 = 1 << 1;
    /// Bit of `correct`: TCP or UDP has the right checksum.
    pub const L4_OK: u8 = 1 << 2;
    /// Bit of `headers`: IPv6.
    pub const IPV6: u8 = 1 << 2;
    /// Bit of `headers`: IPv4.
    pub const IPV4: u8 = 2 << 2;
    /// Bits of `headers`: TCP.
    pub const TCP: u8 = 1 << 4;
    /// Bits of `headers`: UDP.
    pub const UDP: u8 = 2 << 4;
}

impl Cqe {
    /// Encodes the completion of a received frame. `owner` is the bit from [`owner_bit`](super::owner_bit).
    pub fn frame(got: &FrameReception, owner: bool) -> Self {
        Self {
            rss_hash_result: Be32::new(got.hash),
            rss_hash_type: got.hash_type,
            check_sum: Be16::new(got.check_sum),
            hds_ip_ext: got.correct,
            l4_hdr_type: got.headers | u8::from(got.vlan.is_some()),
            vlan_info: Be16::new(got.vlan.unwrap_or(0)),
            srqn_uidx: Be32::new(got.user_index & 0xff_ffff),
            byte_cnt: Be32::new(got.byte_cnt),
            timestamp: Be64::new(got.timestamp),
            tail: CqeTail::new(
                Opcode(0),
                got.flow_tag,
                got.wqe_counter,
                OpOwn::new(CqeOpcode::RESP_SEND, false, owner),
            ),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_drivers_read_them() {
        let got = FrameReception {
            flow_tag: 0x12_3456,
            wqe_counter: 9,
            user_index: 7,
            byte_cnt: 60,
            timestamp: 1,
            hash: 0xa1b2_c3d4,
            hash_type: FrameReception::HASH_L4,
            check_sum: 0xbeef,
            correct: FrameReception::L2_OK | FrameReception::L3_OK,
            headers: FrameReception::IPV4 | FrameReception::TCP,
            vlan: Some(0x2005),
        };
        let bytes = Cqe::frame(&got, true).to_bytes();
        assert_eq!(
            (&bytes[12..17], &bytes[20..22]),
            (&[0xa1, 0xb2, 0xc3, 0xd4, 0xc0][..], &[0xbe, 0xef][..])
        );
        assert_eq!(bytes[28..32], [3, 0x19, 0x20, 5]);
        assert_eq!((bytes[47], &bytes[56..]), (60, &[0, 0x12, 0x34, 0x56, 0, 9, 0, 0x21][..]));
    }
}
