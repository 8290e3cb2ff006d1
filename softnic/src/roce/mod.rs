//! Encodes and parses RoCEv2 packets, which are the payload of UDP datagrams.
//!
//! A packet consists of a base transport header ([`Bth`]), the extension headers of its opcode ([`Ext`]), the payload
//! padded to four bytes, and the invariant CRC ([`icrc`]). Requests of an extended connection have the XRC header after
//! the BTH. See the InfiniBand Architecture Specification, volume 1, chapter 9; annex A14 for XRC; annex A17 for
//! RoCEv2.

pub(crate) mod icrc;
pub(crate) mod opcode;

pub(crate) use opcode::{Op, Service};

/// Length of the base transport header, in bytes.
pub(crate) const BTH: usize = 12;
/// Length of the XRC header, in bytes.
const XRC: usize = 4;
/// Length of the invariant CRC, in bytes.
pub(crate) const ICRC: usize = 4;
/// Largest payload of a packet in bytes, which is the largest path MTU.
pub(crate) const MAX_MTU: usize = 4096;
/// Maximum length of a packet's extension headers, in bytes.
pub(crate) const MAX_EXT: usize = XRC + 48;
/// Maximum length of a packet, in bytes.
pub(crate) const MAX_PACKET: usize = BTH + MAX_EXT + MAX_MTU + ICRC;
/// The UDP port of RoCEv2.
pub(crate) const PORT: u16 = 4791;

const PSN_MASK: u32 = 0xff_ffff;
/// P_Key of the default partition.
pub(crate) const DEFAULT_PKEY: u16 = 0xffff;

/// Whether QPs with these P_Keys may communicate: they must be in the same partition, and at least one must be a full
/// member (section 10.9.3).
pub(crate) fn pkeys_match(one: u16, other: u16) -> bool {
    (one ^ other) & 0x7fff == 0 && (one | other) & 0x8000 != 0
}

/// A 24-bit packet sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Psn(u32);

impl Psn {
    pub(crate) fn new(value: u32) -> Psn {
        Psn(value & PSN_MASK)
    }

    pub(crate) fn get(self) -> u32 {
        self.0
    }

    pub(crate) fn plus(self, n: u32) -> Psn {
        Psn::new(self.0.wrapping_add(n))
    }

    /// Returns how far `self` is ahead of `other`, or a negative distance. Correct if they are less than 2^23 apart.
    pub(crate) fn since(self, other: Psn) -> i32 {
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }
}

/// Base transport header and XRC header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bth {
    pub(crate) service: Service,
    pub(crate) op: Op,
    pub(crate) solicited: bool,
    pub(crate) pkey: u16,
    pub(crate) ack_req: bool,
    pub(crate) dest_qpn: u32,
    pub(crate) psn: Psn,
    /// SRQN in the XRC header of a request of an extended connection.
    pub(crate) srqn: Option<u32>,
}

impl Bth {
    /// Returns the length of both headers, in bytes.
    pub(crate) fn len(&self) -> usize {
        BTH + self.srqn.map_or(0, |_| XRC)
    }
}

/// RDMA extended transport header: the remote range of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reth {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) len: u32,
}

/// Datagram extended transport header: the sender and the Q_Key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deth {
    pub(crate) qkey: u32,
    pub(crate) source_qpn: u32,
}

/// Header of a packet that connects to a DCT: see `crate::transport::dc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connect {
    pub(crate) key: u64,
    /// Encoded path MTU that the initiator proposes, 1 to 5.
    pub(crate) mtu: u8,
    /// QPN of the initiator.
    pub(crate) source_qpn: u32,
    /// Sequence number by which the target distinguishes the connections of an initiator.
    pub(crate) sequence: u32,
}

/// The syndrome field of an acknowledgement: ACK, receiver not ready, or NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AethSyndrome {
    Ack,
    /// Receiver not ready. Contains the code of the time to wait.
    Rnr(u8),
    Nak(Nak),
    Unknown(u8),
}

/// Reason for a negative acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nak {
    Sequence,
    InvalidRequest,
    RemoteAccess,
    RemoteOperational,
}

/// "No credit information": the sender does no end-to-end flow control.
const NO_CREDITS: u8 = 0x1f;

impl AethSyndrome {
    /// Returns the reason for a refusal, or `None` for an acknowledgement.
    pub(crate) fn refusal(self) -> Option<&'static str> {
        Some(match self {
            AethSyndrome::Ack => return None,
            AethSyndrome::Rnr(_) => "receiver not ready",
            AethSyndrome::Nak(Nak::Sequence) => "packet sequence error",
            AethSyndrome::Nak(Nak::InvalidRequest) => "invalid request",
            AethSyndrome::Nak(Nak::RemoteAccess) => "remote access error",
            AethSyndrome::Nak(Nak::RemoteOperational) => "remote operational error",
            AethSyndrome::Unknown(_) => "unknown",
        })
    }

    fn to_byte(self) -> u8 {
        match self {
            AethSyndrome::Ack => NO_CREDITS,
            AethSyndrome::Rnr(timer) => 0x20 | (timer & 0x1f),
            AethSyndrome::Nak(Nak::Sequence) => 0x60,
            AethSyndrome::Nak(Nak::InvalidRequest) => 0x61,
            AethSyndrome::Nak(Nak::RemoteAccess) => 0x62,
            AethSyndrome::Nak(Nak::RemoteOperational) => 0x63,
            AethSyndrome::Unknown(byte) => byte,
        }
    }

    fn from_byte(byte: u8) -> AethSyndrome {
        match byte {
            0x00..=0x1f => AethSyndrome::Ack,
            0x20..=0x3f => AethSyndrome::Rnr(byte & 0x1f),
            0x60 => AethSyndrome::Nak(Nak::Sequence),
            0x61 => AethSyndrome::Nak(Nak::InvalidRequest),
            0x62 => AethSyndrome::Nak(Nak::RemoteAccess),
            0x63 => AethSyndrome::Nak(Nak::RemoteOperational),
            _ => AethSyndrome::Unknown(byte),
        }
    }
}

/// Acknowledgement extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aeth {
    pub(crate) syndrome: AethSyndrome,
    /// Number of messages that the responder has completed, 24 bits.
    pub(crate) msn: u32,
}

/// The extension headers of one packet, which follow the base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ext {
    None,
    Imm(u32),
    Reth(Reth),
    RethImm(Reth, u32),
    Deth(Deth),
    DethImm(Deth, u32),
    Aeth(Aeth),
    AtomicAck(Aeth, u64),
    /// Header of a standard 64-bit atomic request.
    Atomic {
        addr: u64,
        rkey: u32,
        swap_add: u64,
        compare: u64,
    },
    /// Header of a masked atomic request, for which InfiniBand defines no packet: see [`opcode`].
    Masked {
        addr: u64,
        rkey: u32,
        width: u32,
        operands: [u64; 4],
    },
    Connect(Connect),
    /// Accepts a dynamic connection: contains its sequence number and the QPN that serves it.
    Accept(Aeth, u32, u32),
    /// Closes a dynamic connection: contains its sequence number.
    Disconnect(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    pub(crate) bth: Bth,
    pub(crate) ext: Ext,
    pub(crate) payload: &'a [u8],
}

/// Why a packet could not be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadPacket {
    Short,
    Version,
    Opcode(u8),
    Padding,
}

/// The extension headers that an opcode has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExtKind {
    None,
    Imm,
    Reth,
    RethImm,
    Deth,
    DethImm,
    Aeth,
    AtomicAck,
    Atomic,
    Masked,
    Connect,
    Accept,
    Disconnect,
}

impl ExtKind {
    fn len(self) -> usize {
        match self {
            ExtKind::None => 0,
            ExtKind::Imm | ExtKind::Aeth | ExtKind::Disconnect => 4,
            ExtKind::Deth => 8,
            ExtKind::AtomicAck | ExtKind::DethImm | ExtKind::Accept => 12,
            ExtKind::Reth | ExtKind::Connect => 16,
            ExtKind::RethImm => 20,
            ExtKind::Atomic => 28,
            ExtKind::Masked => 48,
        }
    }
}

impl Ext {
    pub(crate) fn len(&self) -> usize {
        match self {
            Ext::None => ExtKind::None,
            Ext::Imm(_) => ExtKind::Imm,
            Ext::Reth(_) => ExtKind::Reth,
            Ext::RethImm(..) => ExtKind::RethImm,
            Ext::Deth(_) => ExtKind::Deth,
            Ext::DethImm(..) => ExtKind::DethImm,
            Ext::Aeth(_) => ExtKind::Aeth,
            Ext::AtomicAck(..) => ExtKind::AtomicAck,
            Ext::Atomic { .. } => ExtKind::Atomic,
            Ext::Masked { .. } => ExtKind::Masked,
            Ext::Connect(_) => ExtKind::Connect,
            Ext::Accept(..) => ExtKind::Accept,
            Ext::Disconnect(_) => ExtKind::Disconnect,
        }
        .len()
    }

    fn emit(&self, out: &mut [u8]) {
        match *self {
            Ext::None => {}
            Ext::Imm(imm) => put(out, 0, imm.to_be_bytes()),
            Ext::Reth(reth) => reth.emit(out),
            Ext::RethImm(reth, imm) => {
                reth.emit(out);
                put(out, 16, imm.to_be_bytes());
            }
            Ext::Deth(deth) => deth.emit(out),
            Ext::DethImm(deth, imm) => {
                deth.emit(out);
                put(out, 8, imm.to_be_bytes());
            }
            Ext::Aeth(aeth) => aeth.emit(out),
            Ext::AtomicAck(aeth, old) => {
                aeth.emit(out);
                put(out, 4, old.to_be_bytes());
            }
            Ext::Atomic { addr, rkey, swap_add, compare } => {
                put(out, 0, addr.to_be_bytes());
                put(out, 8, rkey.to_be_bytes());
                put(out, 12, swap_add.to_be_bytes());
                put(out, 20, compare.to_be_bytes());
            }
            Ext::Masked { addr, rkey, width, operands } => {
                put(out, 0, addr.to_be_bytes());
                put(out, 8, rkey.to_be_bytes());
                put(out, 12, width.to_be_bytes());
                for (i, operand) in operands.iter().enumerate() {
                    put(out, 16 + 8 * i, operand.to_be_bytes());
                }
            }
            Ext::Connect(connect) => connect.emit(out),
            Ext::Accept(aeth, sequence, qpn) => {
                aeth.emit(out);
                put(out, 4, sequence.to_be_bytes());
                put(out, 8, (qpn & 0xff_ffff).to_be_bytes());
            }
            Ext::Disconnect(sequence) => put(out, 0, sequence.to_be_bytes()),
        }
    }

    fn parse(kind: ExtKind, b: &[u8]) -> Ext {
        match kind {
            ExtKind::None => Ext::None,
            ExtKind::Imm => Ext::Imm(be32(b, 0)),
            ExtKind::Reth => Ext::Reth(Reth::parse(b)),
            ExtKind::RethImm => Ext::RethImm(Reth::parse(b), be32(b, 16)),
            ExtKind::Deth => Ext::Deth(Deth::parse(b)),
            ExtKind::DethImm => Ext::DethImm(Deth::parse(b), be32(b, 8)),
            ExtKind::Aeth => Ext::Aeth(Aeth::parse(b)),
            ExtKind::AtomicAck => Ext::AtomicAck(Aeth::parse(b), be64(b, 4)),
            ExtKind::Atomic => Ext::Atomic {
                addr: be64(b, 0),
                rkey: be32(b, 8),
                swap_add: be64(b, 12),
                compare: be64(b, 20),
            },
            ExtKind::Masked => Ext::Masked {
                addr: be64(b, 0),
                rkey: be32(b, 8),
                width: be32(b, 12),
                operands: [be64(b, 16), be64(b, 24), be64(b, 32), be64(b, 40)],
            },
            ExtKind::Connect => Ext::Connect(Connect::parse(b)),
            ExtKind::Accept => Ext::Accept(Aeth::parse(b), be32(b, 4), be32(b, 8) & 0xff_ffff),
            ExtKind::Disconnect => Ext::Disconnect(be32(b, 0)),
        }
    }
}

impl Reth {
    fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.addr.to_be_bytes());
        put(out, 8, self.rkey.to_be_bytes());
        put(out, 12, self.len.to_be_bytes());
    }

    fn parse(b: &[u8]) -> Reth {
        Reth { addr: be64(b, 0), rkey: be32(b, 8), len: be32(b, 12) }
    }
}

impl Deth {
    fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.qkey.to_be_bytes());
        put(out, 4, (self.source_qpn & 0xff_ffff).to_be_bytes());
    }

    fn parse(b: &[u8]) -> Deth {
        Deth { qkey: be32(b, 0), source_qpn: be32(b, 4) & 0xff_ffff }
    }
}

impl Connect {
    fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.key.to_be_bytes());
        put(out, 8, (u32::from(self.mtu) << 24 | self.source_qpn & 0xff_ffff).to_be_bytes());
        put(out, 12, self.sequence.to_be_bytes());
    }

    fn parse(b: &[u8]) -> Connect {
        let word = be32(b, 8);
        let (mtu, source_qpn) = ((word >> 24) as u8, word & 0xff_ffff);
        Connect { key: be64(b, 0), mtu, source_qpn, sequence: be32(b, 12) }
    }
}

impl Aeth {
    fn emit(&self, out: &mut [u8]) {
        put(out, 0, (u32::from(self.syndrome.to_byte()) << 24 | self.msn & PSN_MASK).to_be_bytes());
    }

    fn parse(b: &[u8]) -> Aeth {
        let word = be32(b, 0);
        Aeth { syndrome: AethSyndrome::from_byte((word >> 24) as u8), msn: word & PSN_MASK }
    }
}

/// Returns the length of a packet with `headers` bytes of headers and `payload` bytes of payload, including padding and
/// CRC.
pub(crate) fn packet_len(headers: usize, payload: usize) -> usize {
    headers + payload.next_multiple_of(4) + ICRC
}

/// Writes the headers and the padding of a packet that fills `out`, and returns the slice for its payload.
/// [`icrc::seal`] adds the CRC.
pub(crate) fn emit<'a>(bth: &Bth, ext: &Ext, payload: usize, out: &'a mut [u8]) -> &'a mut [u8] {
    let pad = payload.next_multiple_of(4) - payload;
    out[0] = bth.op.to_byte(bth.service);
    out[1] = u8::from(bth.solicited) << 7 | 1 << 6 | (pad as u8) << 4;
    put(out, 2, bth.pkey.to_be_bytes());
    put(out, 4, (bth.dest_qpn & 0xff_ffff).to_be_bytes());
    put(out, 8, (u32::from(bth.ack_req) << 31 | bth.psn.get()).to_be_bytes());
    if let Some(srqn) = bth.srqn {
        put(out, BTH, (srqn & 0xff_ffff).to_be_bytes());
    }
    let body = bth.len() + ext.len();
    ext.emit(&mut out[bth.len()..body]);
    out[body + payload..body + payload + pad].fill(0);
    &mut out[body..body + payload]
}

/// Parses a packet. Its CRC has been checked, and still follows the payload.
pub(crate) fn parse(bytes: &[u8]) -> Result<Packet<'_>, BadPacket> {
    if bytes.len() < BTH + ICRC {
        return Err(BadPacket::Short);
    }
    if bytes[1] & 0xf != 0 {
        return Err(BadPacket::Version);
    }
    let (service, op) = Op::from_byte(bytes[0]).ok_or(BadPacket::Opcode(bytes[0]))?;
    let has_srqn = service == Service::Xrc && !op.is_response();
    if has_srqn && bytes.len() < BTH + XRC + ICRC {
        return Err(BadPacket::Short);
    }
    let bth = Bth {
        service,
        op,
        solicited: bytes[1] & 0x80 != 0,
        pkey: u16::from_be_bytes([bytes[2], bytes[3]]),
        ack_req: bytes[8] & 0x80 != 0,
        dest_qpn: be32(bytes, 4) & 0xff_ffff,
        psn: Psn::new(be32(bytes, 8)),
        srqn: has_srqn.then(|| be32(bytes, BTH) & 0xff_ffff),
    };
    let kind = op.ext_kind(service);
    let body = &bytes[bth.len()..bytes.len() - ICRC];
    if body.len() < kind.len() {
        return Err(BadPacket::Short);
    }
    let (ext, padded) = body.split_at(kind.len());
    let pad = usize::from(bytes[1] >> 4 & 3);
    let Some(payload) = padded.len().checked_sub(pad) else { return Err(BadPacket::Padding) };
    if !padded.len().is_multiple_of(4) {
        return Err(BadPacket::Padding);
    }
    Ok(Packet { bth, ext: Ext::parse(kind, ext), payload: &padded[..payload] })
}

fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

fn be32(b: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&b[at..at + 4]);
    u32::from_be_bytes(word)
}

fn be64(b: &[u8], at: usize) -> u64 {
    u64::from(be32(b, at)) << 32 | u64::from(be32(b, at + 4))
}

#[cfg(test)]
mod tests;
