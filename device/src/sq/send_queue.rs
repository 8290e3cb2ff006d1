//! Memory of a connected send queue: WQEs, doorbell record and doorbell register.
#![allow(
    unsafe_code,
    reason = "writes WQEs, the doorbell record and the doorbell register at addresses from the host"
)]

use bytemuck::Zeroable;
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::doorbell::{Doorbell, record_word};
use rushmem_mlx5::{Flags, Wqe, Wqebb};

use crate::abi::{DevAddr, qp_flags};
use crate::arch::{self, Gpu, Scope, Sys, SysWord};

/// Number of blocks per WQE of a DC initiator. The WQE's address vector fills three of the eight segments.
pub(super) const DC_BLOCKS: u64 = 2;

/// Whether this build can hand queues over to the host. GPU builds leave it out by default, because it costs every kernel
/// registers.
pub(crate) const HAS_FAILOVER: bool = cfg!(any(not(target_arch = "nvptx64"), feature = "failover"));

/// Fields of a [`Connection`](crate::abi::Connection) that posting needs, and the depth of the queue.
///
/// Valid only in a thread that has seen the connection established.
#[derive(Clone, Copy)]
pub(crate) struct SendQueueView {
    sq: DevAddr,
    dbr: DevAddr,
    uar: DevAddr,
    pub(super) qpn: u32,
    flags: u32,
    pub(super) depth: u64,
}

impl SendQueueView {
    /// Decodes the first 32 bytes of a [`Connection`](crate::abi::Connection).
    #[inline(always)]
    pub(super) fn new([a, b, c, d]: [u32; 4], [e, f, qpn, flags]: [u32; 4], depth: u64) -> Self {
        let address = |low: u32, high: u32| DevAddr(u64::from(low) | u64::from(high) << 32);
        Self { sq: address(a, b), dbr: address(c, d), uar: address(e, f), qpn, flags, depth }
    }

    /// Writes one WQE of a DC initiator to the target with this address vector. Returns the index of the next block.
    ///
    /// The vector is copied from memory to memory one segment at a time; held in registers, it would cost every kernel
    /// twelve of them. Native debug builds would put it on the stack of every caller, so there this function is not
    /// inlined.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[cfg_attr(not(target_arch = "nvptx64"), inline(never))]
    pub(super) fn write_to(self, target: &AvSeg, index: u64, wqe: &Wqe, flags: Flags) -> u64 {
        // The order of these stores does not matter: the NIC reads neither block before the doorbell.
        let [head, tail] = wqe.emit_to(&AvSeg::zeroed(), index as u16, self.qpn, flags).blocks;
        self.write_block(index + 1, tail);
        let slot = self.sq.add((index & (self.depth - 1)) * 64).ptr::<[u32; 4]>();
        let from = (&raw const *target).cast::<[u32; 4]>();
        let [control, ..] = head.0;
        // SAFETY: as in `write_block`; the vector has three segments, and its address is a multiple of 16.
        unsafe {
            arch::store16(slot, control.0);
            let mut i = 0;
            while i < AvSeg::SEGMENTS {
                arch::store16(slot.add(1 + i), arch::load16(from.add(i)));
                i += 1;
            }
        }
        index + DC_BLOCKS
    }

    /// Writes one WQE at block `index` of a reservation. Returns the index of the next block.
    #[inline(always)]
    pub(super) fn write(self, index: u64, wqe: &Wqe, flags: Flags) -> u64 {
        let entry = wqe.emit(index as u16, self.qpn, flags);
        let [head, tail] = entry.blocks;
        self.write_block(index, head);
        // Most WQEs take one block. The slot after it belongs to another one.
        if entry.n_blocks() == 1 {
            return index + 1;
        }
        self.write_block(index + 1, tail);
        index + 2
    }

    #[inline(always)]
    fn write_block(self, index: u64, block: Wqebb) {
        let slot = self.sq.add((index & (self.depth - 1)) * 64).ptr::<[u32; 4]>();
        let [a, b, c, d] = block.0;
        // The NIC reads the block only after the doorbell, so the order of these stores does not matter.
        // SAFETY: this thread has reserved the slot, and the WQE that was in it is complete.
        unsafe {
            arch::store16(slot, a.0);
            arch::store16(slot.add(1), b.0);
            arch::store16(slot.add(2), c.0);
            arch::store16(slot.add(3), d.0);
        }
    }

    /// Returns whether the queue and the doorbell record are in this GPU's memory. A fence at GPU scope then suffices
    /// before a doorbell, and does not wait for stores to host memory. `Ctx::qp` orders stores to other memory.
    #[inline(always)]
    fn is_on_gpu(self) -> bool {
        self.flags & qp_flags::ON_GPU != 0
    }

    /// Returns whether the QP is on another NIC than the one whose keys kernels know.
    #[inline(always)]
    pub(super) fn has_moved(self) -> bool {
        HAS_FAILOVER && self.flags & qp_flags::MOVED != 0
    }

    /// Returns whether the queue has the common fast configuration: it is in GPU memory, and the NIC needs the doorbell
    /// record before the doorbell.
    #[inline(always)]
    pub(super) fn is_plain(self) -> bool {
        self.flags & (qp_flags::ON_GPU | qp_flags::LATE_RECORD) == qp_flags::ON_GPU
    }

    /// Returns whether the queue is in GPU memory, and the NIC tolerates a doorbell record that arrives after the
    /// doorbell.
    #[inline(always)]
    pub(super) fn is_plain_and_late(self) -> bool {
        const BOTH: u32 = qp_flags::ON_GPU | qp_flags::LATE_RECORD;
        self.flags & BOTH == BOTH
    }

    /// Rings the doorbell for all blocks before `end`, whoever wrote them.
    #[inline(always)]
    pub(super) fn ring_doorbell(self, end: u64) {
        if self.is_on_gpu() {
            self.ring(end, Gpu::fence, Gpu::release)
        } else {
            self.ring(end, Sys::fence, Sys::release)
        }
    }

    /// Rings the doorbell for all blocks before `end`, written by this thread or by lanes synchronised with it.
    ///
    /// A release suffices, and unlike a full fence it does not invalidate the L1 cache. An acquire would only matter
    /// for later loads, and there are none. The stores below still follow those of the last doorbell holder: that
    /// thread released the doorbell word before this thread read it, and these stores depend on the value read and come
    /// after the release.
    #[inline(always)]
    pub(super) fn ring_own_doorbell(self, end: u64) {
        if self.is_on_gpu() {
            self.ring(end, Gpu::release, Gpu::release)
        } else {
            self.ring(end, Sys::release, Sys::release)
        }
    }

    /// Stores the doorbell record and then the doorbell register. `fence` runs before both stores, `between` between
    /// them.
    ///
    /// WQEs, record and register become visible in this order, to the NIC and to every other observer. Both stores are
    /// strong at system scope, and each follows a release at the scope that covers queue and record. The second release
    /// is needed wherever the two are: a GPU's stores to different memories take different paths, even though PCIe
    /// preserves order. It usually waits for a single store to GPU memory. A NIC with [`qp_flags::LATE_RECORD`] accepts
    /// a record that arrives after the doorbell and does not need it.
    ///
    /// The callers choose the fences with one branch around all of this. With a condition on each fence, ptxas would
    /// predicate the fences, and a fence costs 60 cycles even when its predicate is false.
    #[inline(always)]
    fn ring(self, end: u64, fence: impl FnOnce(), between: impl FnOnce()) {
        fence();
        // SAFETY: the host mapped both, and one thread at a time writes them.
        unsafe {
            <u32 as SysWord>::store_relaxed(self.dbr.ptr(), record_word(end as u16));
            if self.flags & qp_flags::LATE_RECORD == 0 {
                between();
            }
            arch::store_mmio(self.uar.ptr(), Doorbell::producer(self.qpn, end as u16).raw());
        }
    }
}
