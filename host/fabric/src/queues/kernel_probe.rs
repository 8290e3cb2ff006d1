//! Checks during start-up that a kernel can post to the QPs of a rail and see their completions.
//!
//! Mapping queues or doorbells may succeed and still deliver nothing. The kernel makes the same calls as a user's
//! kernel, in a context of one PE and one QP, so it writes WQEs, rings the doorbell, polls the CQ and fences the same
//! way.
#![allow(unsafe_code, reason = "makes a handle to the last words of the heap")]

use std::time::{Duration, Instant};

use bytemuck::Zeroable;
use rushmem_device::SymSlice;
use rushmem_device::abi::{
    ControlPage, CtxParts, DevAddr, Header, LAYOUT, MAGIC, PeerDesc, QpDesc, SegmentTable, VERSION,
    ctx_flags, reserved,
};
use rushmem_error::{DeviceError, Error, Result, recorded};
use rushmem_machine::{KernelLaunch, LaunchConfig, Machine, Module, Region};
use rushmem_mlx5::prm::qp::ServiceType;
use rushmem_runtime_kernels::rushmem_probe;

use super::evidence::record_qp;
use super::host_queue::{connect, make};
use super::probe::attempts;
use super::rail::{Loop, Qp, Rail, RetryPolicy};
use super::state::{Deadlines, Handshakes, StateMap};

/// Bytes reserved for the probe's kernel, in the last part of the heap.
const BYTES: u64 = 64;
const PATTERN: u64 = 0x5275_7368_6d65_6d21;
const VALUE: u64 = 5;

/// Checks that a kernel of `machine` can use the QPs of `rail`. `qps` says whether one QP or two worked when the CPU
/// probed the NIC. `local_pes` is the number of PEs that start on this machine at the same time.
///
/// # Errors
/// - [`Error::Probe`] if the kernel fails or is late, or its operations have a wrong result.
/// - The errors of the machine and of the NIC.
pub(super) fn probe_kernel(
    rail: &Rail,
    machine: &dyn Machine,
    heap: &Region,
    qps: Loop,
    local_pes: u32,
) -> Result<()> {
    attempts(local_pes, |within| {
        // Slots 0 and 1 are free again: the probe by the CPU has destroyed its QPs.
        let (pair, receiver) = make(qps, |slot| rail.make(slot, slot, ServiceType::RC))?;
        connect(rail, &pair, receiver.as_ref(), RetryPolicy::within(within, 7))?;
        let outcome = run(rail, machine, heap, &pair, within);
        record_qp(rail, &pair)?;
        // Restore what the kernel changed, also if it failed: the next attempt and the job start from clean slots,
        // fetch slots and heap.
        drop((pair, receiver));
        rail.clear_ahead(0..2)?;
        heap.write(reserved::FETCH, &vec![0; rail.shape().depth as usize * 8])?;
        heap.write(words_at(heap), &[0; BYTES as usize])?;
        outcome
    })
}

/// Returns the heap offset of the area that the probe's kernel uses: the last aligned 64 bytes.
fn words_at(heap: &Region) -> u64 {
    heap.memory.len() / BYTES * BYTES - BYTES
}

/// A kernel context of one PE and one QP, and the memory it refers to.
struct ProbeContext {
    ctx: CtxParts,
    control: Region,
    _state: StateMap,
    _handshakes: Handshakes,
    _table: Region,
}

impl ProbeContext {
    /// Creates the kernel context of a connected QP. Kernels give up waiting in it after `within`.
    fn new(rail: &Rail, machine: &dyn Machine, heap: &Region, pair: &Qp, within: Duration) -> Result<Self> {
        let shape = rail.shape().of_one_qp();
        let control = machine.shared(size_of::<ControlPage>() as u64)?;
        let (state, handshakes) = (StateMap::new(machine, shape)?, Handshakes::new(machine, shape)?);
        let table = machine.local(size_of::<SegmentTable>() as u64)?;
        let keys = rail.keys();
        let deadlines = Deadlines { call: within, connect: within };
        state.write_pe(0, control.addr, DevAddr(0), DevAddr(0), deadlines)?;
        state.clear_slots()?;
        state.describe_qps(&[QpDesc {
            pe_state: state.device_state(),
            handshake: handshakes.addr(0),
            lkey: keys.data().lkey(),
            rkey: keys.data().rkey(),
            strict_lkey: keys.strict().lkey(),
            strict_rkey: keys.strict().rkey(),
            log_depth: shape.log_depth().into(),
            flags: rail.flags(),
            ..Zeroable::zeroed()
        }])?;
        state.describe_peers(&[PeerDesc::zeroed()])?;
        // The answer is there before the question: the kernel requests the connection and gets it immediately, without
        // a service thread.
        handshakes.answer(0, Some(&rail.connection(&state, pair, 0, 0)))?;
        // The host reads the heap after the kernel, and an ACK does not imply that data has landed. With this flag
        // `quiet` posts a READ.
        let flags = ctx_flags::EARLY_ACKS | if rail.is_on_gpu() { ctx_flags::GPU_QUEUES } else { 0 };
        let ctx = CtxParts {
            header: Header { magic: MAGIC, version: VERSION, layout: LAYOUT, control: control.addr },
            state: state.device_state(),
            heap: heap.addr,
            heap_bytes: heap.memory.len(),
            peers: state.peer_table(),
            qps: state.qp_table(),
            n_pes: 1,
            n_sets: 1,
            rails: 1,
            flags,
            segments: table.addr,
            ..Zeroable::zeroed()
        };
        table.write(0, bytemuck::bytes_of(&SegmentTable { parts: ctx, count: 0, in_place: 0 }))?;
        Ok(Self { ctx, control, _state: state, _handshakes: handshakes, _table: table })
    }

    /// Returns the first error that the kernel has recorded.
    fn recorded(&self) -> Result<Option<DeviceError>> {
        let mut page = Box::new(ControlPage::zeroed());
        self.control.read(0, bytemuck::bytes_of_mut(&mut *page))?;
        Ok(recorded(&page).into_iter().next())
    }
}

/// Runs the probe's kernel on a connected QP, and checks the values that it wrote.
fn run(rail: &Rail, machine: &dyn Machine, heap: &Region, pair: &Qp, within: Duration) -> Result<()> {
    let context = ProbeContext::new(rail, machine, heap, pair, within)?;
    let at = words_at(heap);
    heap.write(at, &[PATTERN, 0, 0, 0].map(u64::to_le_bytes).concat())?;
    // SAFETY: the last words of the heap, which nothing else uses until the PE is up.
    let words = unsafe { SymSlice::<u64>::from_raw(at, 4) };
    let call = rushmem_probe(words, VALUE, 0);
    // Loading takes long, so the process keeps the module for all probes and jobs.
    let module = machine.runtime_ptx().map(|ptx| Module::load_for_good(machine, ptx)).transpose()?;
    let grid = LaunchConfig::new(1, 1);
    let begin = Instant::now();
    machine.run(KernelLaunch { ctx: context.ctx, grid, call, module })?;
    let took = begin.elapsed();

    let nic = rail.nic().name();
    let failed = |why: String| Error::Probe { nic: nic.clone(), why };
    // A deadline gets its own message: the usual cause is a doorbell or a CQE that never arrives.
    match context.recorded()? {
        Some(error) if error.is_deadline() => {
            return Err(failed(format!("the operations of a kernel did not complete within {within:?}")));
        }
        Some(error) => return Err(failed(format!("a kernel cannot use its queues: {error}"))),
        None => {}
    }
    let mut found = [0u64; 4];
    heap.read(at, bytemuck::cast_slice_mut(&mut found))?;
    // The put copied word 0 to word 1, the fetch-and-add left its result in word 2, and the atomic set changed word 3.
    let wanted = [PATTERN, PATTERN + VALUE, PATTERN, VALUE];
    if found != wanted {
        return Err(failed(format!("the operations of a kernel left {found:#x?} instead of {wanted:#x?}")));
    }
    tracing::info!("{nic}: a kernel posts and sees completions: three operations in {took:.1?}");
    Ok(())
}
