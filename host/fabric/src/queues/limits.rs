//! What a NIC's firmware offers for QPs.

use rushmem_error::NicError;
use rushmem_mlx5::prm::caps::HcaCap;
use rushmem_mlx5::prm::qp::{ECE_VERSION_1, ServiceType};

use crate::provider::{Provider, capabilities};

/// The limits and options of a NIC's QPs, from its capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QpLimits {
    negotiates_ece: bool,
}

impl QpLimits {
    /// # Errors
    /// The error of a capability query that the NIC refuses.
    pub(super) fn of(nic: &dyn Provider) -> Result<Self, NicError> {
        let general: HcaCap = capabilities(nic)?;
        Ok(Self { negotiates_ece: general.ece_support })
    }

    /// Returns the value of CREATE_QP that makes the NIC answer its ECE options, or 0 if it has none. A DC initiator has
    /// no single peer to agree with.
    pub(super) fn ece(self, service: ServiceType) -> u32 {
        if self.negotiates_ece && service == ServiceType::RC { ECE_VERSION_1 } else { 0 }
    }
}
