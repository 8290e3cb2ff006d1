//! Determines in which order WRITEs of a QP reach memory: as chosen by firmware, and as allowed by memory keys.
//!
//! With adaptive routing, packets arrive out of order, and a NIC places the data of READs and WRITEs as it arrives.
//! Firmware may enable that on its own when a QP connects, so every connection checks with QUERY_QP. Atomics still wait
//! for earlier WRITEs.
//!
//! A relaxed key lets the PCIe bus reorder WRITEs as well. In that case `quiet` needs an additional READ.

use rushmem_config::{Ordering, RelaxedOrdering};
use rushmem_error::{Error, NicError, Result};
use rushmem_mlx5::prm::caps::{GeneralCap2, HcaCap};
use rushmem_mlx5::prm::qp::QpContext;

use super::Shape;
use crate::provider::{NicKind, Provider, capabilities};

/// The WRITE ordering that `INIT2RTR_QP` requests for a QP.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestedOrder {
    wanted: Ordering,
    /// Whether the NIC accepts an ordering forced by the QP context.
    can_force: bool,
}

impl RequestedOrder {
    /// Returns the request for the ordering `wanted` in the settings.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if the settings demand out-of-order placement and the NIC cannot do it.
    /// - The error of a capability query that the NIC refuses.
    pub(super) fn new(nic: &dyn Provider, wanted: Ordering) -> Result<Self> {
        // The choice is left to firmware, so no capability is needed.
        if wanted == Ordering::Auto {
            return Ok(Self { wanted, can_force: false });
        }
        let general: HcaCap = capabilities(nic)?;
        let can_force = general.hca_cap_2 && capabilities::<GeneralCap2>(nic)?.dp_ordering_force;
        if wanted == Ordering::OutOfOrder && !general.dp_ordering_ooo_rw_rc {
            return Err(Error::Unavailable {
                what: format!("out-of-order placement by {}", nic.name()),
                why: "the NIC lacks it; set RUSHMEM_ORDERING=auto".into(),
            });
        }
        Ok(Self { wanted, can_force })
    }

    /// Returns `context` with the requested ordering, for `INIT2RTR_QP`.
    pub(super) fn apply(self, context: QpContext) -> QpContext {
        QpContext {
            dp_ordering_0: self.wanted == Ordering::OutOfOrder,
            dp_ordering_force: self.can_force,
            ..context
        }
    }

    /// Returns whether WRITEs may land out of order. `context` is that of a connected QP of NIC `nic`.
    ///
    /// # Errors
    /// - [`NicError::Order`] if the ordering is not the requested one, or if atomics may pass WRITEs.
    pub(super) fn unordered(self, nic: &str, context: &QpContext) -> Result<bool, NicError> {
        let wrong = |kept, remedy| Err(NicError::Order { nic: nic.into(), kept, remedy });
        // `dp_ordering_1` lets even atomics pass WRITEs. Signals are atomics after the data, so kernels could not use
        // such a QP.
        match (context.dp_ordering_1, context.dp_ordering_0) {
            (true, _) => return wrong("no messages", "ibta"),
            (false, true) if self.wanted == Ordering::Ibta => return wrong("only atomics", "auto"),
            _ => {}
        }
        Ok(context.dp_ordering_0)
    }
}

/// Returns whether puts and gets through a NIC use relaxed keys, which let the PCIe bus reorder their data.
///
/// By default, they do where `quiet` posts a READ anyway, which is the case if a PE has several NICs. The software
/// ConnectX does not profit from such keys.
///
/// # Errors
/// - [`Error::Unavailable`] if the settings demand such keys and the NIC does not support them.
/// - The error of a capability query that the NIC refuses.
pub(super) fn wants_relaxed_keys(nic: &dyn Provider, shape: &Shape) -> Result<bool> {
    let is_free = shape.rails > 1 && nic.port().kind == NicKind::Hardware;
    let can_relax = capabilities::<HcaCap>(nic)?.relaxed_ordering_write;
    choose(shape.relaxed_ordering, is_free, can_relax).ok_or_else(|| Error::Unavailable {
        what: format!("relaxed ordering of data by {}", nic.name()),
        why: "the NIC lacks it; set RUSHMEM_RELAXED_ORDERING=auto".into(),
    })
}

/// Returns whether to use relaxed keys, or `None` if the settings demand them and the NIC lacks them. `is_free` means
/// that they cost no additional READ.
fn choose(wanted: RelaxedOrdering, is_free: bool, can_relax: bool) -> Option<bool> {
    match wanted {
        RelaxedOrdering::On => can_relax.then_some(true),
        RelaxedOrdering::Auto => Some(is_free && can_relax),
        RelaxedOrdering::Off => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rushmem_softnic::{self as softnic, Nic};

    use super::*;
    use crate::provider::Soft;

    fn request(wanted: Ordering) -> RequestedOrder {
        let nic = Soft::new(Arc::new(Nic::start(softnic::Config::default()).unwrap()));
        RequestedOrder::new(&nic, wanted).unwrap()
    }

    #[test]
    fn requests_follow_the_setting() {
        for (wanted, bits) in [
            (Ordering::Auto, (false, false)),
            (Ordering::Ibta, (false, true)),
            (Ordering::OutOfOrder, (true, true)),
        ] {
            let context = request(wanted).apply(QpContext::default());
            assert_eq!((context.dp_ordering_0, context.dp_ordering_force), bits, "{wanted:?}");
        }
    }

    #[test]
    fn relaxed_keys_follow_the_setting_and_the_nic() {
        use RelaxedOrdering::{Auto, Off, On};
        for (wanted, is_free, can_relax, choice) in [
            (On, false, true, Some(true)),
            (On, true, false, None),
            (Auto, true, true, Some(true)),
            (Auto, true, false, Some(false)),
            (Auto, false, true, Some(false)),
            (Off, true, true, Some(false)),
        ] {
            assert_eq!(choose(wanted, is_free, can_relax), choice, "{wanted:?} {is_free} {can_relax}");
        }
    }

    #[test]
    fn refuses_orders_that_kernels_cannot_use() {
        let of =
            |dp_ordering_0, dp_ordering_1| QpContext { dp_ordering_0, dp_ordering_1, ..QpContext::default() };
        let answer = |wanted, context| request(wanted).unordered("mlx5_9", &context);
        for wanted in [Ordering::Auto, Ordering::OutOfOrder] {
            assert!(!answer(wanted, of(false, false)).unwrap() && answer(wanted, of(true, false)).unwrap());
        }
        assert!(!answer(Ordering::Ibta, of(false, false)).unwrap());
        let error = answer(Ordering::Ibta, of(true, false)).unwrap_err().to_string();
        assert_eq!(error, "mlx5_9 keeps only atomics of a QP in order; set RUSHMEM_ORDERING=auto");
        for dp_ordering_0 in [false, true] {
            let error = answer(Ordering::Auto, of(dp_ordering_0, true)).unwrap_err().to_string();
            assert_eq!(error, "mlx5_9 keeps no messages of a QP in order; set RUSHMEM_ORDERING=ibta");
        }
    }
}
