//! Put and get: OpenSHMEM remote memory access, called by the threads of a kernel.
//!
//! | call | returns when |
//! |---|---|
//! | `put_nbi`, `get_nbi` | the operation is posted; `quiet` completes it |
//! | `put` | the source may be reused; `quiet` completes delivery |
//! | `p` | the value has been taken; `quiet` completes delivery |
//! | `get`, `g` | the data has arrived |
//!
//! The local operand of a transfer is this PE's copy of symmetric memory or a [`Local`](crate::Local) buffer: see
//! [`LocalBuffer`]. Operations of one thread to one PE are unordered, unless `fence` or `quiet` separates them.
//!
//! # Paths
//!
//! 1. P2P peer: the threads of the group copy by loads and stores.
//! 2. NIC peer, both operands in heaps: the leader posts a WQE.
//! 3. Everything else (segments, wrong arguments): a function named `*_slow` repeats the checks and does the work.
//!
//! A single inlined check, which only needs kernel parameters, selects the path.
#![allow(unsafe_code, reason = "accesses checked addresses of mapped heaps, and QPs by entry")]

use core::panic::Location;

use bytemuck::Pod;
use rushmem_mlx5::{Inline, Wqe};

use super::copy::{copy_one, copy_part};
use crate::abi::{DevAddr, QpEntry, ctx_flags};
use crate::arch::{self, SysWord};
use crate::ctx::Ctx;
use crate::ctx::CtxRef;
use crate::error::{Error, Result, Site, length_mismatch, outcome};
use crate::group::{Group, Thread, agree, refused};
use crate::heap::{LocalBuffer, Sym, SymSlice, local_operand};
use crate::outlined::outlined;
use crate::post::{Lanes, begin, post};
use crate::sharing::Sharing;
use crate::sq::{EndIndex, Qp};
use crate::watch::{self, Completion, Event, Operation, PeRange};

/// Maximum length of the message of one WQE, in bytes. Corresponds to the `log_msg_max` with which the host creates
/// QPs.
pub(crate) const MAX_MESSAGE: u64 = 1 << 30;

/// A plain value of 1, 2, 4 or 8 bytes. It fits in an inline WQE and in a fetch slot.
pub trait Scalar: Pod + sealed::Sealed {}

mod sealed {
    use crate::half::{Bf16, F16};

    pub trait Sealed: Sized {
        fn word(self) -> u64;
        fn from_word(word: u64) -> Self;
    }

    macro_rules! scalar {
        ($($t:ty, $bits:ty;)*) => {$(
            impl Sealed for $t {
                #[inline(always)]
                fn word(self) -> u64 {
                    bytemuck::cast::<$t, $bits>(self) as u64
                }
                #[inline(always)]
                fn from_word(word: u64) -> Self {
                    bytemuck::cast::<$bits, $t>(word as $bits)
                }
            }
            impl super::Scalar for $t {}
        )*};
    }
    scalar! {
        u8, u8; i8, u8; u16, u16; i16, u16; u32, u32; i32, u32; f32, u32; u64, u64; i64, u64; f64, u64;
        usize, u64; isize, u64; F16, u16; Bf16, u16;
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Put,
    Get,
}

/// Variant of a transfer call, which may wait and may have a signal.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    pub(crate) name: &'static str,
    /// Whether the call waits until what it posts has completed.
    pub(crate) waits: bool,
    /// Whether the call's signal is ordered after all earlier operations.
    pub(crate) strong: bool,
}

impl Form {
    pub(crate) const fn blocking(name: &'static str) -> Self {
        Self { name, waits: true, strong: false }
    }

    pub(crate) const fn nonblocking(name: &'static str) -> Self {
        Self { name, waits: false, strong: false }
    }

    pub(crate) const fn strong(name: &'static str) -> Self {
        Self { name, waits: false, strong: true }
    }

    /// Returns how far a transfer of this form has got when its call returns, for the sanitizer.
    #[inline(always)]
    pub(crate) fn completion(self, direction: Direction) -> Completion {
        match direction {
            _ if !self.waits => Completion::Posted,
            Direction::Put => Completion::SourceFree,
            Direction::Get => Completion::Done,
        }
    }
}

/// One operand of a transfer, in plain words: heap offset, and number of elements.
pub(crate) type End = (u64, u64);

/// Size and alignment of an element, in bytes.
pub(crate) type Unit = (u32, u32);

#[inline(always)]
pub(crate) fn end_of<T: Pod>(object: SymSlice<T>) -> End {
    (object.offset(), object.len() as u64)
}

/// Returns the memory range that an element occupies on `pe`, for the sanitizer.
#[inline(always)]
pub(crate) fn word_at<T: Pod>(pe: u32, word: Sym<T>) -> PeRange {
    PeRange::new(pe, word.offset(), size_of::<T>() as u64)
}

#[inline(always)]
pub(crate) const fn unit_of<T>() -> Unit {
    (size_of::<T>() as u32, align_of::<T>() as u32)
}

/// # Put and get
///
/// Transfers between this PE and another one, and reads and writes of single values.
impl<S: Sharing> Ctx<'_, S> {
    /// Starts copying `src`, on this PE, to `dst` on PE `pe`. Returns once the operation is posted.
    ///
    /// All threads of `group` call it with equal arguments, and the group acts as one caller. `dst` and `src` must have
    /// the same length, in elements; with 0 elements the call does nothing. `src` must not change before [`Ctx::quiet`]
    /// has completed the put. Puts are not ordered among each other: see [`Ctx::fence`]. On a NIC: RDMA WRITE.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// #[kernel]
    /// pub fn send(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>) -> Result {
    ///     let block = Block::current();
    ///     ctx.put_nbi(block, dst, src, ctx.pe_after(1))?;
    ///     ctx.quiet(block) // `src` is free, and `dst` of the next PE is written
    /// }
    /// # fn main() {}
    /// ```
    ///
    /// OpenSHMEM 1.6 section 9.6, `shmem_put_nbi`.
    ///
    /// # Errors
    /// - [`Error::BadPe`], [`Error::OutOfRange`], [`Error::LengthMismatch`]: invalid arguments. Nothing is transferred.
    /// - [`Error::Timeout`]: the send queue was still full at the deadline.
    /// - [`Error::Completion`], [`Error::Poisoned`]: an error has broken the QP.
    /// - [`Error::PeerLost`]: the NIC peer was lost.
    /// - [`Error::Unconnected`]: the host did not connect the QP before the deadline.
    /// - [`Error::Aborted`]: the job is being aborted.
    /// - [`Error::InGroup`]: another thread of the group encountered the error.
    #[inline(always)]
    #[track_caller]
    pub fn put_nbi<G: Group, T: Pod>(
        &self,
        group: G,
        dst: SymSlice<T>,
        src: impl LocalBuffer<T>,
        pe: u32,
    ) -> Result {
        self.transfer(group, Direction::Put, dst, local_operand(src), pe, Form::nonblocking("put_nbi"))
            .map(|_| ())
    }

    /// Copies `src`, on this PE, to `dst` on PE `pe`. Returns once `src` may be reused.
    ///
    /// Delivery may come later: [`Ctx::quiet`] completes it, [`Ctx::fence`] orders it. Arguments as for
    /// [`Ctx::put_nbi`].
    ///
    /// OpenSHMEM 1.6 section 9.5, `shmem_put`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::put_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn put<G: Group, T: Pod>(
        &self,
        group: G,
        dst: SymSlice<T>,
        src: impl LocalBuffer<T>,
        pe: u32,
    ) -> Result {
        self.transfer(group, Direction::Put, dst, local_operand(src), pe, Form::blocking("put")).map(|_| ())
    }

    /// Starts copying `src`, on PE `pe`, to `dst` on this PE. Returns once the operation is posted.
    ///
    /// `dst` must not be accessed before [`Ctx::quiet`] has completed the get. Arguments as for [`Ctx::put_nbi`], with
    /// the directions swapped. On a NIC: RDMA READ.
    ///
    /// OpenSHMEM 1.6 section 9.6, `shmem_get_nbi`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::put_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn get_nbi<G: Group, T: Pod>(
        &self,
        group: G,
        dst: impl LocalBuffer<T>,
        src: SymSlice<T>,
        pe: u32,
    ) -> Result {
        self.transfer(group, Direction::Get, src, local_operand(dst), pe, Form::nonblocking("get_nbi"))
            .map(|_| ())
    }

    /// Copies `src`, on PE `pe`, to `dst` on this PE. Returns once the data has arrived and all threads of the group
    /// may read it.
    ///
    /// OpenSHMEM 1.6 section 9.5, `shmem_get`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::put_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn get<G: Group, T: Pod>(
        &self,
        group: G,
        dst: impl LocalBuffer<T>,
        src: SymSlice<T>,
        pe: u32,
    ) -> Result {
        self.transfer(group, Direction::Get, src, local_operand(dst), pe, Form::blocking("get")).map(|_| ())
    }

    /// Writes one value to `dst` on PE `pe`, by a single access to the whole word. Returns once the value has been
    /// taken; [`Ctx::quiet`] completes delivery. On a NIC: RDMA WRITE with inline data.
    ///
    /// Called by one thread. It publishes no earlier store: if the value is a flag, [`Ctx::fence`] or [`Ctx::quiet`]
    /// must come first.
    ///
    /// OpenSHMEM 1.6 section 9.5, `shmem_p`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::put_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn p<T: Scalar>(&self, dst: Sym<T>, value: T, pe: u32) -> Result {
        let put = Operation::Put { src: None, dst: word_at(pe, dst), signal: None };
        let _call = watch::call("p", Event::post(self.parts_ref(), put, Completion::Posted));
        if let Some(to) = self.p2p_addr(pe, dst.offset(), size_of::<T>() as u64) {
            // SAFETY: inside of the peer's heap, which is mapped.
            unsafe { arch::write(to, value) };
            return Ok(());
        }
        p_slow::<S>(CtxRef::of(self), dst.offset(), sealed::Sealed::word(value), size_of::<T>() as u32, pe)
    }

    /// Returns the value of `src` on PE `pe`. Called by one thread, which waits for it. On a NIC: RDMA READ into a
    /// fetch slot of the QP.
    ///
    /// On mapped memory this is a plain load, which a cache may serve, so a loop of calls need not see a new value. To
    /// poll a word of another PE, use [`Ctx::atomic_fetch`], or have that PE signal.
    ///
    /// OpenSHMEM 1.6 section 9.5, `shmem_g`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::put_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn g<T: Scalar>(&self, src: Sym<T>, pe: u32) -> Result<T> {
        let get = Operation::Get { src: word_at(pe, src), dst: None };
        let _call = watch::call("g", Event::post(self.parts_ref(), get, Completion::Done));
        if let Some(from) = self.p2p_addr(pe, src.offset(), size_of::<T>() as u64) {
            // SAFETY: inside of the peer's heap, which is mapped.
            return Ok(unsafe { arch::read(from) });
        }
        let (error, word) = g_slow::<S>(CtxRef::of(self), src.offset(), size_of::<T>() as u32, pe);
        match Error::from_code(error) {
            Some(error) => Err(error),
            None => Ok(sealed::Sealed::from_word(word)),
        }
    }

    /// Copies `local`, on this PE, to `remote`, on `pe`, or in the other `direction`. Returns the leader's end index if
    /// a NIC does the transfer.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn transfer<G: Group, T: Pod>(
        &self,
        group: G,
        direction: Direction,
        remote: SymSlice<T>,
        local: SymSlice<T>,
        pe: u32,
        form: Form,
    ) -> Result<Option<EndIndex>> {
        let complete = form.waits;
        // Other threads of the group may have written the source.
        if !G::NEEDS_NO_BARRIER {
            group.sync();
        }
        let event = self.transfer_event(direction, end_of(remote), end_of(local), size_of::<T>(), pe, form);
        let _call = watch::lead(group, form.name, event);
        // P2P: the whole group copies.
        if let Some((there, here)) = self.p2p_operands(remote, local, pe) {
            // Such a call makes no promise to the group's other threads when it returns, so they need not wait for each
            // other.
            let goes_on = G::NEEDS_NO_BARRIER && !complete;
            // SAFETY: both are inside of their heaps.
            unsafe {
                match direction {
                    Direction::Put => copy_one(group, goes_on, there, here.cast_const(), local.len()),
                    Direction::Get => copy_one(group, goes_on, here, there.cast_const(), local.len()),
                }
            }
            if !goes_on {
                group.sync();
            }
            return Ok(None);
        }
        // Neither fast path applies, or the arguments are wrong.
        if !self.is_nic_peer(remote, local, pe) {
            let (remote, local, unit) = (end_of(remote), end_of(local), unit_of::<T>());
            let transfer = Transfer { direction, remote, local, unit, pe, complete };
            let (code, end) = transfer_slow::<G, S>(group, CtxRef::of(self), transfer);
            outcome(code)?;
            return Ok(if end != 0 { Some(EndIndex(end)) } else { None });
        }
        let mut ticket = None;
        let mine = if group.leader() {
            let qp = self.connected_qp(pe);
            let (lkey, rkey) = qp.keys();
            let (there, here) = ((remote.offset(), rkey), (local.offset(), lkey));
            let transfer = NicTransfer { direction, there, here, bytes: local.bytes(), complete };
            let site = Location::caller();
            // Exclusive contexts are for fast posting, so their code is inlined. Otherwise, a kernel with many
            // transfers should stay small.
            let sent = if S::SHARED {
                let (code, end) = send::<G, S, false>(group, qp.entry(), site, transfer);
                outcome(code).map(|()| end)
            } else {
                send_here::<G, S>(group, &qp, site, transfer)
            };
            sent.map(|end| ticket = if end != 0 { Some(EndIndex(end)) } else { None })
        } else {
            Ok(())
        };
        agree(group, mine)?;
        Ok(ticket)
    }

    /// Returns the event that reports a transfer to the sanitizer.
    #[inline(always)]
    fn transfer_event(
        &self,
        direction: Direction,
        (remote, there): End,
        (local, here): End,
        size: usize,
        pe: u32,
        form: Form,
    ) -> Event {
        let (size, parts) = (size as u64, self.parts_ref());
        let there = PeRange::new(pe, remote, there.wrapping_mul(size));
        let here = PeRange::new(parts.pe, local, here.wrapping_mul(size));
        let operation = match direction {
            Direction::Put => Operation::Put { src: Some(here), dst: there, signal: None },
            Direction::Get => Operation::Get { src: there, dst: Some(here) },
        };
        Event::post(parts, operation, form.completion(direction))
    }

    /// Returns the addresses of both operands of a transfer, `remote` first, if both are in heaps and `pe` is a P2P
    /// peer. Costs one branch.
    #[inline(always)]
    pub(crate) fn p2p_operands<T: Pod>(
        &self,
        remote: SymSlice<T>,
        local: SymSlice<T>,
        pe: u32,
    ) -> Option<(*mut T, *mut T)> {
        // All heaps have the same size, so checking the larger offset checks both operands.
        let last = remote.offset().max(local.offset());
        let same = remote.len() == local.len();
        // Different lengths become a length that no heap can hold, which saves a branch.
        let bytes = if same { local.bytes() } else { u64::MAX };
        if !self.is_mapped(pe, last, bytes) {
            return None;
        }
        Some((self.p2p_heap_addr(pe, remote.offset()), self.parts_ref().heap.add(local.offset()).ptr()))
    }

    /// Returns whether the operands form a valid transfer between heaps through a NIC. Almost all NIC transfers take
    /// this path, with one branch.
    #[inline(always)]
    fn is_nic_peer<T: Pod>(&self, remote: SymSlice<T>, local: SymSlice<T>, pe: u32) -> bool {
        let (p, last) = (self.parts_ref(), remote.offset().max(local.offset()));
        let far = !p.is_p2p(pe) && p.flags & ctx_flags::NO_P2P_OTHERS != 0;
        pe < p.n_pes && far && p.has(last, local.bytes()) && remote.len() == local.len()
    }

    /// Returns the addresses of both operands of a transfer, which have been checked, if the memory of `pe` is mapped.
    #[inline(always)]
    pub(crate) fn mapped_operands(&self, remote: End, local: End, pe: u32) -> Option<(*mut u8, *mut u8)> {
        let there = self.peer_addr(pe, remote.0)?;
        Some((there, self.address(local.0)))
    }

    /// Returns whether [`Ctx::check_transfer`] would succeed, without recording anything.
    #[inline(always)]
    pub(crate) fn may_transfer(&self, remote: End, local: End, size: u32, pe: u32) -> bool {
        let (p, bytes) = (self.parts_ref(), local.1 * size as u64);
        // If both operands are in the heap, one comparison suffices.
        let in_place =
            || p.has(remote.0.max(local.0), bytes) || self.has(remote.0, bytes) && self.has(local.0, bytes);
        pe < p.n_pes && remote.1 == local.1 && in_place()
    }

    /// Checks the arguments of a transfer of elements of `size` bytes. In its error records, lengths are in elements.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_transfer(&self, remote: End, local: End, size: u32, pe: u32) -> Result {
        self.check_pe(pe)?;
        self.check_bytes(remote.0, remote.1 * size as u64)?;
        self.check_bytes(local.0, local.1 * size as u64)?;
        if remote.1 == local.1 {
            return Ok(());
        }
        Err(length_mismatch(self.parts_ref().state, pe, local.1, remote.1, Location::caller()))
    }
}

/// Arguments of a transfer, in plain words.
#[derive(Clone, Copy)]
struct Transfer {
    direction: Direction,
    remote: End,
    local: End,
    unit: Unit,
    pe: u32,
    complete: bool,
}

outlined! {
    /// Executes a transfer for which neither fast path applies. Returns an error code, or 0 and the leader's end index,
    /// which is 0 if nothing was posted.
    #[track_caller]
    fn transfer_slow[G: Group, S: Sharing](
        group: G,
        ctx_ref: CtxRef;
        t: Transfer { direction: Direction, remote: End, local: End, unit: Unit, pe: u32, complete: bool }
    ) -> (u32, u64) {
        let Transfer { direction, remote, local, unit: (size, align), pe, complete } = t;
        let ctx = ctx_ref.ctx::<S>();
        // The leader checks once more to write the record; the others only learn that the call was refused.
        if !ctx.may_transfer(remote, local, size, pe) {
            let why = if group.leader() { ctx.check_transfer(remote, local, size, pe) } else { Ok(()) };
            return (refused(why) as u32, 0);
        }
        let bytes = local.1 * size as u64;
        if let Some((there, here)) = ctx.mapped_operands(remote, local, pe) {
            let (to, from) = match direction {
                Direction::Put => (there, here),
                Direction::Get => (here, there),
            };
            // SAFETY: both are inside of their heaps, or segments.
            unsafe {
                copy_part((group.rank(), group.size()), to, from.cast_const(), bytes as usize, align as usize)
            };
            if complete || !G::NEEDS_NO_BARRIER {
                group.sync();
            }
            return (0, 0);
        }
        let (mut mine, mut end) = (Ok(()), 0);
        if group.leader() {
            // In a job with DC initiators, too, the entry of a PE has its keys.
            let qp = ctx.connected_qp(pe);
            let (there, here) = (ctx.remote_data(&qp, remote.0), ctx.local_data(&qp, local.0));
            let transfer = NicTransfer { direction, there, here, bytes, complete };
            let (code, index) = send_to::<G, S>(group, (qp.entry(), ctx.is_dc()), Location::caller(), transfer);
            (mine, end) = (outcome(code), index);
        }
        match agree(group, mine) {
            Ok(()) => (0, end),
            Err(error) => (error as u32, 0),
        }
    }
}

/// Puts the low `bytes` bytes of `word`, where the fast path of [`Ctx::p`] does not apply.
#[inline(never)]
#[track_caller]
fn p_slow<S: Sharing>(ctx_ref: CtxRef, offset: u64, word: u64, bytes: u32, pe: u32) -> Result {
    let ctx = ctx_ref.ctx::<S>();
    ctx.check_word(offset, bytes as u64, pe)?;
    if let Some(to) = ctx.peer_addr::<u8>(pe, offset) {
        // A single access of the value's width, so no reader sees half of it.
        // SAFETY: inside of the peer's memory, which is mapped; the handle's maker has aligned it.
        unsafe {
            match bytes {
                1 => arch::write(to, word as u8),
                2 => arch::write(to.cast(), word as u16),
                4 => arch::write(to.cast(), word as u32),
                _ => arch::write(to.cast(), word),
            }
        }
        return Ok(());
    }
    let qp = ctx.qp(pe);
    let (raddr, rkey) = ctx.remote_word(&qp, offset);
    // The value is part of the WQE, so the caller's copy is free immediately.
    let data = match bytes {
        1 => Inline::from_u8(word as u8),
        2 => Inline::from_u16(word as u16),
        4 => Inline::from_u32(word as u32),
        _ => Inline::from_u64(word),
    };
    post(Thread, &qp, 1, &Wqe::WriteInline { raddr, rkey, data }, Location::caller()).map(|_| ())
}

/// Gets `bytes` bytes, where the fast path of [`Ctx::g`] does not apply. Returns an error code, or 0 and the bytes.
#[inline(never)]
#[track_caller]
fn g_slow<S: Sharing>(ctx_ref: CtxRef, offset: u64, bytes: u32, pe: u32) -> (u32, u64) {
    let ctx = ctx_ref.ctx::<S>();
    if let Err(error) = ctx.check_word(offset, bytes as u64, pe) {
        return (error as u32, 0);
    }
    if let Some(from) = ctx.peer_addr::<u8>(pe, offset) {
        // SAFETY: as in `p_slow`.
        let word = unsafe {
            match bytes {
                1 => arch::read(from) as u64,
                2 => arch::read::<u16>(from.cast()) as u64,
                4 => arch::read::<u32>(from.cast()) as u64,
                _ => arch::read(from.cast()),
            }
        };
        return (0, word);
    }
    let qp = ctx.qp(pe);
    // The result goes to a fetch slot in this PE's heap, under the strict key of words.
    let ((raddr, rkey), lkey) = (ctx.remote_word(&qp, offset), qp.desc().strict_lkey);
    let wqe = |laddr| Wqe::Read { raddr, rkey, laddr, lkey, len: bytes };
    match fetch(&qp, ctx.parts_ref().heap, 1, wqe, Location::caller()) {
        Ok(word) => (0, word),
        Err(error) => (error as u32, 0),
    }
}

/// A transfer through a NIC, whose operands are given by address and memory key.
#[derive(Clone, Copy)]
pub(crate) struct NicTransfer {
    pub(crate) direction: Direction,
    pub(crate) there: (u64, u32),
    pub(crate) here: (u64, u32),
    pub(crate) bytes: u64,
    pub(crate) complete: bool,
}

outlined! {
    /// Outlined version of [`send_here`] for the peer of `entry`. Returns an error code, or 0 and the end index. `DC`
    /// means that the QP of the entry is a DC initiator.
    pub(crate) fn send[G: Group, S: Sharing; const DC: bool](
        group: G,
        entry: *mut QpEntry,
        site: Site;
        transfer: NicTransfer {
            direction: Direction,
            there: (u64, u32),
            here: (u64, u32),
            bytes: u64,
            complete: bool,
        }
    ) -> (u32, u64) {
        // SAFETY: the caller has it from a QP of this kind.
        let qp = unsafe { if DC { Qp::<S>::towards(entry) } else { Qp::<S>::new(entry) } };
        match send_here::<G, S>(group, &qp, site, transfer) {
            Ok(end) => (0, end),
            Err(error) => (error as u32, 0),
        }
    }
}

/// Calls [`send`] with the constant `DC` that applies to `entry`.
#[inline(always)]
pub(crate) fn send_to<G: Group, S: Sharing>(
    group: G,
    (entry, is_dc): (*mut QpEntry, bool),
    site: Site,
    transfer: NicTransfer,
) -> (u32, u64) {
    if is_dc {
        send::<G, S, true>(group, entry, site, transfer)
    } else {
        send::<G, S, false>(group, entry, site, transfer)
    }
}

/// Posts a transfer through a NIC, from the leader of the group. Returns the end index of the posting, or 0 for an
/// empty transfer.
#[inline(always)]
fn send_here<G: Group, S: Sharing>(
    group: G,
    qp: &Qp<'_, S>,
    site: Site,
    transfer: NicTransfer,
) -> Result<u64> {
    let NicTransfer { direction, there: (mut raddr, rkey), here: (mut laddr, lkey), .. } = transfer;
    let mut left = transfer.bytes;
    let mut ticket = EndIndex(0);
    // Larger transfers take several WQEs. Each is posted on its own; waiting for the last one completes them all.
    while left > 0 {
        let len = left.min(MAX_MESSAGE) as u32;
        let wqe = match direction {
            Direction::Put => Wqe::Write { raddr, rkey, laddr, lkey, len },
            Direction::Get => Wqe::Read { raddr, rkey, laddr, lkey, len },
        };
        ticket = post(group, qp, 1, &wqe, site)?;
        raddr += len as u64;
        laddr += len as u64;
        left -= len as u64;
    }
    if transfer.complete && ticket.0 != 0 {
        qp.wait(ticket, site)?;
    }
    Ok(ticket.0)
}

/// Posts a WQE whose result goes to a fetch slot, waits for it to complete, and returns the word in the slot.
#[inline(always)]
pub(crate) fn fetch<S: Sharing>(
    qp: &Qp<'_, S>,
    heap: DevAddr,
    blocks: u64,
    wqe: impl FnOnce(u64) -> Wqe,
    site: Site,
) -> Result<u64> {
    let blocks = qp.blocks(1, blocks);
    let posting = begin(qp, Lanes::of(Thread, qp, blocks, site), blocks, site)?;
    let index = posting.first;
    // The slot belongs to the reserved block. A timeout here poisons the QP, because the block can no longer be posted.
    let taken = qp.take_fetch_slot(index, site);
    let slot = qp.fetch_slot(index);
    if taken.is_ok() {
        posting.write(qp, index, &wqe(slot), posting.last);
    }
    // The lanes of a warp may share the posting, so all must agree that it can be published.
    let ticket = posting.commit_if(qp, taken)?;
    qp.wait(ticket, site)?;
    qp.check_fetch_slot(index, site)?;
    // SAFETY: the QP's own slot in the heap; the NIC has written it, and nobody else does before it is freed.
    let word = unsafe { <u64 as SysWord>::load_acquire(heap.add(slot).ptr()) };
    qp.free_fetch_slot(index);
    Ok(word)
}
