//! Runs the comparison's operations with `rushmem-device`, natively on the CPU and from the same kernel source as on a
//! GPU.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytemuck::Zeroable;
use rushmem::native::{self, LaunchConfig, Options};
use rushmem_device::abi::{
    self, Connection, ControlPage, CtxParts, DevAddr, DeviceState, FIRST_BLOCK, Header, PeerDesc, QpDesc,
    QpEntry, QpState, SegmentTable, qp_flags, reserved,
};
use rushmem_device::{Ctx, Result as DeviceResult, Signal, Sym, SymSlice, Thread};
use rushmem_mlx5::seg::WQEBB_BYTES;
use rushmem_softnic::{HostBuffer, Memory};

use crate::bed::{Bed, HEAD, Shape};
use crate::case::{Case, Images, LADDR, Op, RADDR, SIGNAL, VALUE};
use crate::{Error, Result};

const INITIATOR: u32 = 0;
const TARGET: u32 = 1;
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a case on a fresh adapter, checks its effects, and returns the WQEs that it posted.
///
/// # Errors
/// [`Error::Wrong`] if the heaps, the doorbell record or the adapter's rules show a fault.
pub fn run(case: &Case, shape: Shape) -> Result<Vec<[u8; WQEBB_BYTES]>> {
    let bed = Bed::new(shape)?;
    let before = Images::before();
    bed.initiator.fill(&before.initiator)?;
    bed.target.fill(&before.target)?;

    let words = DeviceTables::new(&bed)?;
    let parts = words.parts(&bed);
    let errors = Mutex::new(Vec::new());
    let grid = LaunchConfig::new(1, case.threads());
    native::launch(grid, &Options::default(), || {
        // SAFETY: the tables and the bed, which own everything that the parts point to, outlive the launch.
        let ctx = unsafe { Ctx::from_parts(parts) };
        if let Err(error) = post(&ctx, case) {
            errors.lock().unwrap_or_else(PoisonError::into_inner).push(error);
        }
    })?;
    if let Some(error) = errors.into_inner().unwrap_or_else(PoisonError::into_inner).first() {
        return Err(Error::wrong(case, format!("our call failed: {error:?}")));
    }
    crate::compare::check_effects(&bed, case, case.our_wqes(), &[])?;
    bed.wqes(case.our_wqes())
}

fn post(ctx: &Ctx, case: &Case) -> DeviceResult {
    let place = |base: u64| base + Thread::index() as u64 * case.stride();
    let (here, there) = (place(LADDR), place(RADDR));
    // SAFETY: the range lies in the heap and is used for nothing else.
    let slice = |at: u64| unsafe { SymSlice::<u8>::from_raw(at, case.bytes as usize) };
    // SAFETY: the word lies in the heap, is aligned, and is used for nothing else.
    let signal = unsafe { Sym::<Signal>::from_raw(SIGNAL) };
    match case.op {
        Op::Put | Op::PutWarp => ctx.put_nbi(Thread, slice(there), slice(here), TARGET)?,
        Op::PutValue => put_value(ctx, there, case.bytes)?,
        Op::Signal => ctx.signal_op(signal.add(VALUE), TARGET)?,
        Op::PutSignal => {
            let (dst, src) = (slice(there), slice(here));
            ctx.put_signal_nbi(Thread, dst, src, signal.add(VALUE), TARGET)?;
        }
        Op::PutValueSignal => {
            put_value(ctx, there, case.bytes)?;
            ctx.signal_op(signal.add(VALUE), TARGET)?;
        }
        Op::Get | Op::GetDump | Op::GetWarp => ctx.get_nbi(Thread, slice(here), slice(there), TARGET)?,
    }
    ctx.quiet(Thread)
}

fn put_value(ctx: &Ctx, at: u64, bytes: u64) -> DeviceResult {
    // SAFETY: the location lies in the heap, belongs to this thread, and is aligned to 8.
    unsafe {
        match bytes {
            1 => ctx.p(Sym::from_raw(at), VALUE as u8, TARGET),
            2 => ctx.p(Sym::from_raw(at), VALUE as u16, TARGET),
            4 => ctx.p(Sym::from_raw(at), VALUE as u32, TARGET),
            _ => ctx.p(Sym::from_raw(at), VALUE, TARGET),
        }
    }
}

/// Control page, device state and tables that a kernel's context points to.
struct DeviceTables {
    control: HostBuffer,
    state: HostBuffer,
    segments: HostBuffer,
    /// Ready entries and busy words of each PE's QP.
    ready: HostBuffer,
    /// A [`QpEntry`] for each PE, followed by the table of peers.
    table: HostBuffer,
}

impl DeviceTables {
    fn new(bed: &Bed) -> Result<Self> {
        let depth = bed.shape.depth();
        assert!(reserved::bytes(2, depth as u64, 0) <= HEAD, "the heap's head holds the fetch slots");
        let this = Self {
            control: HostBuffer::new(size_of::<ControlPage>()),
            state: HostBuffer::new(size_of::<DeviceState>()),
            segments: HostBuffer::new(size_of::<SegmentTable>()),
            ready: HostBuffer::new(2 * 2 * 8 * depth),
            table: HostBuffer::new(2 * size_of::<QpEntry>() + 2 * size_of::<PeerDesc>()),
        };
        let state = DeviceState {
            control: address(&this.control, 0),
            deadline_ns: CALL_TIMEOUT.as_nanos() as u64,
            pe: INITIATOR,
            ..Zeroable::zeroed()
        };
        this.state.write(0, bytemuck::bytes_of(&state))?;
        let entries = [this.describe(bed, INITIATOR), this.describe(bed, TARGET)];
        this.table.write(0, bytemuck::cast_slice(&entries))?;
        let segments = SegmentTable { parts: this.parts(bed), ..Zeroable::zeroed() };
        this.segments.write(0, bytemuck::bytes_of(&segments))?;
        Ok(this)
    }

    /// Describes the QP to `peer`. Only the one to the target exists; nothing is posted to the initiator itself.
    fn describe(&self, bed: &Bed, peer: u32) -> QpEntry {
        let (shape, from) = (bed.shape, &bed.initiator);
        let depth = shape.depth();
        let ready = peer as usize * 2 * 8 * depth;
        let desc = QpDesc {
            pe_state: address(&self.state, 0),
            lkey: from.key,
            rkey: bed.target.key,
            strict_lkey: from.key,
            strict_rkey: bed.target.key,
            peer,
            log_depth: shape.log_depth.into(),
            flags: if shape.collapsed { qp_flags::COLLAPSED } else { 0 },
            ..Zeroable::zeroed()
        };
        let connection = Connection {
            sq: address(&from.queues, shape.sq_at()),
            dbr: address(&from.queues, shape.sq_record_at()),
            uar: DevAddr(from.uar.reg_addr as u64),
            cq: address(&from.queues, shape.cq_at()),
            ready: address(&self.ready, ready),
            fetch_busy: address(&self.ready, ready + 8 * depth),
            fetch_slots: reserved::FETCH + u64::from(peer) * 8 * depth as u64,
            qpn: from.qpn,
            ..Zeroable::zeroed()
        };
        let mut state = QpState::unconnected();
        state.done.word = FIRST_BLOCK;
        QpEntry { desc, connection, state }
    }

    fn parts(&self, bed: &Bed) -> CtxParts {
        let control = address(&self.control, 0);
        CtxParts {
            header: Header { magic: abi::MAGIC, version: abi::VERSION, layout: abi::LAYOUT, control },
            state: address(&self.state, 0),
            heap: address(&bed.initiator.heap, 0),
            heap_bytes: bed.initiator.heap.len(),
            segments: address(&self.segments, 0),
            qps: address(&self.table, 0),
            // All zero: no peer's heap is mapped, so every operation goes through the NIC.
            peers: address(&self.table, 2 * size_of::<QpEntry>()),
            pe: INITIATOR,
            n_pes: 2,
            n_sets: 1,
            rails: 1,
            ..Zeroable::zeroed()
        }
    }
}

fn address(buffer: &HostBuffer, offset: usize) -> DevAddr {
    DevAddr(buffer.as_ptr() as u64 + offset as u64)
}
