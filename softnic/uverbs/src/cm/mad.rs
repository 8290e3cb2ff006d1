//! Management datagrams of the InfiniBand communication manager (InfiniBand Architecture Specification, volume 1,
//! chapter 12). All fields are big-endian.

use rushmem_softnic::MAD;
use std::time::Duration;

/// Length of the common header, in bytes.
const HEADER: usize = 24;
/// Management class of the communication manager, and its version.
const CLASS: [u8; 2] = [7, 2];
/// Method `ComMgtSend`, which all messages of the communication manager have.
const SEND: u8 = 3;

/// Code of the time within which a manager answers: half a second.
pub(crate) const RESPONSE_TIMEOUT: u8 = 17;
/// Maximum number of times that a message is resent.
pub(crate) const RETRIES: u32 = 15;

/// Returns the time that a 5-bit code stands for: 4.096 us times a power of two.
pub(crate) fn time_of(code: u8) -> Duration {
    Duration::from_nanos(4096 << (code & 0x1f))
}

/// Reasons for a REJ.
pub(crate) mod reason {
    pub(crate) const TIMEOUT: u16 = 4;
    pub(crate) const INVALID_COMMUNICATION_ID: u16 = 6;
    pub(crate) const INVALID_SERVICE_ID: u16 = 8;
    pub(crate) const CONSUMER: u16 = 28;
}

/// Which message an MRA or a REJ answers.
pub(crate) mod answered {
    pub(crate) const REQ: u8 = 0;
    pub(crate) const REP: u8 = 1;
    pub(crate) const NONE: u8 = 2;
}

/// Transport service type that refers to the extended type.
const EXTENDED: u8 = 3;
/// Extended transport type of XRC.
const XRC: u8 = 1;

/// Status codes of a SIDR_REP.
pub(crate) mod sidr_status {
    pub(crate) const VALID: u8 = 0;
    pub(crate) const UNSUPPORTED: u8 = 1;
    pub(crate) const REJECTED: u8 = 2;
}

/// A message and its transaction ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mad {
    pub(crate) tid: u64,
    pub(crate) message: Message,
}

/// Communication IDs of the sender and of the receiver of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) local: u32,
    pub(crate) remote: u32,
}

/// A message. Private data always has its full length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Requests a connection.
    Req(Box<Req>),
    /// Announces that an answer will take long.
    Mra { ids: Ids, answered: u8, timeout: u8 },
    /// Rejects a connection.
    Rej { ids: Ids, answered: u8, reason: u16, private: Vec<u8> },
    /// Accepts a connection.
    Rep(Box<Rep>),
    /// Confirms that the connection is in use.
    Rtu { ids: Ids },
    /// Closes a connection.
    Dreq { ids: Ids, qpn: u32 },
    /// Answers a DREQ.
    Drep { ids: Ids },
    /// Asks for the QPN of a datagram service.
    SidrReq { id: u32, pkey: u16, service_id: u64, private: Vec<u8> },
    /// Answers with a QPN, or refuses.
    SidrRep { id: u32, status: u8, qpn: u32, service_id: u64, qkey: u32, private: Vec<u8> },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Req {
    pub(crate) local: u32,
    pub(crate) service_id: u64,
    pub(crate) guid: [u8; 8],
    pub(crate) qpn: u32,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    /// Code of the time within which the peer must answer.
    pub(crate) remote_timeout: u8,
    pub(crate) flow_control: bool,
    pub(crate) psn: u32,
    /// Code of the time within which this side answers.
    pub(crate) local_timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) pkey: u16,
    /// Path MTU code.
    pub(crate) mtu: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) max_retries: u8,
    pub(crate) srq: bool,
    /// Whether the connection uses XRC. The sender of the request is then the XRC initiator.
    pub(crate) is_xrc: bool,
    pub(crate) lids: [u16; 2],
    pub(crate) local_gid: [u8; 16],
    pub(crate) remote_gid: [u8; 16],
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    /// Code of the ACK timeout of the QPs.
    pub(crate) ack_timeout: u8,
    pub(crate) private: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rep {
    pub(crate) ids: Ids,
    pub(crate) qpn: u32,
    /// End-to-end context number. For an XRC connection, it has the QPN of the XRC target instead.
    pub(crate) eecn: u32,
    pub(crate) psn: u32,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: bool,
    pub(crate) rnr_retry: u8,
    pub(crate) srq: bool,
    pub(crate) guid: [u8; 8],
    pub(crate) private: Vec<u8>,
}

/// Attribute IDs of the messages, and the offsets of their private data.
mod attribute {
    pub(super) const REQ: (u16, usize) = (0x10, 140);
    pub(super) const MRA: (u16, usize) = (0x11, 10);
    pub(super) const REJ: (u16, usize) = (0x12, 84);
    pub(super) const REP: (u16, usize) = (0x13, 36);
    pub(super) const RTU: (u16, usize) = (0x14, 8);
    pub(super) const DREQ: (u16, usize) = (0x15, 12);
    pub(super) const DREP: (u16, usize) = (0x16, 8);
    pub(super) const SIDR_REQ: (u16, usize) = (0x17, 16);
    pub(super) const SIDR_REP: (u16, usize) = (0x18, 96);
}

/// Length of a message without the common header, in bytes.
const DATA: usize = MAD - HEADER;
/// Length of the private data of a REQ, in bytes.
pub(crate) const REQ_PRIVATE: usize = DATA - attribute::REQ.1;
/// Length of the private data of a REP, in bytes.
pub(crate) const REP_PRIVATE: usize = DATA - attribute::REP.1;
/// Length of the private data of a REJ, in bytes.
pub(crate) const REJ_PRIVATE: usize = DATA - attribute::REJ.1;
/// Length of the private data of a SIDR_REQ, in bytes.
pub(crate) const SIDR_REQ_PRIVATE: usize = DATA - attribute::SIDR_REQ.1;
/// Length of the private data of a SIDR_REP, in bytes.
pub(crate) const SIDR_REP_PRIVATE: usize = DATA - attribute::SIDR_REP.1;

/// Reads the fields of a message.
struct Reader<'a>(&'a [u8; DATA]);

impl Reader<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|i| self.0[at + i])
    }

    fn half(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.bytes(at))
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes(at))
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.bytes(at))
    }

    /// Returns the upper 24 bits of a word.
    fn number(&self, at: usize) -> u32 {
        self.word(at) >> 8
    }

    fn ids(&self) -> Ids {
        Ids { local: self.word(0), remote: self.word(4) }
    }

    fn private(&self, at: usize) -> Vec<u8> {
        self.0[at..].to_vec()
    }
}

/// Writes the fields of a message.
struct Writer([u8; DATA]);

impl Writer {
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        self.0[at..at + N].copy_from_slice(&bytes);
    }

    fn half(&mut self, at: usize, value: u16) {
        self.put(at, value.to_be_bytes());
    }

    fn word(&mut self, at: usize, value: u32) {
        self.put(at, value.to_be_bytes());
    }

    fn long(&mut self, at: usize, value: u64) {
        self.put(at, value.to_be_bytes());
    }

    /// Writes a 24-bit number followed by a byte.
    fn number(&mut self, at: usize, number: u32, byte: u8) {
        self.word(at, number << 8 | u32::from(byte));
    }

    fn ids(&mut self, ids: Ids) {
        self.word(0, ids.local);
        self.word(4, ids.remote);
    }

    fn private(&mut self, at: usize, bytes: &[u8]) {
        let len = bytes.len().min(DATA - at);
        self.0[at..at + len].copy_from_slice(&bytes[..len]);
    }
}

impl Mad {
    /// Parses a datagram. Returns `None` if it is not a supported message of the communication manager.
    pub(crate) fn parse(bytes: &[u8; MAD]) -> Option<Mad> {
        let (header, data) = bytes.split_first_chunk::<HEADER>()?;
        if header[..4] != [1, CLASS[0], CLASS[1], SEND] {
            return None;
        }
        let half = |at| u16::from_be_bytes([header[at], header[at + 1]]);
        let tid = u64::from_be_bytes(std::array::from_fn(|i| header[8 + i]));
        let message = Message::parse(half(16), &Reader(data.try_into().ok()?))?;
        Some(Mad { tid, message })
    }

    pub(crate) fn encode(&self) -> Box<[u8; MAD]> {
        let mut data = Writer([0; DATA]);
        let attribute = self.message.encode(&mut data);
        let mut bytes = Box::new([0; MAD]);
        bytes[..4].copy_from_slice(&[1, CLASS[0], CLASS[1], SEND]);
        bytes[8..16].copy_from_slice(&self.tid.to_be_bytes());
        bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
        bytes[HEADER..].copy_from_slice(&data.0);
        bytes
    }
}

impl Message {
    fn parse(number: u16, data: &Reader<'_>) -> Option<Message> {
        use attribute::{DREP, DREQ, MRA, REJ, REP, REQ, RTU, SIDR_REP, SIDR_REQ};
        let ids = data.ids();
        Some(match number {
            _ if number == REQ.0 => Message::Req(Box::new(Req::parse(data))),
            _ if number == MRA.0 => Message::Mra { ids, answered: data.0[8] >> 6, timeout: data.0[9] >> 3 },
            _ if number == REJ.0 => Message::Rej {
                ids,
                answered: data.0[8] >> 6,
                reason: data.half(10),
                private: data.private(REJ.1),
            },
            _ if number == REP.0 => Message::Rep(Box::new(Rep::parse(data))),
            _ if number == RTU.0 => Message::Rtu { ids },
            _ if number == DREQ.0 => Message::Dreq { ids, qpn: data.number(8) },
            _ if number == DREP.0 => Message::Drep { ids },
            _ if number == SIDR_REQ.0 => Message::SidrReq {
                id: data.word(0),
                pkey: data.half(4),
                service_id: data.long(8),
                private: data.private(SIDR_REQ.1),
            },
            _ if number == SIDR_REP.0 => Message::SidrRep {
                id: data.word(0),
                status: data.0[4],
                qpn: data.number(8),
                service_id: data.long(12),
                qkey: data.word(20),
                private: data.private(SIDR_REP.1),
            },
            _ => return None,
        })
    }

    /// Writes the message and returns its attribute ID.
    fn encode(&self, data: &mut Writer) -> u16 {
        use attribute::{DREP, DREQ, MRA, REJ, REP, REQ, RTU, SIDR_REP, SIDR_REQ};
        match self {
            Message::Req(req) => {
                req.encode(data);
                REQ.0
            }
            Message::Mra { ids, answered, timeout } => {
                data.ids(*ids);
                data.put(8, [answered << 6, timeout << 3]);
                MRA.0
            }
            Message::Rej { ids, answered, reason, private } => {
                data.ids(*ids);
                data.put(8, [answered << 6, 0]);
                data.half(10, *reason);
                data.private(REJ.1, private);
                REJ.0
            }
            Message::Rep(rep) => {
                rep.encode(data);
                REP.0
            }
            Message::Rtu { ids } => {
                data.ids(*ids);
                RTU.0
            }
            Message::Dreq { ids, qpn } => {
                data.ids(*ids);
                data.number(8, *qpn, 0);
                DREQ.0
            }
            Message::Drep { ids } => {
                data.ids(*ids);
                DREP.0
            }
            Message::SidrReq { id, pkey, service_id, private } => {
                data.word(0, *id);
                data.half(4, *pkey);
                data.long(8, *service_id);
                data.private(SIDR_REQ.1, private);
                SIDR_REQ.0
            }
            Message::SidrRep { id, status, qpn, service_id, qkey, private } => {
                data.word(0, *id);
                data.put(4, [*status]);
                data.number(8, *qpn, 0);
                data.long(12, *service_id);
                data.word(20, *qkey);
                data.private(SIDR_REP.1, private);
                SIDR_REP.0
            }
        }
    }
}

impl Req {
    fn parse(data: &Reader<'_>) -> Req {
        let (timeouts, psn) = (data.0[43], data.word(44));
        Req {
            local: data.word(0),
            service_id: data.long(8),
            guid: data.bytes(16),
            qpn: data.number(32),
            responder_resources: data.0[35],
            initiator_depth: data.0[39],
            remote_timeout: timeouts >> 3,
            flow_control: timeouts & 1 != 0,
            psn: psn >> 8,
            local_timeout: psn as u8 >> 3,
            retry_count: psn as u8 & 7,
            pkey: data.half(48),
            mtu: data.0[50] >> 4,
            rnr_retry: data.0[50] & 7,
            max_retries: data.0[51] >> 4,
            srq: data.0[51] & 8 != 0,
            is_xrc: timeouts >> 1 & 3 == EXTENDED && data.0[51] & 7 == XRC,
            lids: [data.half(52), data.half(54)],
            local_gid: data.bytes(56),
            remote_gid: data.bytes(72),
            traffic_class: data.0[92],
            hop_limit: data.0[93],
            ack_timeout: data.0[95] >> 3,
            private: data.private(attribute::REQ.1),
        }
    }

    fn encode(&self, data: &mut Writer) {
        data.word(0, self.local);
        data.long(8, self.service_id);
        data.put(16, self.guid);
        data.number(32, self.qpn, self.responder_resources);
        data.number(36, 0, self.initiator_depth);
        // Type 0 is a reliable connection.
        let (service, extended) = if self.is_xrc { (EXTENDED, XRC) } else { (0, 0) };
        data.number(40, 0, self.remote_timeout << 3 | service << 1 | u8::from(self.flow_control));
        data.number(44, self.psn, self.local_timeout << 3 | self.retry_count & 7);
        data.half(48, self.pkey);
        data.put(
            50,
            [self.mtu << 4 | self.rnr_retry & 7, self.max_retries << 4 | u8::from(self.srq) << 3 | extended],
        );
        data.half(52, self.lids[0]);
        data.half(54, self.lids[1]);
        data.put(56, self.local_gid);
        data.put(72, self.remote_gid);
        data.put(92, [self.traffic_class, self.hop_limit, 0, self.ack_timeout << 3]);
        data.private(attribute::REQ.1, &self.private);
    }
}

impl Rep {
    fn parse(data: &Reader<'_>) -> Rep {
        Rep {
            ids: data.ids(),
            qpn: data.number(12),
            eecn: data.number(16),
            psn: data.number(20),
            responder_resources: data.0[24],
            initiator_depth: data.0[25],
            flow_control: data.0[26] & 1 != 0,
            rnr_retry: data.0[27] >> 5,
            srq: data.0[27] & 0x10 != 0,
            guid: data.bytes(28),
            private: data.private(attribute::REP.1),
        }
    }

    fn encode(&self, data: &mut Writer) {
        data.ids(self.ids);
        data.number(12, self.qpn, 0);
        data.number(16, self.eecn, 0);
        data.number(20, self.psn, 0);
        let flags = self.rnr_retry << 5 | u8::from(self.srq) << 4;
        data.put(24, [self.responder_resources, self.initiator_depth, u8::from(self.flow_control), flags]);
        data.put(28, self.guid);
        data.private(attribute::REP.1, &self.private);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn private(len: usize) -> Vec<u8> {
        (0..len).map(|i| i as u8 | 1).collect()
    }

    fn req() -> Req {
        Req {
            local: 0x1122_3344,
            service_id: 0x0106_1c06,
            guid: [1, 2, 3, 4, 5, 6, 7, 8],
            qpn: 0xab_cdef,
            responder_resources: 3,
            initiator_depth: 4,
            remote_timeout: 17,
            flow_control: true,
            psn: 0x12_3456,
            local_timeout: 18,
            retry_count: 7,
            pkey: 0xffff,
            mtu: 5,
            rnr_retry: 6,
            max_retries: 15,
            srq: true,
            is_xrc: false,
            lids: [0xffff, 1],
            local_gid: [9; 16],
            remote_gid: [10; 16],
            traffic_class: 2,
            hop_limit: 64,
            ack_timeout: 19,
            private: private(REQ_PRIVATE),
        }
    }

    /// Returns one message of each kind.
    pub(crate) fn messages() -> Vec<Message> {
        let ids = Ids { local: 5, remote: 6 };
        let rep = Rep {
            ids,
            qpn: 0x77_8899,
            eecn: 0x11_2233,
            psn: 0x66_5544,
            responder_resources: 1,
            initiator_depth: 2,
            flow_control: true,
            rnr_retry: 7,
            srq: true,
            guid: [7; 8],
            private: private(REP_PRIVATE),
        };
        vec![
            Message::Req(Box::new(req())),
            Message::Req(Box::new(Req { is_xrc: true, ..req() })),
            Message::Mra { ids, answered: answered::REP, timeout: 24 },
            Message::Rej { ids, answered: answered::NONE, reason: 28, private: private(REJ_PRIVATE) },
            Message::Rep(Box::new(rep)),
            Message::Rtu { ids },
            Message::Dreq { ids, qpn: 0xfe_dcba },
            Message::Drep { ids },
            Message::SidrReq { id: 1, pkey: 0xffff, service_id: 2, private: private(SIDR_REQ_PRIVATE) },
            Message::SidrRep {
                id: 1,
                status: sidr_status::REJECTED,
                qpn: 3,
                service_id: 4,
                qkey: 0x0123_4567,
                private: private(SIDR_REP_PRIVATE),
            },
        ]
    }

    #[test]
    fn messages_round_trip() {
        for message in messages() {
            let mad = Mad { tid: 0x0102_0304_0506_0708, message };
            assert_eq!(Mad::parse(&mad.encode()), Some(mad));
        }
    }

    /// Compares with the offsets in the tables of the specification, counted by hand.
    #[test]
    fn a_request_by_hand() {
        let bytes = Mad { tid: 1, message: Message::Req(Box::new(req())) }.encode();
        assert_eq!(bytes[..4], [1, 7, 2, 3]);
        assert_eq!(bytes[16..18], [0, 0x10]);
        let data = &bytes[24..];
        assert_eq!(data[..4], [0x11, 0x22, 0x33, 0x44]);
        assert_eq!(data[32..36], [0xab, 0xcd, 0xef, 3]);
        assert_eq!(data[40..48], [0, 0, 0, 17 << 3 | 1, 0x12, 0x34, 0x56, 18 << 3 | 7]);
        assert_eq!(data[48..52], [0xff, 0xff, 5 << 4 | 6, 15 << 4 | 8]);
        assert_eq!(data[92..96], [2, 64, 0, 19 << 3]);
        assert_eq!((data.len(), data[140..].len()), (232, 92));
        let extended =
            Mad { tid: 1, message: Message::Req(Box::new(Req { is_xrc: true, ..req() })) }.encode();
        assert_eq!((extended[24 + 43], extended[24 + 51]), (17 << 3 | 3 << 1 | 1, 15 << 4 | 8 | 1));
    }

    #[test]
    fn other_datagrams_are_ignored() {
        let good = Mad { tid: 1, message: Message::Rtu { ids: Ids::default() } }.encode();
        for at in [0, 1, 2, 3, 16, 17] {
            let mut bytes = good.clone();
            bytes[at] ^= 0x80;
            assert_eq!(Mad::parse(&bytes), None, "byte {at}");
        }
    }
}
