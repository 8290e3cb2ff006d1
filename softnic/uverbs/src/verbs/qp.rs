//! Queue pairs.

use super::cq::Cq;
use super::dct::{self, Dct};
use super::pd::Pd;
use super::srq::Srq;
use super::{core_in, core_out};
use crate::abi::{self, driver_data, qp_flag, qp_state, qp_type};
use crate::attrs::Call;
use crate::errno::Errno;
use crate::fault::Fault;
use crate::handles::Object;
use crate::inventory::{Kind, Record};
use crate::open_device::OpenDevice;
use crate::registry::{Registry, Waiter};
use crate::xrc_domain::{Opening, Target, Xrcd};
use rushmem_mlx5::prm::Command;
use rushmem_mlx5::prm::qp::{
    CreateQp, DestroyQp, QpContext, QpState, QueryQp, RqType, ServiceType, TS_DEFAULT, TS_FREE_RUNNING,
};
use std::sync::Arc;

pub(crate) struct Qp {
    pub(crate) qpn: u32,
    pub(crate) service: ServiceType,
    pd: u32,
    /// CQNs of the SQ and the RQ.
    cqns: [u32; 2],
    umems: [u32; 2],
    failures: Option<Arc<Waiter>>,
    cap: abi::QpCap,
    signal_all: bool,
    /// Attributes set by the program, for QUERY_QP.
    attributes: abi::ModifyQp,
    /// XRC target that this handle refers to, and the open XRC domain that it was created through.
    target: Option<(Arc<Target>, Arc<Opening>)>,
}

impl Object for Qp {
    fn record(&self) -> Option<Record> {
        let kind = match self.service {
            ServiceType::RC => qp_type::RC,
            ServiceType::UC => qp_type::UC,
            ServiceType::UD => qp_type::UD,
            ServiceType::XRC if self.is_target() => qp_type::XRC_TARGET,
            ServiceType::XRC => qp_type::XRC_INITIATOR,
            _ => qp_type::DRIVER,
        };
        let set = self.attributes();
        Some(Record {
            subtype: kind as u8,
            state: set.qp_state,
            pd: self.pd,
            peer: set.dest_qp_num,
            receive_psn: set.rq_psn,
            send_psn: set.sq_psn,
            cqns: self.cqns,
            ..Record::new(Kind::Qp, self.qpn)
        })
    }

    fn forget(&self, registry: &Registry) {
        if let Some(waiter) = &self.failures {
            registry.forget_qp(self.qpn, waiter);
        }
    }
}

impl Qp {
    /// Returns a handle of an XRC target.
    pub(super) fn of_target(target: Arc<Target>, opening: Arc<Opening>, failures: Option<Arc<Waiter>>) -> Qp {
        Qp {
            qpn: target.qpn,
            service: ServiceType::XRC,
            pd: 0,
            cqns: [0; 2],
            umems: [0; 2],
            failures,
            cap: abi::QpCap::default(),
            signal_all: false,
            attributes: abi::ModifyQp::default(),
            target: Some((target, opening)),
        }
    }

    /// Inserts the QP into the table and registers it for events. Returns its handle.
    pub(super) fn enter(self, opened: &mut OpenDevice) -> Result<u32, Errno> {
        if let Some(waiter) = &self.failures {
            opened.session()?.adapter.registry.listen_to_qp(self.qpn, Arc::clone(waiter));
        }
        opened.handles.insert(self)
    }

    /// Whether this is an XRC target.
    pub(super) fn is_target(&self) -> bool {
        self.target.is_some()
    }

    /// Executes a command on the QP.
    pub(super) fn execute<C: Command>(&self, opened: &OpenDevice, command: &C) -> Result<C::Output, Errno> {
        match &self.target {
            Some((target, _)) => target.execute(command),
            None => opened.execute(command),
        }
    }

    /// Returns the attributes set by programs.
    pub(super) fn attributes(&self) -> abi::ModifyQp {
        self.target.as_ref().map_or(self.attributes, |(target, _)| *target.attributes())
    }

    pub(super) fn set_attributes(&mut self, attributes: abi::ModifyQp) {
        match &self.target {
            Some((target, _)) => *target.attributes() = attributes,
            None => self.attributes = attributes,
        }
    }
}

/// Flag of a QP whose work requests are all signalled.
const CREATE_SIGNAL_ALL: u32 = 1 << 12;

/// Attribute IDs of QP creation.
mod attr {
    pub(super) const HANDLE: u16 = 0;
    pub(super) const XRCD: u16 = 1;
    pub(super) const PD: u16 = 2;
    pub(super) const SRQ: u16 = 3;
    pub(super) const SEND_CQ: u16 = 4;
    pub(super) const RECV_CQ: u16 = 5;
    pub(super) const USER_HANDLE: u16 = 7;
    pub(super) const CAP: u16 = 8;
    pub(super) const TYPE: u16 = 9;
    pub(super) const FLAGS: u16 = 10;
    pub(super) const ASYNC: u16 = 12;
    pub(super) const CAP_OUT: u16 = 13;
    pub(super) const NUMBER_OUT: u16 = 14;
}

/// Handles QP create.
pub(crate) fn create(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    if opened.device.has(Fault::VerbsQp) {
        return Err(Errno::ENOMEM);
    }
    let driver: abi::DriverCreateQp = call.input(driver_data::IN)?;
    let kind = call.input::<u64>(attr::TYPE)?;
    let service = match kind {
        qp_type::RC => ServiceType::RC,
        qp_type::UC => ServiceType::UC,
        qp_type::UD => ServiceType::UD,
        qp_type::XRC_INITIATOR | qp_type::XRC_TARGET => ServiceType::XRC,
        qp_type::DRIVER if driver.flags & qp_flag::TYPE_DCI != 0 => ServiceType::DCI,
        qp_type::DRIVER if driver.flags & qp_flag::TYPE_DCT != 0 => ServiceType::DCT,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let flags: u32 = call.optional(attr::FLAGS)?.unwrap_or(0);
    if flags & !CREATE_SIGNAL_ALL != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let user_handle: u64 = call.input(attr::USER_HANDLE)?;
    let failures = opened.asynchronous(call, attr::ASYNC)?;
    let failures = failures.map(|channel| Waiter::of_failures(channel, user_handle));
    if kind == qp_type::XRC_TARGET {
        return create_xrc_target(opened, call, failures);
    }
    let srqn = match call.has(attr::SRQ) {
        true => Some(opened.handles.get::<Srq>(call.handle(attr::SRQ)?)?.srqn),
        false => None,
    };
    if service == ServiceType::DCT {
        return create_dct(opened, call, &driver, srqn, failures);
    }
    let pd = pd(opened, call)?;
    // An initiator receives nothing.
    let cqn_rcv = if kind == qp_type::XRC_INITIATOR { 0 } else { cqn(opened, call, attr::RECV_CQ)? };
    let cqns = [cqn(opened, call, attr::SEND_CQ)?, cqn_rcv];
    let queues = Queues::new(&driver, srqn)?;
    let cap = queues.granted(call.input(attr::CAP)?);
    let (qpn, umems) = create_on_adapter(opened, &driver, service, (pd, cqns), &queues)?;
    let signal_all = flags & CREATE_SIGNAL_ALL != 0;
    let attributes = abi::ModifyQp::default();
    let qp = Qp { qpn, service, pd, cqns, umems, failures, cap, signal_all, attributes, target: None };
    let handle = qp.enter(opened)?;
    answer_create(call, handle, &cap, qpn)
}

/// Creates an XRC target.
fn create_xrc_target(
    opened: &mut OpenDevice,
    call: &Call,
    failures: Option<Arc<Waiter>>,
) -> Result<(), Errno> {
    let opening = Arc::clone(&opened.handles.get::<Xrcd>(call.handle(attr::XRCD)?)?.0);
    let target = Target::new(opened.session()?.adapter.pd, &opening.0)?;
    let qpn = target.qpn;
    let handle = Qp::of_target(target, opening, failures).enter(opened)?;
    answer_create(call, handle, &abi::QpCap::default(), qpn)
}

/// Creates a DCT. It gets a DCTN when the adapter creates it.
fn create_dct(
    opened: &mut OpenDevice,
    call: &Call,
    driver: &abi::DriverCreateQp,
    srqn: Option<u32>,
    failures: Option<Arc<Waiter>>,
) -> Result<(), Errno> {
    let (pd, cqn) = (pd(opened, call)?, cqn(opened, call, attr::RECV_CQ)?);
    let srqn = srqn.ok_or(Errno::EINVAL)?;
    let cap = call.input(attr::CAP)?;
    let handle = opened.handles.insert(Dct::new(driver, (pd, cqn, srqn), failures, cap))?;
    answer_create(call, handle, &cap, 0)
}

/// Creates a QP with its queues on the adapter. Returns its QPN, and the umems of its ring and record.
fn create_on_adapter(
    opened: &OpenDevice,
    driver: &abi::DriverCreateQp,
    service: ServiceType,
    (pd, [cqn_snd, cqn_rcv]): (u32, [u32; 2]),
    queues: &Queues,
) -> Result<(u32, [u32; 2]), Errno> {
    let umems = opened.queue_umems(driver.buf_addr, queues.bytes, driver.db_addr)?;
    let [ring, record] = umems;
    let context = QpContext {
        st: service,
        pd,
        cqn_snd,
        cqn_rcv,
        uar_page: driver.bfreg_index,
        user_index: driver.uidx & 0xff_ffff,
        // Linux asks for free-running timestamps where the device has them.
        ts_format: if opened.device.has(Fault::RealTime) { TS_DEFAULT } else { TS_FREE_RUNNING },
        dbr_umem_valid: true,
        dbr_umem_id: record,
        ..queues.context
    };
    let command = CreateQp { context, wq_umem_id: ring, wq_umem_valid: true, ..CreateQp::default() };
    let qpn = opened.execute(&command).inspect_err(|_| opened.forget_umems(&umems))?.qpn;
    Ok((qpn, umems))
}

/// Returns the PDN for a QP to create.
fn pd(opened: &OpenDevice, call: &Call) -> Result<u32, Errno> {
    Ok(opened.handles.get::<Pd>(call.handle(attr::PD)?)?.number)
}

/// Returns the CQN of a required attribute.
fn cqn(opened: &OpenDevice, call: &Call, id: u16) -> Result<u32, Errno> {
    match call.has(id) {
        true => Ok(opened.handles.get::<Cq>(call.handle(id)?)?.cqn),
        false => Err(Errno::EINVAL),
    }
}

fn answer_create(call: &Call, handle: u32, cap: &abi::QpCap, number: u32) -> Result<(), Errno> {
    call.return_handle(attr::HANDLE, handle)?;
    call.output(attr::CAP_OUT, cap)?;
    call.output(attr::NUMBER_OUT, &number)?;
    call.output(driver_data::OUT, &abi::DriverCreateQpResponse::default())
}

/// Layout of a QP's queues in its buffer: the RQ, then the SQ.
struct Queues {
    context: QpContext,
    bytes: u64,
}

impl Queues {
    fn new(driver: &abi::DriverCreateQp, srqn: Option<u32>) -> Result<Queues, Errno> {
        let abi::DriverCreateQp { sq_wqe_count, rq_wqe_count, rq_wqe_shift, flags, .. } = *driver;
        if flags & qp_flag::SIGNATURE != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        // The SRQ replaces the RQ.
        let rq_wqe_count = if srqn.is_some() { 0 } else { rq_wqe_count };
        let power = |count: u32| count == 0 || count.is_power_of_two() && count <= 1 << 15;
        let shift = if rq_wqe_count == 0 { 4 } else { rq_wqe_shift };
        if flags & qp_flag::UAR_PAGE_INDEX == 0 || !power(sq_wqe_count) || !power(rq_wqe_count) {
            return Err(Errno::EINVAL);
        }
        if !(4..=11).contains(&shift) || sq_wqe_count | rq_wqe_count == 0 && srqn.is_none() {
            return Err(Errno::EINVAL);
        }
        let log = |count: u32| count.checked_ilog2().unwrap_or(0) as u8;
        let context = QpContext {
            no_sq: sq_wqe_count == 0,
            log_sq_size: log(sq_wqe_count),
            rq_type: match srqn {
                Some(_) => RqType::SRQ,
                None if rq_wqe_count == 0 => RqType::ZERO_SIZE,
                None => RqType::REGULAR,
            },
            srqn_rmpn_xrqn: srqn.unwrap_or(0),
            log_rq_size: log(rq_wqe_count),
            log_rq_stride: shift as u8 - 4,
            ..QpContext::default()
        };
        let bytes = (u64::from(rq_wqe_count) << shift) + u64::from(sq_wqe_count) * 64;
        Ok(Queues { context, bytes })
    }

    /// Returns the capacities of the allocated queues, which libmlx5 rounds up. `wanted` are those that the program
    /// requested.
    fn granted(&self, wanted: abi::QpCap) -> abi::QpCap {
        let context = &self.context;
        match context.rq_type {
            RqType::REGULAR => abi::QpCap {
                max_recv_wr: 1 << context.log_rq_size,
                max_recv_sge: 1 << context.log_rq_stride,
                ..wanted
            },
            _ => abi::QpCap { max_recv_wr: 0, max_recv_sge: 0, ..wanted },
        }
    }
}

/// Handles OPEN_QP: creates another handle of an XRC target.
pub(super) fn open(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let request: abi::OpenQp = core_in(call)?;
    let opening = Arc::clone(&opened.handles.get::<Xrcd>(request.xrcd_handle)?.0);
    if u64::from(request.qp_type) != qp_type::XRC_TARGET {
        return Err(Errno::EINVAL);
    }
    let target = opening.0.target(request.qpn).ok_or(Errno::EINVAL)?;
    let failures = opened.asynchronous.clone();
    let failures = failures.map(|channel| Waiter::of_failures(channel, request.user_handle));
    let qpn = target.qpn;
    let qp = Qp::of_target(target, opening, failures);
    let qp_handle = qp.enter(opened)?;
    core_out(call, &abi::OpenQpResponse { qp_handle, qpn, ..abi::OpenQpResponse::default() })
}

/// Handles QP destroy.
pub(crate) fn destroy(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let handle = call.handle(0)?;
    if opened.handles.get::<Dct>(handle).is_ok() {
        return dct::destroy(opened, call, handle);
    }
    let qp = opened.handles.get::<Qp>(handle)?;
    if !qp.is_target() {
        // Dropping the last handle destroys a target.
        opened.execute(&DestroyQp { qpn: qp.qpn, ..DestroyQp::default() })?;
    }
    let qp = opened.handles.remove::<Qp>(handle)?;
    qp.forget(&opened.session()?.adapter.registry);
    if !qp.is_target() {
        opened.forget_umems(&qp.umems);
    }
    call.output(1, &qp.failures.map_or(0, |waiter| waiter.finish()))
}

/// Returns the state of a QP as in verbs.
pub(super) fn state(opened: &OpenDevice, qp: &Qp) -> Result<u8, Errno> {
    let state = qp.execute(opened, &QueryQp { qpn: qp.qpn, ..QueryQp::default() })?.context.state;
    Ok(match state {
        QpState::RST => qp_state::RESET,
        QpState::INIT => qp_state::INIT,
        QpState::RTR => qp_state::RTR,
        QpState::RTS => qp_state::RTS,
        QpState::SQD => qp_state::SQD,
        QpState::SQER => qp_state::SQE,
        _ => qp_state::ERR,
    })
}

/// Handles QUERY_QP.
pub(super) fn query(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    let request: abi::QueryQp = core_in(call)?;
    if let Ok(dct) = opened.handles.get::<Dct>(request.qp_handle) {
        return core_out(call, &dct.describe());
    }
    let qp = opened.handles.get::<Qp>(request.qp_handle)?;
    let context = qp.execute(opened, &QueryQp { qpn: qp.qpn, ..QueryQp::default() })?.context;
    let state = state(opened, qp)?;
    let set = qp.attributes();
    let response = abi::QueryQpResponse {
        dest: set.dest,
        alt_dest: set.alt_dest,
        cap: qp.cap,
        qkey: set.qkey,
        rq_psn: context.next_rcv_psn,
        sq_psn: context.next_send_psn,
        dest_qp_num: set.dest_qp_num,
        qp_access_flags: set.qp_access_flags,
        pkey_index: set.pkey_index,
        qp_state: state,
        cur_qp_state: state,
        path_mtu: context.mtu.0,
        max_rd_atomic: set.max_rd_atomic,
        max_dest_rd_atomic: set.max_dest_rd_atomic,
        min_rnr_timer: set.min_rnr_timer,
        port_num: set.port_num,
        timeout: set.timeout,
        retry_cnt: set.retry_cnt,
        rnr_retry: set.rnr_retry,
        sq_sig_all: qp.signal_all.into(),
        ..abi::QueryQpResponse::default()
    };
    core_out(call, &response)
}
