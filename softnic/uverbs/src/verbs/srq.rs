//! Shared receive queues (SRQs). The adapter implements them as RMPs, or as XRC SRQs in an XRC domain.

use super::cq::Cq;
use super::pd::Pd;
use super::{core_in, core_out};
use crate::abi::{self, driver_data, srq_attr, srq_type};
use crate::attrs::Call;
use crate::device::{MAX_SRQ_SGE as MAX_SGE, MAX_SRQ_WR as MAX_WR};
use crate::errno::Errno;
use crate::handles::Object;
use crate::inventory::{Kind, Record};
use crate::open_device::OpenDevice;
use crate::registry::{Registry, Waiter};
use crate::xrc_domain::{Opening, Xrcd};
use rushmem_mlx5::prm::rmp::{CreateRmp, DestroyRmp, ModifyRmp, QueryRmp, RmpContext, RmpState, Wq, WqType};
use rushmem_mlx5::prm::xrc::{ArmXrcSrq, CreateXrcSrq, DestroyXrcSrq, QueryXrcSrq, XrcSrqContext};
use std::sync::Arc;

pub(crate) struct Srq {
    /// RMPN or XRC SRQN, by which firmware commands name the SRQ.
    pub(crate) srqn: u32,
    pd: u32,
    umems: [u32; 2],
    events: Option<Arc<Waiter>>,
    max_wr: u32,
    max_sge: u32,
    /// XRC domain of an XRC SRQ. `None` for a basic one.
    xrcd: Option<Arc<Opening>>,
}

impl Object for Srq {
    fn record(&self) -> Option<Record> {
        let subtype = if self.is_xrc() { srq_type::XRC } else { srq_type::BASIC };
        Some(Record { subtype: subtype as u8, pd: self.pd, ..Record::new(Kind::Srq, self.srqn) })
    }

    fn forget(&self, registry: &Registry) {
        registry.forget_srq(self.srqn);
    }
}

impl Srq {
    pub(crate) fn is_xrc(&self) -> bool {
        self.xrcd.is_some()
    }
}

/// Length of an SRQ WQE's data segment, in bytes.
const SEGMENT: u32 = 16;
/// Minimum length of an SRQ WQE in bytes: a next segment and a data segment.
const MIN_WQE_LEN: u32 = 32;

/// Layout of the WQEs by libmlx5: their number and their size are powers of two.
struct Layout {
    log_size: u32,
    log_stride: u32,
}

impl Layout {
    fn new(max_wr: u32, max_sge: u32) -> Result<Layout, Errno> {
        if max_wr > MAX_WR || max_sge > MAX_SGE {
            return Err(Errno::EINVAL);
        }
        let stride = (SEGMENT * (1 + max_sge)).next_power_of_two().max(MIN_WQE_LEN);
        // One WQE stays unused, to always have a successor for the last one.
        Ok(Layout { log_size: (max_wr + 1).next_power_of_two().ilog2(), log_stride: stride.ilog2() })
    }

    fn bytes(&self) -> u64 {
        1 << (self.log_size + self.log_stride)
    }
}

/// Handles CREATE_SRQ.
pub(super) fn create(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let request: abi::CreateSrq = core_in(call)?;
    let driver: abi::DriverCreateSrq = call.input(driver_data::IN)?;
    let layout = Layout::new(request.max_wr, request.max_sge)?;
    let limit = u16::try_from(request.srq_limit).map_err(|_| Errno::EINVAL)?;
    let pd = opened.handles.get::<Pd>(request.pd_handle)?.number;
    let memory = memory_of(opened, &driver, &layout)?;
    let [ring, record] = memory;
    let wq = Wq {
        wq_type: WqType::LINKED_LIST,
        lwm: limit,
        pd,
        log_wq_stride: layout.log_stride as u8,
        log_wq_sz: layout.log_size as u8,
        dbr_umem_valid: true,
        wq_umem_valid: true,
        dbr_umem_id: record,
        wq_umem_id: ring,
        ..Wq::default()
    };
    let context = RmpContext { state: RmpState::RDY, wq, ..RmpContext::default() };
    let made = opened.execute(&CreateRmp { context, ..CreateRmp::default() });
    let srqn = made.inspect_err(|_| opened.forget_umems(&memory))?.rmpn;
    enter(opened, call, (srqn, pd, request.user_handle), (memory, &layout), None)
}

/// Handles CREATE_XSRQ: creates an XRC SRQ.
pub(super) fn create_of_xrcd(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let request: abi::CreateXsrq = core_in(call)?;
    if request.srq_type != srq_type::XRC {
        return Err(Errno::EOPNOTSUPP);
    }
    let driver: abi::DriverCreateSrq = call.input(driver_data::IN)?;
    let layout = Layout::new(request.max_wr, request.max_sge)?;
    let lwm = u16::try_from(request.srq_limit).map_err(|_| Errno::EINVAL)?;
    let pd = opened.handles.get::<Pd>(request.pd_handle)?.number;
    let cqn = opened.handles.get::<Cq>(request.cq_handle)?.cqn;
    let opening = Arc::clone(&opened.handles.get::<Xrcd>(request.xrcd_handle)?.0);
    let memory = memory_of(opened, &driver, &layout)?;
    let [umem_id, dbr_umem_id] = memory;
    let context = XrcSrqContext {
        log_xrc_srq_size: layout.log_size as u8,
        log_rq_stride: layout.log_stride as u8 - 4,
        xrcd: opening.0.number,
        dbr_umem_valid: true,
        cqn,
        dbr_umem_id,
        user_index: driver.uidx & 0xff_ffff,
        pd,
        lwm,
        ..XrcSrqContext::default()
    };
    let made =
        opened.execute(&CreateXrcSrq { context, umem_id, umem_valid: true, ..CreateXrcSrq::default() });
    let srqn = made.inspect_err(|_| opened.forget_umems(&memory))?.xrc_srqn;
    enter(opened, call, (srqn, pd, request.user_handle), (memory, &layout), Some(opening))
}

/// Registers the ring and the doorbell record of a new SRQ.
fn memory_of(opened: &OpenDevice, driver: &abi::DriverCreateSrq, layout: &Layout) -> Result<[u32; 2], Errno> {
    if driver.flags != 0 {
        // WQE signatures.
        return Err(Errno::EOPNOTSUPP);
    }
    opened.queue_umems(driver.buf_addr, layout.bytes(), driver.db_addr)
}

/// Inserts a new SRQ into the table, and returns its handle and number to the program.
fn enter(
    opened: &mut OpenDevice,
    call: &Call,
    (srqn, pd, user_handle): (u32, u32, u64),
    (umems, layout): ([u32; 2], &Layout),
    xrcd: Option<Arc<Opening>>,
) -> Result<(), Errno> {
    let events = opened.asynchronous.clone();
    let events = events.map(|channel| Waiter::of_failures(channel, user_handle));
    if let Some(waiter) = &events {
        opened.session()?.adapter.registry.listen_to_srq(srqn, Arc::clone(waiter));
    }
    let (max_wr, max_sge) = ((1 << layout.log_size) - 1, (1 << layout.log_stride) / SEGMENT - 1);
    let srq_handle = opened.handles.insert(Srq { srqn, pd, umems, events, max_wr, max_sge, xrcd })?;
    call.output(driver_data::OUT, &abi::DriverCreateSrqResponse { srqn, reserved: 0 })?;
    core_out(call, &abi::CreateSrqResponse { srq_handle, max_wr, max_sge, srqn })
}

/// Handles MODIFY_SRQ: arms the limit. The size cannot change.
pub(super) fn modify(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    let request: abi::ModifySrq = core_in(call)?;
    let srq = opened.handles.get::<Srq>(request.srq_handle)?;
    if request.attr_mask & !srq_attr::LIMIT != 0 {
        return Err(Errno::EINVAL);
    }
    if request.attr_mask & srq_attr::LIMIT == 0 {
        return Ok(());
    }
    if request.srq_limit > srq.max_wr {
        return Err(Errno::EINVAL);
    }
    let lwm = request.srq_limit as u16;
    if srq.is_xrc() {
        let command =
            ArmXrcSrq { op_mod: ArmXrcSrq::XRC_SRQ, xrc_srqn: srq.srqn, lwm, ..ArmXrcSrq::default() };
        return opened.execute(&command).map(drop);
    }
    let wq = Wq { lwm, ..Wq::default() };
    let context = RmpContext { state: RmpState::RDY, wq, ..RmpContext::default() };
    let command =
        ModifyRmp { rmp_state: RmpState::RDY, rmpn: srq.srqn, lwm: true, context, ..ModifyRmp::default() };
    opened.execute(&command).map(drop)
}

/// Handles QUERY_SRQ.
pub(super) fn query(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    let request: abi::QuerySrq = core_in(call)?;
    let srq = opened.handles.get::<Srq>(request.srq_handle)?;
    let number = srq.srqn;
    let limit = match srq.xrcd {
        Some(_) => opened.execute(&QueryXrcSrq { xrc_srqn: number, ..QueryXrcSrq::default() })?.context.lwm,
        None => opened.execute(&QueryRmp { rmpn: number, ..QueryRmp::default() })?.context.wq.lwm,
    };
    let response = abi::QuerySrqResponse {
        max_wr: srq.max_wr,
        max_sge: srq.max_sge,
        srq_limit: limit.into(),
        reserved: 0,
    };
    core_out(call, &response)
}

/// Handles DESTROY_SRQ.
pub(super) fn destroy(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let request: abi::DestroySrq = core_in(call)?;
    let srq = opened.handles.get::<Srq>(request.srq_handle)?;
    let number = srq.srqn;
    match srq.xrcd {
        Some(_) => {
            opened.execute(&DestroyXrcSrq { xrc_srqn: number, ..DestroyXrcSrq::default() }).map(drop)?;
        }
        None => opened.execute(&DestroyRmp { rmpn: number, ..DestroyRmp::default() }).map(drop)?,
    }
    let srq = opened.handles.remove::<Srq>(request.srq_handle)?;
    opened.session()?.adapter.registry.forget_srq(number);
    opened.forget_umems(&srq.umems);
    core_out(call, &srq.events.map_or(0, |waiter| waiter.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_one_of_libmlx5() {
        let of = |max_wr, max_sge| Layout::new(max_wr, max_sge).map(|it| (it.log_size, it.log_stride));
        // One more WQE, and a next segment before the data segments.
        assert_eq!(of(15, 1), Ok((4, 5)));
        assert_eq!(of(16, 2), Ok((5, 6)));
        assert_eq!(of(1, 0), Ok((1, 5)));
        assert_eq!(of(MAX_WR, MAX_SGE), Ok((15, 9)));
        assert_eq!(of(0, 0), Ok((0, 5)));
        assert_eq!(of(MAX_WR + 1, 1), Err(Errno::EINVAL));
        assert_eq!(of(1, MAX_SGE + 1), Err(Errno::EINVAL));
    }
}
