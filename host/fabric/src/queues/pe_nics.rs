//! Descriptions of the NICs of a PE, exchanged in the allgather at start-up.
//!
//! Numbers are little-endian. Texts have a two-byte length prefix.

use rushmem_config::Partition;

use super::connect_message::cut;
use super::dc::TargetAddress;
use super::level::RailLevel;
use super::rail::NicInfo;
use crate::provider::{LinkLayer, NicKind, PortAddress};

/// Maximum length of a text in a description, in bytes. Longer texts are truncated.
const MAX_TEXT_BYTES: usize = 1024;

mod bits {
    pub(super) const HARDWARE: u16 = 1;
    pub(super) const INFINIBAND: u16 = 2;
    pub(super) const EARLY_ACKS: u16 = 4;
    pub(super) const CAN_FLUSH: u16 = 8;
    pub(super) const QUEUES_ON_GPU: u16 = 16;
    pub(super) const HEAP_ON_GPU: u16 = 32;
    pub(super) const CPU_RINGS: u16 = 64;
    pub(super) const RELAXED_KEYS: u16 = 128;
    pub(super) const NO_RECORD: u16 = 256;
}

/// Describes the NICs of a PE, one per rail. Sent to all other PEs during start-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeNics {
    pub rails: Vec<NicInfo>,
}

impl PeNics {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.rails.len() as u8];
        self.rails.iter().for_each(|rail| put_nic(&mut bytes, rail));
        bytes
    }

    /// Decodes a description from [`encode`](Self::encode). Returns `None` if `bytes` are malformed.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = bytes;
        let [rails] = take(&mut from)?;
        let rails = (0..rails).map(|_| take_nic(&mut from)).collect::<Option<_>>()?;
        from.is_empty().then_some(Self { rails })
    }

    /// Returns whether kernels of peers must read back to learn that their data is in this PE's memory, because a NIC
    /// of the PE acknowledges data early and cannot flush.
    pub fn needs_read_backs(&self) -> bool {
        self.rails.iter().any(|rail| rail.early_acks && !rail.can_flush)
    }

    /// Returns the description of a PE with a single rail at `level`.
    #[cfg(test)]
    fn sample(level: super::RailLevel) -> Self {
        let port = crate::provider::PortAddress {
            kind: level.kind,
            link: level.link,
            number: 1,
            gid: [0; 16],
            mac: [0; 6],
            lid: 1,
            partition: rushmem_config::Partition::DEFAULT,
            mtu: 4096,
        };
        Self {
            rails: vec![NicInfo {
                port,
                rkey: 0,
                strict_rkey: 0,
                early_acks: true,
                can_flush: true,
                target: None,
                level,
            }],
        }
    }
}

fn put_nic(to: &mut Vec<u8>, nic: &NicInfo) {
    let NicInfo { port, rkey, strict_rkey, early_acks, can_flush, target, level } = nic;
    let flags = [
        (port.kind == NicKind::Hardware, bits::HARDWARE),
        (port.link == LinkLayer::InfiniBand, bits::INFINIBAND),
        (*early_acks, bits::EARLY_ACKS),
        (*can_flush, bits::CAN_FLUSH),
        (level.queues_on_gpu, bits::QUEUES_ON_GPU),
        (level.heap_on_gpu, bits::HEAP_ON_GPU),
        (level.cpu_rings, bits::CPU_RINGS),
        (level.relaxed_keys, bits::RELAXED_KEYS),
        (level.no_record, bits::NO_RECORD),
    ];
    let flags: u16 = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum();
    to.extend(flags.to_le_bytes());
    to.push(port.number);
    to.extend(port.gid);
    to.extend(port.mac);
    to.extend(port.lid.to_le_bytes());
    to.extend(port.partition.0.to_le_bytes());
    // 0 stands for an unknown rate.
    for number in [port.mtu, *rkey, *strict_rkey, level.gbps.unwrap_or(0)] {
        to.extend(number.to_le_bytes());
    }
    // A key of 0 stands for no target.
    let TargetAddress { dctn, key } = target.unwrap_or(TargetAddress { dctn: 0, key: 0 });
    to.extend(dctn.to_le_bytes());
    to.extend(key.to_le_bytes());
    put_text(to, &level.nic);
    let steps = &level.steps[..level.steps.len().min(u8::MAX.into())];
    to.push(steps.len() as u8);
    steps.iter().for_each(|step| put_text(to, step));
}

fn take_nic(from: &mut &[u8]) -> Option<NicInfo> {
    let (flags, [number]) = (u16::from_le_bytes(take(from)?), take(from)?);
    let is_set = |bit: u16| flags & bit != 0;
    let kind = if is_set(bits::HARDWARE) { NicKind::Hardware } else { NicKind::Software };
    let link = if is_set(bits::INFINIBAND) { LinkLayer::InfiniBand } else { LinkLayer::Ethernet };
    let (gid, mac) = (take(from)?, take(from)?);
    let (lid, partition) = (u16::from_le_bytes(take(from)?), Partition(u16::from_le_bytes(take(from)?)));
    let mut word = || Some(u32::from_le_bytes(take(from)?));
    let (mtu, rkey, strict_rkey, gbps) = (word()?, word()?, word()?, word()?);
    let (dctn, key) = (u32::from_le_bytes(take(from)?), u64::from_le_bytes(take(from)?));
    let target = Some(TargetAddress { dctn, key }).filter(|target| target.key != 0);
    let nic = take_text(from)?;
    let [steps] = take(from)?;
    let level = RailLevel {
        nic,
        kind,
        link,
        gbps: Some(gbps).filter(|&gbps| gbps != 0),
        queues_on_gpu: is_set(bits::QUEUES_ON_GPU),
        heap_on_gpu: is_set(bits::HEAP_ON_GPU),
        cpu_rings: is_set(bits::CPU_RINGS),
        no_record: is_set(bits::NO_RECORD),
        relaxed_keys: is_set(bits::RELAXED_KEYS),
        steps: (0..steps).map(|_| take_text(from)).collect::<Option<_>>()?,
    };
    let port = PortAddress { kind, link, number, gid, mac, lid, partition, mtu };
    let (early_acks, can_flush) = (is_set(bits::EARLY_ACKS), is_set(bits::CAN_FLUSH));
    Some(NicInfo { port, rkey, strict_rkey, early_acks, can_flush, target, level })
}

fn put_text(to: &mut Vec<u8>, text: &str) {
    let text = cut(text, MAX_TEXT_BYTES);
    to.extend((text.len() as u16).to_le_bytes());
    to.extend(text.as_bytes());
}

fn take_text(from: &mut &[u8]) -> Option<String> {
    let bytes = u16::from_le_bytes(take(from)?);
    let text = from.split_off(..usize::from(bytes))?;
    String::from_utf8(text.to_vec()).ok()
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pe(kind: NicKind, gbps: Option<u32>, steps: &[&str]) -> PeNics {
        let is_hardware = kind == NicKind::Hardware;
        let level = RailLevel {
            nic: "mlx5_3 port 1".into(),
            kind,
            link: if is_hardware { LinkLayer::InfiniBand } else { LinkLayer::Ethernet },
            gbps,
            queues_on_gpu: is_hardware,
            heap_on_gpu: is_hardware,
            cpu_rings: !is_hardware,
            no_record: is_hardware,
            relaxed_keys: is_hardware,
            steps: steps.iter().map(|&step| step.into()).collect(),
        };
        let mut pe = PeNics::sample(level);
        pe.rails[0].port.gid = std::array::from_fn(|i| i as u8);
        (pe.rails[0].rkey, pe.rails[0].strict_rkey) = (0x1234_5678, u32::MAX);
        pe.rails[0].target = is_hardware.then_some(TargetAddress { dctn: 0xab_cdef, key: u64::MAX });
        pe
    }

    #[test]
    fn descriptions_round_trip() {
        for pe in [
            PeNics { rails: Vec::new() },
            pe(NicKind::Software, None, &[]),
            pe(NicKind::Hardware, Some(400), &["queues are in host memory", "ü"]),
        ] {
            let bytes = pe.encode();
            assert_eq!(PeNics::decode(&bytes), Some(pe));
            for end in 0..bytes.len() {
                assert_eq!(PeNics::decode(&bytes[..end]), None, "{end} bytes");
            }
            assert_eq!(PeNics::decode(&[&bytes[..], &[0]].concat()), None);
        }
    }

    #[test]
    fn long_steps_are_truncated() {
        let bytes = pe(NicKind::Software, None, &[&"ü".repeat(MAX_TEXT_BYTES)]).encode();
        assert_eq!(PeNics::decode(&bytes).unwrap().rails[0].level.steps[0].len(), MAX_TEXT_BYTES);
    }

    #[test]
    fn fuzz_corpus() {
        let messages = [
            pe(NicKind::Software, None, &[]).encode(),
            pe(NicKind::Hardware, Some(400), &["queues are in host memory"]).encode(),
        ];
        rushmem_corpus::target!("..", "nics").messages(messages).run(20_000, |bytes| {
            if let Some(pe) = PeNics::decode(bytes) {
                assert_eq!(PeNics::decode(&pe.encode()), Some(pe));
            }
        });
    }
}
