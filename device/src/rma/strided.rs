//! Strided puts and gets: blocks of elements at equal distances, on either side or on both.
//!
//! On mapped memory, the threads of the group share the elements. Through a NIC, each block is a separate WQE. The
//! threads of the group write the WQEs together, and each half of the send queue takes one doorbell and one completion.
//! Blocks of a single element make for tiny messages: if copying into a contiguous buffer is cheap, a `put` of that
//! buffer is faster.
#![allow(unsafe_code, reason = "copies blocks between checked addresses")]

use core::panic::Location;

use bytemuck::Pod;
use rushmem_mlx5::Wqe;

use super::copy::copy;
use super::{Direction, Form, MAX_MESSAGE};
use crate::abi::QpEntry;
use crate::arch;
use crate::ctx::Ctx;
use crate::error::{Detail, Error, Result, Site, length_mismatch};
use crate::group::{Group, agree};
use crate::heap::Strided;
use crate::outlined::outlined;
use crate::post::post_many;
use crate::sharing::Sharing;
use crate::sq::Qp;
use crate::watch::{self, Blocks, Event, Operation, PeRange};

/// # Strided put and get
///
/// Transfers of blocks that are at equal distances from each other.
impl<S: Sharing> Ctx<'_, S> {
    /// Copies the blocks of `src`, on this PE, to the blocks of `dst` on `pe`. Returns once `src` may be reused.
    /// Elements between the blocks are not touched on either side.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// /// Sends column `k` of a matrix of `width` columns to a contiguous array of the next PE.
    /// #[kernel]
    /// pub fn send_column(ctx: &Ctx, dst: SymSlice<f32>, matrix: SymSlice<f32>, width: u64, k: u64) -> Result {
    ///     let column = matrix.slice(k as usize..matrix.len()).every(width as usize);
    ///     ctx.iput(Block::current(), dst.every(1), column, ctx.pe_after(1))
    /// }
    /// # fn main() {}
    /// ```
    ///
    /// OpenSHMEM 1.6 section 9.5, `shmem_iput` and, for blocks of several elements, `shmem_ibput`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::put`].
    /// - [`Error::BadStride`]: a block or stride of 0, or a stride shorter than the block.
    /// - [`Error::LengthMismatch`]: the two sides differ in the number of blocks, or in the length of a block.
    #[inline(always)]
    #[track_caller]
    pub fn iput<G: Group, T: Pod>(&self, group: G, dst: Strided<T>, src: Strided<T>, pe: u32) -> Result {
        self.blocks(group, Direction::Put, dst, src, pe, Form::blocking("iput"))
    }

    /// Starts copying like [`Ctx::iput`]. Returns once posted; [`Ctx::quiet`] completes it. Neither OpenSHMEM nor
    /// NVSHMEM has such a call.
    ///
    /// # Errors
    /// - The errors of [`Ctx::put_nbi`] and [`Ctx::iput`].
    #[inline(always)]
    #[track_caller]
    pub fn iput_nbi<G: Group, T: Pod>(&self, group: G, dst: Strided<T>, src: Strided<T>, pe: u32) -> Result {
        self.blocks(group, Direction::Put, dst, src, pe, Form::nonblocking("iput_nbi"))
    }

    /// Copies the blocks of `src`, on `pe`, to the blocks of `dst` on this PE. Returns once the data has arrived.
    ///
    /// OpenSHMEM 1.6 section 9.5, `shmem_iget` and `shmem_ibget`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::iput`].
    #[inline(always)]
    #[track_caller]
    pub fn iget<G: Group, T: Pod>(&self, group: G, dst: Strided<T>, src: Strided<T>, pe: u32) -> Result {
        self.blocks(group, Direction::Get, src, dst, pe, Form::blocking("iget"))
    }

    /// Starts copying like [`Ctx::iget`]. Returns once posted; [`Ctx::quiet`] completes it.
    ///
    /// # Errors
    /// - The errors of [`Ctx::iput_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn iget_nbi<G: Group, T: Pod>(&self, group: G, dst: Strided<T>, src: Strided<T>, pe: u32) -> Result {
        self.blocks(group, Direction::Get, src, dst, pe, Form::nonblocking("iget_nbi"))
    }

    #[inline(always)]
    #[track_caller]
    fn blocks<G: Group, T: Pod>(
        &self,
        group: G,
        direction: Direction,
        remote: Strided<T>,
        local: Strided<T>,
        pe: u32,
        form: Form,
    ) -> Result {
        group.sync();
        let checked = if group.leader() { self.check_blocks(remote, local, pe) } else { Ok(()) };
        agree(group, checked)?;
        self.check_pe(pe)?;
        let event = self.blocks_event(direction, remote, local, pe, form);
        let _call = watch::lead(group, form.name, event);
        if let Some(there) = self.peer_addr::<T>(pe, remote.whole.offset()) {
            let here = self.address::<T>(local.whole.offset());
            // SAFETY: both were checked to be inside of their heaps.
            unsafe {
                match direction {
                    Direction::Put => copy_blocks(group, (there, remote), (here, local)),
                    Direction::Get => copy_blocks(group, (here, local), (there, remote)),
                }
            }
            group.sync();
            return Ok(());
        }
        let qp = self.qp(pe);
        let (there, here) =
            (self.remote_data(&qp, remote.whole.offset()), self.local_data(&qp, local.whole.offset()));
        let bytes = |elements: u64| elements * size_of::<T>() as u64;
        let (steps, count) = ((bytes(remote.stride), bytes(local.stride)), local.len() as u64);
        let (block, complete) = (bytes(local.block), form.waits);
        let blocks = NicBlocks { direction, there, here, steps, block, count, complete };
        let mine = send_blocks::<G, S>(group, qp.peer_entry(), Location::caller(), blocks);
        agree(group, mine)
    }

    /// Returns the event that reports a strided transfer to the sanitizer.
    #[inline(always)]
    fn blocks_event<T: Pod>(
        &self,
        direction: Direction,
        remote: Strided<T>,
        local: Strided<T>,
        pe: u32,
        form: Form,
    ) -> Event {
        let (parts, count) = (self.parts_ref(), local.len() as u64);
        let bytes = |elements: u64| elements.wrapping_mul(size_of::<T>() as u64);
        let side = |pe: u32, side: Strided<T>| Blocks {
            first: PeRange::new(pe, side.whole.offset(), bytes(side.block)),
            stride: bytes(side.stride),
        };
        let (there, here) = (side(pe, remote), side(parts.pe, local));
        let operation = match direction {
            Direction::Put => Operation::PutBlocks { src: here, dst: there, count },
            Direction::Get => Operation::GetBlocks { src: there, dst: here, count },
        };
        Event::post(parts, operation, form.completion(direction))
    }

    #[inline(always)]
    #[track_caller]
    fn check_blocks<T: Pod>(&self, remote: Strided<T>, local: Strided<T>, pe: u32) -> Result {
        self.check_pe(pe)?;
        for side in [remote, local] {
            self.check_slice(side.whole)?;
            if side.block == 0 || side.stride < side.block {
                let d = Detail { peer: pe, found: side.stride, wanted: side.block, ..Detail::NONE };
                return Err(self.fail(Error::BadStride, d));
            }
        }
        if remote.len() == local.len() && remote.block == local.block {
            return Ok(());
        }
        let elements = |side: Strided<T>| side.len() as u64 * side.block;
        let (found, wanted) = (elements(local), elements(remote));
        Err(length_mismatch(self.parts_ref().state, pe, found, wanted, Location::caller()))
    }
}

/// Copies the blocks of `src` to the blocks of `dst`, with all threads of the group. Each side comes with the address
/// of its first element.
///
/// # Safety
/// The first elements of both sides are at these addresses and valid. Both sides have as many blocks.
#[inline(always)]
unsafe fn copy_blocks<G: Group, T: Pod>(
    group: G,
    (to, dst): (*mut T, Strided<T>),
    (from, src): (*mut T, Strided<T>),
) {
    // Blocks of one element are distributed over the threads; longer blocks are copied one by one, by all threads
    // together.
    let alone = dst.block == 1;
    let (mut i, step) = if alone { (group.rank() as usize, group.size() as usize) } else { (0, 1) };
    while i < dst.len() {
        // SAFETY: block `i` of each side.
        unsafe {
            let (to, from) = (to.add(i * dst.stride as usize), from.add(i * src.stride as usize));
            if alone {
                arch::write(to, arch::read(from));
            } else {
                copy(group, to, from.cast_const(), dst.block as usize);
            }
        }
        i += step;
    }
}

/// A strided transfer through a NIC, by address and key of the first block at each PE.
#[derive(Clone, Copy)]
struct NicBlocks {
    direction: Direction,
    there: (u64, u32),
    here: (u64, u32),
    /// Distances between the starts of successive blocks, in bytes: at the peer, and at this PE.
    steps: (u64, u64),
    /// Length of a block, in bytes.
    block: u64,
    count: u64,
    complete: bool,
}

outlined! {
    /// Posts a strided transfer to a NIC, with all threads of the group. Outlined to keep kernels with many calls
    /// small.
    fn send_blocks[G: Group, S: Sharing](
        group: G,
        entry: *mut QpEntry,
        site: Site;
        blocks: NicBlocks {
            direction: Direction,
            there: (u64, u32),
            here: (u64, u32),
            steps: (u64, u64),
            block: u64,
            count: u64,
            complete: bool,
        }
    ) -> Result {
        let NicBlocks { direction, there: (raddr, rkey), here: (laddr, lkey), .. } = blocks;
        let NicBlocks { steps: (rstep, lstep), block, count, complete, .. } = blocks;
        // SAFETY: the caller has it from a QP.
        let qp = unsafe { Qp::<S>::of(entry) };
        // A block is one message, unless it exceeds the maximum of 1 GiB.
        let mut ticket = None;
        let mut done = 0;
        while done < block {
            let len = (block - done).min(MAX_MESSAGE);
            let wqe = |i: u64| {
                let (raddr, laddr) = (raddr + i * rstep + done, laddr + i * lstep + done);
                let len = len as u32;
                match direction {
                    Direction::Put => Wqe::Write { raddr, rkey, laddr, lkey, len },
                    Direction::Get => Wqe::Read { raddr, rkey, laddr, lkey, len },
                }
            };
            ticket = post_many(group, &qp, count, wqe, site)?;
            done += len;
        }
        // The last WQE of `post_many` is signalled, so waiting for it completes them all.
        match ticket {
            Some(t) if complete && group.leader() => qp.wait(t, site),
            _ => Ok(()),
        }
    }
}
