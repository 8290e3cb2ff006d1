//! The NICs of a PE, as the PEs describe them to each other.

use super::rail::NicInfo;

/// The NICs of a PE, which it sends to the other PEs at start.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct PeNics {
    pub(crate) rails: Vec<NicInfo>,
}

impl PeNics {
    /// Returns whether the PE cannot wait for data that its NICs have acknowledged. Kernels of its peers then read back.
    pub(crate) fn needs_read_backs(&self) -> bool {
        self.rails.iter().any(|rail| rail.early_acks && !rail.can_flush)
    }

    /// Returns a PE with one rail of this level.
    #[cfg(test)]
    pub(crate) fn sample(level: super::RailLevel) -> Self {
        let port = crate::provider::PortAddress {
            kind: level.kind,
            link: level.link,
            number: 1,
            gid: [0; 16],
            mac: [0; 6],
            lid: 1,
            partition: crate::config::Partition::DEFAULT,
            mtu: 4096,
        };
        Self {
            rails: vec![NicInfo { port, rkey: 0, strict_rkey: 0, early_acks: true, can_flush: true, level }],
        }
    }
}
