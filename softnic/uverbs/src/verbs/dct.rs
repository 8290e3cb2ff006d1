//! Dynamically connected targets (DCTs). Programs handle them as QPs. As in Linux, the adapter creates a DCT on the
//! transition to RTR.

use super::attributes::{answer, atomic_mode, merge};
use crate::abi::{self, access, driver_data, qp_attr, qp_state, qp_type};
use crate::attrs::Call;
use crate::device::PKEYS;
use crate::errno::Errno;
use crate::fault::Fault;
use crate::handles::Object;
use crate::inventory::{Kind, Record};
use crate::open_device::OpenDevice;
use crate::registry::Waiter;
use rushmem_mlx5::prm::dct::{CreateDct, DctContext, DestroyDct, DrainDct};
use rushmem_mlx5::prm::qp::Mtu;
use std::sync::Arc;

pub(crate) struct Dct {
    /// DCT number, once the adapter has created the DCT.
    pub(crate) dctn: Option<u32>,
    context: DctContext,
    state: u8,
    cap: abi::QpCap,
    failures: Option<Arc<Waiter>>,
    /// Attributes set by the program.
    attributes: abi::ModifyQp,
}

impl Object for Dct {
    fn record(&self) -> Option<Record> {
        Some(Record {
            subtype: qp_type::DRIVER as u8,
            state: self.state,
            pd: self.context.pd,
            cqns: [0, self.context.cqn],
            ..Record::new(Kind::Qp, self.dctn.unwrap_or(0))
        })
    }
}

impl Dct {
    /// Creates a DCT in state RESET. The three numbers are the PDN, the CQN and the SRQ number.
    pub(super) fn new(
        driver: &abi::DriverCreateQp,
        (pd, cqn, srqn_xrqn): (u32, u32, u32),
        failures: Option<Arc<Waiter>>,
        cap: abi::QpCap,
    ) -> Dct {
        let (user_index, dc_access_key) = (driver.uidx & 0xff_ffff, driver.sq_buf_addr);
        let context = DctContext { pd, cqn, srqn_xrqn, user_index, dc_access_key, ..DctContext::default() };
        let attributes = abi::ModifyQp::default();
        Dct { dctn: None, context, state: qp_state::RESET, cap, failures, attributes }
    }

    /// Returns the response to QUERY_QP.
    pub(super) fn describe(&self) -> abi::QueryQpResponse {
        let set = &self.attributes;
        abi::QueryQpResponse {
            dest: set.dest,
            cap: self.cap,
            qp_access_flags: set.qp_access_flags,
            pkey_index: set.pkey_index,
            qp_state: self.state,
            cur_qp_state: self.state,
            path_mtu: set.path_mtu,
            min_rnr_timer: set.min_rnr_timer,
            port_num: set.port_num,
            ..abi::QueryQpResponse::default()
        }
    }
}

/// Applies the program's attributes to a context.
fn context(before: DctContext, set: &abi::ModifyQp, has_atomics: bool, counter_set_id: u8) -> DctContext {
    let has = |flag| set.qp_access_flags & flag != 0;
    let atomics = has(access::REMOTE_ATOMIC) && has_atomics;
    DctContext {
        counter_set_id,
        atomic_mode: atomic_mode(atomics),
        rre: has(access::REMOTE_READ),
        rwe: has(access::REMOTE_WRITE),
        rae: atomics,
        min_rnr_nak: set.min_rnr_timer & 0x1f,
        tclass: set.dest.traffic_class,
        flow_label: set.dest.flow_label & 0xf_ffff,
        mtu: Mtu(set.path_mtu),
        port: set.port_num,
        pkey_index: set.pkey_index,
        my_addr_index: set.dest.sgid_index,
        hop_limit: set.dest.hop_limit,
        ..before
    }
}

/// Handles MODIFY_QP of a DCT.
pub(super) fn modify(
    opened: &mut OpenDevice,
    number: u64,
    request: &abi::ModifyQp,
    call: &Call,
) -> Result<(), Errno> {
    let mask = request.attr_mask;
    let dct = opened.handles.get::<Dct>(request.qp_handle)?;
    let attributes = merge(&dct.attributes, request);
    let required = match (dct.state, request.qp_state) {
        (qp_state::RESET, qp_state::INIT) => qp_attr::ACCESS_FLAGS | qp_attr::PKEY_INDEX | qp_attr::PORT,
        (qp_state::INIT, qp_state::RTR) => qp_attr::AV | qp_attr::PATH_MTU | qp_attr::MIN_RNR_TIMER,
        // There is no transition from RTR.
        _ => return Err(Errno::EINVAL),
    } | qp_attr::STATE;
    let is_known = attributes.port_num == 1 && usize::from(attributes.pkey_index) < PKEYS.len();
    if required & !mask != 0 || !is_known {
        return Err(Errno::EINVAL);
    }
    let mut dctn = dct.dctn;
    if request.qp_state == qp_state::RTR {
        let set = opened.session()?.adapter.counter_set;
        let context = context(dct.context, &attributes, !opened.device.has(Fault::NoAtomics), set);
        dctn = Some(opened.execute(&CreateDct { context, ..CreateDct::default() })?.dctn);
    }
    let dct = opened.handles.get_mut::<Dct>(request.qp_handle)?;
    (dct.dctn, dct.state, dct.attributes) = (dctn, request.qp_state, attributes);
    if call.has(driver_data::OUT) {
        let response = abi::DriverModifyQpResponse {
            response_length: size_of::<abi::DriverModifyQpResponse>() as u32,
            dctn: dctn.unwrap_or(0),
            ..abi::DriverModifyQpResponse::default()
        };
        call.output(driver_data::OUT, &response)?;
    }
    answer(number, call)
}

/// Handles QP destroy of a DCT.
pub(super) fn destroy(opened: &mut OpenDevice, call: &Call, handle: u32) -> Result<(), Errno> {
    if let Some(dctn) = opened.handles.get::<Dct>(handle)?.dctn {
        opened.execute(&DrainDct { dctn, ..DrainDct::default() })?;
        opened.execute(&DestroyDct { dctn, ..DestroyDct::default() })?;
    }
    let dct = opened.handles.remove::<Dct>(handle)?;
    call.output(1, &dct.failures.map_or(0, |waiter| waiter.finish()))
}
