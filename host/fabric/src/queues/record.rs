//! Decides whether kernels update a doorbell record before they ring a QP's doorbell.

use rushmem_config::DoorbellRecord;
use rushmem_error::{Error, Result};
use rushmem_mlx5::prm::caps::{GeneralCap2, HcaCap};

use super::Shape;
use crate::provider::{DoorbellForm, DoorbellWriter, NicKind, Provider, capabilities};

/// Returns whether the doorbells that `writer` writes include a doorbell record.
///
/// If a CPU thread writes, a record is used, because the thread delays each doorbell by more than the record costs. The
/// software ConnectX gains nothing from doorbells without a record: it accepts late records.
///
/// # Errors
/// - [`Error::Unavailable`] if the settings demand doorbells without a record, and the NIC or the writer needs one.
/// - The error of a capability query that the NIC refuses.
pub(super) fn doorbell_form(
    nic: &dyn Provider,
    shape: &Shape,
    writer: &DoorbellWriter,
) -> Result<DoorbellForm> {
    if shape.record == DoorbellRecord::On {
        return Ok(DoorbellForm::Record);
    }
    let is_free = nic.port().kind == NicKind::Hardware;
    let obstacle = if *writer != DoorbellWriter::Kernels {
        Some("a CPU thread writes its doorbells")
    } else if !offers(nic)? {
        Some("the NIC lacks it")
    } else {
        None
    };
    match (shape.record, obstacle) {
        (DoorbellRecord::Auto, None) if is_free => Ok(DoorbellForm::NoRecord),
        (DoorbellRecord::Auto, _) => Ok(DoorbellForm::Record),
        (_, None) => Ok(DoorbellForm::NoRecord),
        (_, Some(why)) => Err(Error::Unavailable {
            what: format!("doorbells without a record by {}", nic.name()),
            why: format!("{why}; set RUSHMEM_DOORBELL_RECORD=auto"),
        }),
    }
}

/// Returns whether the settings ask to try QPs without a doorbell record, and the NIC offers them.
///
/// # Errors
/// The error of a capability query that the NIC refuses.
pub(super) fn may_omit(nic: &dyn Provider, shape: &Shape) -> Result<bool> {
    Ok(shape.record == DoorbellRecord::Auto && nic.port().kind == NicKind::Hardware && offers(nic)?)
}

/// Returns whether a NIC supports QPs without a doorbell record.
fn offers(nic: &dyn Provider) -> Result<bool> {
    let general: HcaCap = capabilities(nic)?;
    Ok(general.hca_cap_2 && capabilities::<GeneralCap2>(nic)?.send_dbr_mode_no_dbr_ext)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rushmem_softnic::{self as softnic, Nic};

    use super::*;
    use crate::provider::Soft;
    use rushmem_config::Config;

    /// Returns the doorbell form for the setting `wanted`, on a NIC that supports doorbells without a record if
    /// `no_record`.
    fn form(wanted: DoorbellRecord, no_record: bool, writer: &DoorbellWriter) -> Result<DoorbellForm> {
        let nic = softnic::Config { no_record, ..softnic::Config::default() };
        let nic = Soft::new(Arc::new(Nic::start(nic).unwrap()));
        let mut config = Config::default();
        config.doorbell_record = wanted;
        doorbell_form(&nic, &Shape::new(&config, 2), writer)
    }

    #[test]
    fn software_connectx_omits_records_only_on_demand() {
        let kernels = DoorbellWriter::Kernels;
        for (wanted, expected) in [
            (DoorbellRecord::Auto, DoorbellForm::Record),
            (DoorbellRecord::On, DoorbellForm::Record),
            (DoorbellRecord::Off, DoorbellForm::NoRecord),
        ] {
            assert_eq!(form(wanted, true, &kernels).unwrap(), expected, "{wanted:?}");
        }
    }

    #[test]
    fn unmet_demand_names_the_obstacle() {
        let thread = DoorbellWriter::CpuThread { cause: None };
        for (no_record, writer, why) in [
            (false, DoorbellWriter::Kernels, "the NIC lacks it"),
            (true, thread.clone(), "a CPU thread writes its doorbells"),
        ] {
            let error = form(DoorbellRecord::Off, no_record, &writer).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("RUSHMEM_DOORBELL_RECORD=auto"), "{error}");
        }
        assert_eq!(form(DoorbellRecord::Auto, true, &thread).unwrap(), DoorbellForm::Record);
    }
}
