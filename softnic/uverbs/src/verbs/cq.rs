//! Completion queues and completion channels.

use super::write::CORE_OUT;
use super::{core_in, core_out};
use crate::abi::{self, cq_flag, driver_data};
use crate::attrs::Call;
use crate::device::VECTORS;
use crate::errno::Errno;
use crate::events::Kind;
use crate::handles::Object;
use crate::inventory::{self, Record};
use crate::memory;
use crate::open_device::OpenDevice;
use crate::registry::{Registry, Waiter};
use rushmem_mlx5::prm::cq::{CqContext, CreateCq, DestroyCq, ModifyCq};
use std::sync::Arc;

pub(crate) struct Cq {
    pub(crate) cqn: u32,
    umems: [u32; 2],
    /// log2 of the number of CQEs.
    log: u32,
    cqe_size: u32,
    completions: Option<Arc<Waiter>>,
    failures: Option<Arc<Waiter>>,
}

impl Object for Cq {
    fn record(&self) -> Option<Record> {
        Some(Record { len: 1 << self.log, ..Record::new(inventory::Kind::Cq, self.cqn) })
    }

    fn forget(&self, registry: &Registry) {
        registry.forget_cq(self.cqn);
    }
}

impl Cq {
    /// Inserts the CQ into the table and registers it for events. Returns its handle.
    fn enter(self, opened: &mut OpenDevice) -> Result<u32, Errno> {
        let registry = &opened.session()?.adapter.registry;
        if let Some(waiter) = &self.completions {
            registry.listen_to_completions(self.cqn, Arc::clone(waiter));
        }
        if let Some(waiter) = &self.failures {
            registry.listen_to_cq(self.cqn, Arc::clone(waiter));
        }
        opened.handles.insert(self)
    }
}

/// log2 of the maximum number of CQEs in a CQ.
const LOG_MAX: u32 = 22;

/// Handles CREATE_COMP_CHANNEL.
pub(super) fn create_channel(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    opened.session()?;
    let fd = opened.new_channel(Kind::Fixed)?;
    call.output_file(CORE_OUT, fd)
}

/// Handles CQ create.
pub(crate) fn create(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    const HANDLE: u16 = 0;
    const CQE: u16 = 1;
    const USER_HANDLE: u16 = 2;
    const CHANNEL: u16 = 3;
    const VECTOR: u16 = 4;
    const FLAGS: u16 = 5;
    const CQE_OUT: u16 = 6;
    const ASYNC: u16 = 7;

    let entries: u32 = call.input(CQE)?;
    let user_handle: u64 = call.input(USER_HANDLE)?;
    let vector: u32 = call.input(VECTOR)?;
    let flags: u32 = call.optional(FLAGS)?.unwrap_or(0);
    let driver: abi::DriverCreateCq = call.input(driver_data::IN)?;
    let log = log_size(entries)?;
    let by_page = u32::from(driver.flags) & cq_flag::DRIVER_UAR_PAGE_INDEX != 0;
    if vector >= VECTORS || !by_page {
        return Err(Errno::EINVAL);
    }
    if flags & !(cq_flag::TIMESTAMP | cq_flag::IGNORE_OVERRUN) != 0 || driver.cqe_comp_en != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let cqe_sz = match driver.cqe_size {
        64 => 0,
        128 => 1,
        _ => return Err(Errno::EINVAL),
    };
    let completions = match call.optional_fd(CHANNEL)? {
        Some(fd) => Some(Waiter::of_completions(opened.channel(fd)?, user_handle)),
        None => None,
    };
    let failures = opened.asynchronous(call, ASYNC)?;
    let failures = failures.map(|channel| Waiter::of_failures(channel, user_handle));

    let bytes = u64::from(driver.cqe_size) << log;
    let umems = opened.queue_umems(driver.buf_addr, bytes, driver.db_addr)?;
    let [ring, record] = umems;
    let context = CqContext {
        dbr_umem_valid: true,
        dbr_umem_id: record,
        cqe_sz,
        oi: flags & cq_flag::IGNORE_OVERRUN != 0,
        log_cq_size: log as u8,
        uar_page: driver.uar_page_index.into(),
        c_eqn: vector as u8 + 1,
        ..CqContext::default()
    };
    let command = CreateCq { context, umem_id: ring, umem_valid: true, ..CreateCq::default() };
    let cqn = opened.execute(&command).inspect_err(|_| opened.forget_umems(&umems))?.cqn;
    let cqe_size = driver.cqe_size;
    let handle = Cq { cqn, umems, log, cqe_size, completions, failures }.enter(opened)?;
    call.return_handle(HANDLE, handle)?;
    call.output(CQE_OUT, &((1u32 << log) - 1))?;
    call.output(driver_data::OUT, &abi::DriverCreateCqResponse { cqn, reserved: 0 })
}

/// Returns log2 of the ring size for a CQ of `entries` completions. The ring has at least one slot more.
fn log_size(entries: u32) -> Result<u32, Errno> {
    let log = entries.checked_add(1).ok_or(Errno::EINVAL)?.next_power_of_two().ilog2();
    if entries == 0 || log > LOG_MAX { Err(Errno::EINVAL) } else { Ok(log) }
}

/// Handles RESIZE_CQ. The library copies the CQEs that have not been polled.
pub(super) fn resize(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let request: abi::ResizeCq = core_in(call)?;
    let driver: abi::DriverResizeCq = call.input(driver_data::IN)?;
    let cq = opened.handles.get::<Cq>(request.cq_handle)?;
    let log = log_size(request.cqe)?;
    if u32::from(driver.cqe_size) != cq.cqe_size {
        return Err(Errno::EINVAL);
    }
    let (cqn, old, before) = (cq.cqn, cq.umems[0], cq.log);
    if log != before {
        let bytes = u64::from(driver.cqe_size) << log;
        let ring = opened.umem(memory::user(driver.buf_addr, bytes, true)?, bytes)?;
        let cqe_sz = u8::from(driver.cqe_size != 64);
        let context = CqContext { cqe_sz, log_cq_size: log as u8, ..CqContext::default() };
        let command = ModifyCq {
            op_mod: ModifyCq::RESIZE,
            cqn,
            field_select: ModifyCq::LOG_SIZE,
            context,
            umem_id: ring,
            umem_valid: true,
            ..ModifyCq::default()
        };
        opened.execute(&command).inspect_err(|_| opened.forget_umems(&[ring]))?;
        opened.forget_umems(&[old]);
        let cq = opened.handles.get_mut::<Cq>(request.cq_handle)?;
        (cq.umems[0], cq.log) = (ring, log);
    }
    core_out(call, &abi::ResizeCqResponse { cqe: (1 << log) - 1, reserved: 0 })
}

/// Handles CQ destroy. The library waits until the program has acknowledged all events that it has read. Unread ones
/// are taken back.
pub(crate) fn destroy(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let handle = call.handle(0)?;
    let cqn = opened.handles.get::<Cq>(handle)?.cqn;
    opened.execute(&DestroyCq { cqn, ..DestroyCq::default() })?;
    let cq = opened.handles.remove::<Cq>(handle)?;
    opened.session()?.adapter.registry.forget_cq(cqn);
    opened.forget_umems(&cq.umems);
    let reported = |waiter: Option<Arc<Waiter>>| waiter.map_or(0, |waiter| waiter.finish());
    let response = abi::DestroyCqResponse {
        comp_events_reported: reported(cq.completions),
        async_events_reported: reported(cq.failures),
    };
    call.output(1, &response)
}
