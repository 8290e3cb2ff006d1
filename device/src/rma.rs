//! Put and get: remote memory access in OpenSHMEM's sense, issued by the threads of a kernel.
//!
//! What completes when, on every path:
//!
//! | call | returns when |
//! |---|---|
//! | `put_nbi`, `get_nbi` | the operation is posted; `quiet` completes it |
//! | `put`, `p` | `put`: the source may be reused; `p`: the value has been taken. Delivery needs `quiet` |
//! | `get`, `g` | the data is here |
//!
//! The near end of a transfer is this PE's copy of symmetric memory, or a [`Local`](crate::Local) buffer: see
//! [`LocalBuffer`] for what it cannot be.
//!
//! Operations of one thread to one PE are delivered in order only where `fence` or `quiet` says so.

use core::panic::Location;

use bytemuck::Pod;
use rushmem_mlx5::Wqe;

use crate::abi::{DevAddr, QpEntry, ctx_flags};
use crate::arch::SysWord;
use crate::copy::copy;
use crate::ctx::Ctx;
use crate::error::{Error, Result, Site, length_mismatch, outcome};
use crate::group::{Group, Thread, agree, refused};
use crate::heap::{LocalBuffer, Sym, SymSlice, near};
use crate::post::{Lanes, begin, post};
use crate::qp::{Qp, Ticket};
use crate::sharing::Sharing;

/// Longest message of one WQE: 2^30 bytes, the QP's `log_msg_max`.
pub(crate) const MAX_MESSAGE: u64 = 1 << 30;

/// A plain value that fits in one inline WQE and one fetch slot.
pub trait Scalar: Pod + sealed::Sealed {}

mod sealed {
    use rushmem_mlx5::Inline;

    use crate::coll::{Bf16, F16};

    pub trait Sealed: Sized {
        fn inline(self) -> Inline;
        fn from_word(word: u64) -> Self;
    }

    macro_rules! scalar {
        ($($t:ty, $bits:ty, $inline:ident;)*) => {$(
            impl Sealed for $t {
                #[inline(always)]
                fn inline(self) -> Inline {
                    Inline::$inline(bytemuck::cast::<$t, $bits>(self))
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
        u8, u8, from_u8; i8, u8, from_u8; u16, u16, from_u16; i16, u16, from_u16;
        u32, u32, from_u32; i32, u32, from_u32; f32, u32, from_u32;
        u64, u64, from_u64; i64, u64, from_u64; f64, u64, from_u64;
        usize, u64, from_u64; isize, u64, from_u64;
        F16, u16, from_u16; Bf16, u16, from_u16;
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Put,
    Get,
}
impl<S: Sharing> Ctx<S> {
    /// Starts to copy `src` of this PE to `dst` of `pe`; returns once posted.
    ///
    /// `src` must not change before `quiet`. Lengths of both must be equal; 0 elements do nothing.
    /// OpenSHMEM 1.6 section 9.6, `shmem_put_nbi`. On a NIC: RDMA WRITE.
    ///
    /// ```ignore
    /// ctx.put_nbi(Block::current(), dst, src, right)?;
    /// ctx.quiet(Block::current())?; // `src` is free, `dst` of `right` is written
    /// ```
    ///
    /// # Errors
    /// [`Error::BadPe`], [`Error::OutOfRange`], [`Error::LengthMismatch`]; those of a full queue that does not
    /// drain before the deadline or has failed.
    #[inline(always)]
    #[track_caller]
    pub fn put_nbi<G: Group, T: Pod>(
        &self,
        group: G,
        dst: SymSlice<T>,
        src: impl LocalBuffer<T>,
        pe: u32,
    ) -> Result {
        self.transfer(group, Direction::Put, dst, near(src), pe, false).map(|_| ())
    }

    /// Copies `src` of this PE to `dst` of `pe`; returns once `src` may be reused.
    ///
    /// Delivery is not implied: `quiet` does that, `fence` orders it. OpenSHMEM 1.6 section 9.5, `shmem_put`.
    ///
    /// # Errors
    /// As [`Ctx::put_nbi`], and an operation that the NIC completed with an error.
    #[inline(always)]
    #[track_caller]
    pub fn put<G: Group, T: Pod>(
        &self,
        group: G,
        dst: SymSlice<T>,
        src: impl LocalBuffer<T>,
        pe: u32,
    ) -> Result {
        self.transfer(group, Direction::Put, dst, near(src), pe, true).map(|_| ())
    }

    /// Starts to copy `src` of `pe` to `dst` of this PE; returns once posted, `quiet` completes it.
    ///
    /// OpenSHMEM 1.6 section 9.6, `shmem_get_nbi`. On a NIC: RDMA READ.
    ///
    /// # Errors
    /// As [`Ctx::put_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn get_nbi<G: Group, T: Pod>(
        &self,
        group: G,
        dst: impl LocalBuffer<T>,
        src: SymSlice<T>,
        pe: u32,
    ) -> Result {
        self.transfer(group, Direction::Get, src, near(dst), pe, false).map(|_| ())
    }

    /// Copies `src` of `pe` to `dst` of this PE; returns once the data is here, for all threads of the group.
    ///
    /// OpenSHMEM 1.6 section 9.5, `shmem_get`.
    ///
    /// # Errors
    /// As [`Ctx::put`].
    #[inline(always)]
    #[track_caller]
    pub fn get<G: Group, T: Pod>(
        &self,
        group: G,
        dst: impl LocalBuffer<T>,
        src: SymSlice<T>,
        pe: u32,
    ) -> Result {
        self.transfer(group, Direction::Get, src, near(dst), pe, true).map(|_| ())
    }

    /// Writes one value to `dst` of `pe`; the value has been taken when the call returns.
    ///
    /// OpenSHMEM 1.6 section 9.5, `shmem_p`. On a NIC: RDMA WRITE with the value inline, no source buffer.
    ///
    /// # Errors
    /// As [`Ctx::put_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn p<T: Scalar>(&self, dst: Sym<T>, value: T, pe: u32) -> Result {
        if let Some(to) = self.quick(pe, dst.offset(), size_of::<T>() as u64) {
            // SAFETY: inside of the peer's heap, which is mapped.
            unsafe { crate::arch::write(to, value) };
            return Ok(());
        }
        if let Some(to) = self.place(dst, pe)? {
            // SAFETY: as above.
            unsafe { crate::arch::write(to, value) };
            return Ok(());
        }
        let qp = self.qp(pe);
        let (raddr, rkey) = self.remote_end(&qp, dst.offset());
        let wqe = Wqe::WriteInline { raddr, rkey, data: sealed::Sealed::inline(value) };
        post(Thread, &qp, 1, &wqe, Location::caller()).map(|_| ())
    }

    /// Reads one value of `pe`.
    ///
    /// OpenSHMEM 1.6 section 9.5, `shmem_g`. On a NIC: RDMA READ into a slot of the QP's own.
    ///
    /// # Errors
    /// As [`Ctx::put`].
    #[inline(always)]
    #[track_caller]
    pub fn g<T: Scalar>(&self, src: Sym<T>, pe: u32) -> Result<T> {
        if let Some(from) = self.quick(pe, src.offset(), size_of::<T>() as u64) {
            // SAFETY: inside of the peer's heap, which is mapped.
            return Ok(unsafe { crate::arch::read(from) });
        }
        if let Some(from) = self.place(src, pe)? {
            // SAFETY: as above.
            return Ok(unsafe { crate::arch::read(from) });
        }
        let (qp, heap, site) = (self.qp(pe), self.parts_ref().heap, Location::caller());
        let from = self.remote_end(&qp, src.offset());
        let (error, word) = fetch_value::<S>(qp.entry(), heap, from, size_of::<T>() as u32, site);
        match Error::from_code(error) {
            Some(error) => Err(error),
            None => Ok(sealed::Sealed::from_word(word)),
        }
    }

    /// A put or a get: `remote` lies at `pe`, `local` here. The leader's ticket, if the NIC does it.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn transfer<G: Group, T: Pod>(
        &self,
        group: G,
        direction: Direction,
        remote: SymSlice<T>,
        local: SymSlice<T>,
        pe: u32,
        complete: bool,
    ) -> Result<Option<Ticket>> {
        if !G::READY {
            group.sync();
        }
        let copied = |(there, here): (*mut T, *mut T)| {
            // SAFETY: both are inside of their heaps, or segments.
            unsafe {
                match direction {
                    Direction::Put => copy(group, there, here.cast_const(), local.len()),
                    Direction::Get => copy(group, here, there.cast_const(), local.len()),
                }
            }
            if complete || !G::READY {
                group.sync();
            }
            Ok(None)
        };
        if let Some(places) = self.quick_places(remote, local, pe) {
            return copied(places);
        }
        let far = self.is_far(remote, local, pe);
        if !far {
            if !self.may_transfer(remote, local, pe) {
                return refused(if group.leader() { self.check_transfer(remote, local, pe) } else { Ok(()) });
            }
            if let Some(places) = self.places(remote, local, pe) {
                return copied(places);
            }
        }
        let mut ticket = None;
        let mine = if group.leader() {
            let qp = self.qp(pe);
            let (there, here) = if far {
                let (lkey, rkey) = qp.keys();
                ((remote.offset(), rkey), (local.offset(), lkey))
            } else {
                (self.remote_end(&qp, remote.offset()), self.local_end(&qp, local.offset()))
            };
            let (entry, bytes, site) = (qp.entry(), local.bytes(), Location::caller());
            let (code, end) = send::<G, S>(group, entry, direction, there, here, bytes, complete, site);
            ticket = if end != 0 { Some(Ticket(end)) } else { None };
            outcome(code)
        } else {
            Ok(())
        };
        agree(group, mine)?;
        Ok(ticket)
    }

    /// Where an object is on `pe`, if its memory is mapped. [`Ctx::quick`] has had no answer.
    ///
    /// # Errors
    /// [`Error::BadPe`], [`Error::OutOfRange`].
    #[inline(always)]
    #[track_caller]
    fn place<T: Pod>(&self, object: Sym<T>, pe: u32) -> Result<Option<*mut T>> {
        self.check_pe(pe)?;
        self.check(object)?;
        Ok(self.at_peer(pe).mapped::<T>(object.offset()))
    }

    /// Where the ends of a transfer are, `remote` first, if both lie in heaps, and that of `pe` is near: with one branch, as
    /// [`Ctx::quick`].
    #[inline(always)]
    pub(crate) fn quick_places<T: Pod>(
        &self,
        remote: SymSlice<T>,
        local: SymSlice<T>,
        pe: u32,
    ) -> Option<(*mut T, *mut T)> {
        let last = remote.offset().max(local.offset());
        let same = remote.len() == local.len();
        // Where the last byte may be: past the end of the heap, if the lengths differ.
        let bytes = if same { local.bytes() } else { u64::MAX };
        let _: *mut T = self.quick(pe, last, bytes)?;
        let p = self.parts_ref();
        Some((self.near(pe, remote.offset()), p.heap.add(local.offset()).ptr()))
    }

    /// True if a transfer between heaps, whose arguments are right, goes through a NIC: the way of almost all that does, with
    /// one branch.
    #[inline(always)]
    fn is_far<T: Pod>(&self, remote: SymSlice<T>, local: SymSlice<T>, pe: u32) -> bool {
        let (p, bytes) = (self.parts_ref(), local.bytes());
        let far = pe.wrapping_sub(p.near_from) >= p.near_count && p.flags & ctx_flags::OTHERS_FAR != 0;
        let last = remote.offset().max(local.offset());
        let fits = bytes <= p.heap_bytes && last <= p.heap_bytes.wrapping_sub(bytes);
        pe < p.n_pes && far && fits && remote.len() == local.len()
    }

    /// As [`Ctx::quick_places`] for arguments for which [`Ctx::may_transfer`] holds, if the memory of `pe` is mapped.
    #[inline(always)]
    pub(crate) fn places<T: Pod>(
        &self,
        remote: SymSlice<T>,
        local: SymSlice<T>,
        pe: u32,
    ) -> Option<(*mut T, *mut T)> {
        let there = self.at_peer(pe).mapped::<T>(remote.offset())?;
        Some((there, self.address(local.offset())))
    }

    /// What [`Ctx::check_transfer`] checks, without a record.
    #[inline(always)]
    pub(crate) fn may_transfer<T: Pod>(&self, remote: SymSlice<T>, local: SymSlice<T>, pe: u32) -> bool {
        let (bytes, heap) = (local.bytes(), self.parts_ref().heap_bytes);
        if pe >= self.n_pes() || remote.len() != local.len() {
            return false;
        }
        // One comparison for both where both are in the heap.
        let in_heap = bytes <= heap && remote.offset().max(local.offset()) <= heap - bytes;
        in_heap || self.has(remote) && self.has(local)
    }

    /// Checks the arguments of a transfer; lengths in `found` and `wanted` of the record are elements.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_transfer<T: Pod>(&self, remote: SymSlice<T>, local: SymSlice<T>, pe: u32) -> Result {
        self.check_pe(pe)?;
        self.check_slice(remote)?;
        self.check_slice(local)?;
        if remote.len() == local.len() {
            return Ok(());
        }
        let (found, wanted) = (local.len() as u64, remote.len() as u64);
        Err(length_mismatch(self.parts_ref().state, pe, found, wanted, Location::caller()))
    }
}

/// The leader's part of a transfer through a NIC: `left` bytes between `raddr` at the peer and `laddr` here, each with
/// its key. Returns an error's code, or 0 and the ticket of what was posted, which is 0 if nothing was. Not inlined, so that
/// a kernel with many transfers stays small.
#[inline(never)]
#[allow(clippy::too_many_arguments)] // plain words, or every kernel would get a stack
pub(crate) fn send<G: Group, S: Sharing>(
    group: G,
    entry: *mut QpEntry,
    direction: Direction,
    (mut raddr, rkey): (u64, u32),
    (mut laddr, lkey): (u64, u32),
    mut left: u64,
    complete: bool,
    site: Site,
) -> (u32, u64) {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let mut ticket = Ticket(0);
    while left > 0 {
        let len = left.min(MAX_MESSAGE) as u32;
        let wqe = match direction {
            Direction::Put => Wqe::Write { raddr, rkey, laddr, lkey, len },
            Direction::Get => Wqe::Read { raddr, rkey, laddr, lkey, len },
        };
        match post(group, &qp, 1, &wqe, site) {
            Ok(posted) => ticket = posted,
            Err(error) => return (error as u32, 0),
        }
        raddr += len as u64;
        laddr += len as u64;
        left -= len as u64;
    }
    if complete
        && ticket.0 != 0
        && let Err(error) = qp.wait(ticket, site)
    {
        return (error as u32, 0);
    }
    (0, ticket.0)
}

/// Reads `len` bytes, at most 8, of the peer. As [`send`]; returns an error's code, or 0 and the bytes.
#[inline(never)]
fn fetch_value<S: Sharing>(
    entry: *mut QpEntry,
    heap: DevAddr,
    (raddr, rkey): (u64, u32),
    len: u32,
    site: Site,
) -> (u32, u64) {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let lkey = qp.desc().lkey;
    match fetch(&qp, heap, 1, |laddr| Wqe::Read { raddr, rkey, laddr, lkey, len }, site) {
        Ok(word) => (0, word),
        Err(error) => (error as u32, 0),
    }
}

/// Posts a WQE whose result goes to a fetch slot, and waits for it. The word is what lies in the slot.
#[inline(always)]
pub(crate) fn fetch<S: Sharing>(
    qp: &Qp<'_, S>,
    heap: DevAddr,
    blocks: u64,
    wqe: impl FnOnce(u64) -> Wqe,
    site: Site,
) -> Result<u64> {
    let posting = begin(qp, Lanes::of(Thread, qp, blocks, site), blocks, site)?;
    let index = posting.first;
    let taken = qp.take_fetch_slot(index, site);
    let slot = qp.fetch_slot(index);
    if taken.is_ok() {
        posting.write(qp, index, &wqe(slot), posting.last);
    }
    let ticket = posting.commit_if(qp, taken)?;
    qp.wait(ticket, site)?;
    // SAFETY: the QP's own slot in the heap; the NIC has written it, and nobody else does before it is freed.
    let word = unsafe { <u64 as SysWord>::load_acquire(heap.add(slot).ptr()) };
    qp.free_fetch_slot(index);
    Ok(word)
}
