//! What a NIC's firmware offers for QPs.

use rushmem_error::NicError;
use rushmem_mlx5::prm::caps::HcaCap;
use rushmem_mlx5::prm::qp::{ECE_VERSION_1, ServiceType};

use crate::provider::{Provider, capabilities};

/// log2 of the READs and atomics in flight per QP, if both NICs allow as many.
const LOG_READS: u8 = 4;

/// The limits and options of a NIC's QPs, from its capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QpLimits {
    negotiates_ece: bool,
    /// log2 of the READs and atomics in flight that a QP may have towards its peer.
    log_requests: u8,
    /// Like `log_requests`, for a DC initiator.
    log_dc_requests: u8,
    /// log2 of the READs and atomics in flight that a QP answers.
    pub(super) log_responses: u8,
}

impl QpLimits {
    /// # Errors
    /// The error of a capability query that the NIC refuses.
    pub(super) fn of(nic: &dyn Provider) -> Result<Self, NicError> {
        let general: HcaCap = capabilities(nic)?;
        Ok(Self {
            negotiates_ece: general.ece_support,
            log_requests: general.log_max_ra_req_qp.min(LOG_READS),
            log_dc_requests: general.log_max_ra_req_dc.min(LOG_READS),
            log_responses: general.log_max_ra_res_qp.min(LOG_READS),
        })
    }

    /// Returns the value of CREATE_QP that makes the NIC answer its ECE options, or 0 if it has none. A DC initiator has
    /// no single peer to agree with.
    pub(super) fn ece(self, service: ServiceType) -> u32 {
        if self.negotiates_ece && service == ServiceType::RC { ECE_VERSION_1 } else { 0 }
    }

    /// Returns log2 of the READs and atomics that a QP may have in flight towards a QP that answers `2^log_responses`.
    pub(super) fn log_requests(self, log_responses: u8) -> u8 {
        self.log_requests.min(log_responses)
    }

    /// Returns log2 of the READs and atomics that a DC initiator may have in flight. DC targets state no limit.
    pub(super) fn log_dc_requests(self) -> u8 {
        self.log_dc_requests
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rushmem_softnic::{Config, Nic};

    use super::*;
    use crate::provider::Soft;

    #[test]
    fn reads_in_flight_follow_both_nics() {
        let limits = |log_max_reads| {
            let nic = Nic::start(Config { log_max_reads, ..Config::default() }).unwrap();
            QpLimits::of(&Soft::new(Arc::new(nic))).unwrap()
        };
        let (few, many) = (limits(1), limits(7));
        assert_eq!((few.log_responses, many.log_responses), (1, LOG_READS));
        assert_eq!((few.log_requests(many.log_responses), many.log_requests(few.log_responses)), (1, 1));
        assert_eq!((many.log_requests(many.log_responses), few.log_dc_requests()), (LOG_READS, 1));
    }
}
