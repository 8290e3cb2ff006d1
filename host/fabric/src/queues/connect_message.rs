//! Encodes and decodes the messages with which two PEs connect their QPs.
//!
//! A message about a QP has 36 bytes, or 49 if it names a QP for the first exchange; one about a failure has a text instead
//! of the QP. Numbers are little-endian.

use super::rail::QpAddress;

/// First byte of every connect message. Messages for other subsystems start with a different byte.
const TAG: u8 = 0xc0;
/// Bit of a message's second byte: the sender's QP accepts packets.
const READY: u8 = 1;
const UNORDERED: u8 = 2;
const FAILED: u8 = 4;
/// Bit of a message's second byte: the address of the QP for the first exchange follows.
const TRIAL: u8 = 8;
/// Length of a message's header in bytes: tag, flags, epoch and set.
const HEAD: usize = 14;
/// Length of a QP's address in bytes.
const ADDRESS: usize = 13;
/// Length of a [`ConnectionPlace`] in bytes.
const PLACE: usize = 9;
/// Maximum length of a failure's reason, in bytes. Longer texts are truncated.
const MAX_CAUSE_BYTES: usize = 4096;

/// A message about the connection of the two PEs' QPs in one QP set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectMessage {
    /// Number of resets at the sender. Messages from an epoch other than the receiver's are discarded.
    pub(super) epoch: u64,
    pub(super) set: u32,
    pub(super) status: QpStatus,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QpStatus {
    /// The address and state of the sender's QP.
    Qp {
        address: QpAddress,
        ready: bool,
        /// Whether WRITEs from or to the sender's QP may land out of order. Valid only if `ready`.
        unordered: bool,
        /// The sender's QP for the first exchange, if one of the NICs refuses loopback.
        trial: Option<QpAddress>,
        place: ConnectionPlace,
    },
    /// The sender cannot connect the QP, or has lost it.
    Failed { why: String },
}

impl QpStatus {
    /// Returns the status of a QP that does not accept packets yet.
    pub(super) fn not_ready(address: QpAddress, trial: Option<QpAddress>, place: ConnectionPlace) -> Self {
        // Whether WRITEs are ordered is known only once the QP is connected; the `ready` message says so.
        Self::Qp { address, ready: false, unordered: false, trial, place }
    }
}

/// Which connection of a QP a message is about, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionPlace {
    /// Number of connections that have failed before this one.
    pub(super) number: u32,
    /// Index of the sender's NIC.
    pub(super) nic: u8,
    /// Number of messages, modulo 2^24, that the sender's NIC has executed over the previous connection.
    pub(super) executed: u32,
}

/// Returns the longest prefix of `text` that has at most `limit` bytes.
pub(super) fn cut(text: &str, limit: usize) -> &str {
    let end = (0..=text.len().min(limit)).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

fn encode_address(QpAddress { qpn, psn, ece, log_responses }: QpAddress) -> [u8; ADDRESS] {
    let mut bytes = [0; ADDRESS];
    let words = [qpn, psn, ece].map(u32::to_le_bytes);
    let all = words.as_flattened().iter().chain([&log_responses]);
    bytes.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
    bytes
}

fn decode_address(bytes: &[u8; ADDRESS]) -> QpAddress {
    let [a, b, c, d, e, f, g, h, i, j, k, l, log_responses] = *bytes;
    let [qpn, psn, ece] = [[a, b, c, d], [e, f, g, h], [i, j, k, l]].map(u32::from_le_bytes);
    QpAddress { qpn, psn, ece, log_responses }
}

fn encode_place(ConnectionPlace { number, nic, executed }: ConnectionPlace) -> [u8; PLACE] {
    let ([a, b, c, d], [e, f, g, h]) = (number.to_le_bytes(), executed.to_le_bytes());
    [a, b, c, d, nic, e, f, g, h]
}

fn decode_place(&[a, b, c, d, nic, e, f, g, h]: &[u8; PLACE]) -> ConnectionPlace {
    let (number, executed) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    ConnectionPlace { number, nic, executed }
}

impl ConnectMessage {
    /// Returns which of the QP's connections the message concerns: 0 is the first. A failure concerns all of them, and yields 0.
    pub(super) fn number(&self) -> u32 {
        match self.status {
            QpStatus::Qp { place, .. } => place.number,
            QpStatus::Failed { .. } => 0,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let (bits, rest) = match &self.status {
            QpStatus::Qp { address, ready, unordered, trial, place } => {
                let bits = [(*ready, READY), (*unordered, UNORDERED), (trial.is_some(), TRIAL)];
                let bits = bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum();
                let addresses = [Some(*address), *trial].into_iter().flatten().flat_map(encode_address);
                (bits, addresses.chain(encode_place(*place)).collect())
            }
            QpStatus::Failed { why } => (FAILED, cut(why, MAX_CAUSE_BYTES).as_bytes().to_vec()),
        };
        [&[TAG, bits][..], &self.epoch.to_le_bytes(), &self.set.to_le_bytes(), &rest].concat()
    }

    /// Decodes a message. Returns `None` if `bytes` are not a connect message.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[TAG, bits, ref head @ ..], rest) = bytes.split_first_chunk::<HEAD>()? else { return None };
        let (epoch, set) = head.split_first_chunk::<8>()?;
        let (epoch, set) = (u64::from_le_bytes(*epoch), u32::from_le_bytes(set.try_into().ok()?));
        let status = match bits {
            FAILED if rest.len() <= MAX_CAUSE_BYTES => {
                QpStatus::Failed { why: String::from_utf8(rest.to_vec()).ok()? }
            }
            bits if bits & !(READY | UNORDERED | TRIAL) == 0 => {
                let (address, rest) = rest.split_first_chunk()?;
                let (rest, place) = rest.split_last_chunk::<PLACE>()?;
                let trial = match (bits & TRIAL, rest) {
                    (0, []) => None,
                    (TRIAL, rest) => Some(decode_address(rest.try_into().ok()?)),
                    _ => return None,
                };
                QpStatus::Qp {
                    address: decode_address(address),
                    ready: bits & READY != 0,
                    unordered: bits & UNORDERED != 0,
                    trial,
                    place: decode_place(place),
                }
            }
            _ => return None,
        };
        Some(Self { epoch, set, status })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn status() -> impl Strategy<Value = QpStatus> {
        let address = || {
            (any::<[u32; 3]>(), any::<u8>()).prop_map(|([qpn, psn, ece], log_responses)| QpAddress {
                qpn,
                psn,
                ece,
                log_responses,
            })
        };
        let place = any::<(u32, u8, u32)>();
        let place = place.prop_map(|(number, nic, executed)| ConnectionPlace { number, nic, executed });
        let fields = (address(), any::<[bool; 2]>(), proptest::option::of(address()), place);
        let qp = fields.prop_map(|(address, [ready, unordered], trial, place)| QpStatus::Qp {
            address,
            ready,
            unordered,
            trial,
            place,
        });
        prop_oneof![qp, ".{0,40}".prop_map(|why| QpStatus::Failed { why })]
    }

    proptest! {
        #[test]
        fn connect_messages_round_trip(epoch: u64, set: u32, status in status()) {
            let message = ConnectMessage { epoch, set, status };
            let bytes = message.encode();
            prop_assert_eq!(ConnectMessage::decode(&bytes), Some(message.clone()));
            if let QpStatus::Qp { trial, .. } = message.status {
                prop_assert_eq!(bytes.len(), if trial.is_some() { 49 } else { 36 });
                for wrong in [&bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat()] {
                    prop_assert_eq!(ConnectMessage::decode(wrong), None);
                }
            }
        }

        #[test]
        fn decoded_bytes_encode_to_themselves(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(message) = ConnectMessage::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }

    #[test]
    fn long_causes_are_truncated() {
        let status = QpStatus::Failed { why: "ü".repeat(MAX_CAUSE_BYTES) };
        let bytes = ConnectMessage { epoch: 1, set: 2, status }.encode();
        assert_eq!(bytes.len(), HEAD + MAX_CAUSE_BYTES);
        assert!(ConnectMessage::decode(&bytes).is_some());
    }
}
