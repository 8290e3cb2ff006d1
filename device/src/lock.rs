//! Locks among PEs, granted in the order of request.
//!
//! A queue of PEs (Mellor-Crummey and Scott): the lock's ctx_ref, one of the PEs, has a word that says who asked last. Who asks
//! swaps itself in there and finds its predecessor, tells it so, and waits for a word of its own memory; so a lock that many
//! want costs each of them two messages and no polling of the network.
#![allow(unsafe_code, reason = "names the words of a lock by their offsets")]

use bytemuck::{Pod, Zeroable};

use crate::arch::{Scope, Sys};
use crate::ctx::Ctx;
use crate::error::{Detail, Error, Result};
use crate::group::Thread;
use crate::heap::Sym;
use crate::sharing::Sharing;
use crate::wait_until::Cmp;

/// A lock, as an element of symmetric memory; all zero is free. PEs hold it, one thread of each at a time asks for it.
/// OpenSHMEM 1.6 section 9.12.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Lock {
    /// At its ctx_ref: the PE that asked last, plus one; 0 if it is free.
    last: u64,
    /// Who asked after this PE, plus one.
    next: u64,
    /// 1 once this PE may go on.
    granted: u64,
    /// 1 while this PE holds it.
    held: u64,
}

impl Lock {
    /// The PE that asked last and has not been served, or holds it: of the copy at the lock's ctx_ref, which a host may read to
    /// see who waits for whom. `None` in all other copies, and while the lock is free.
    pub fn last_to_ask(self) -> Option<u32> {
        self.last.checked_sub(1).map(|pe| pe as u32)
    }
}

impl Sym<Lock> {
    #[inline(always)]
    const fn word(self, index: u64) -> Sym<u64> {
        // SAFETY: a word of an object of this type; an invalid handle stays beyond every heap.
        unsafe { Sym::from_raw(self.offset().saturating_add(8 * index)) }
    }
}

const LAST: u64 = 0;
const NEXT: u64 = 1;
const GRANTED: u64 = 2;
const HELD: u64 = 3;

impl<S: Sharing> Ctx<S> {
    /// Takes the lock; waits as long as other PEs hold it, who get it in the order in which they asked. What the last holder
    /// did before it cleared the lock is complete. OpenSHMEM 1.6 section 9.12.1, `shmem_set_lock`.
    ///
    /// # Errors
    /// [`Error::BadLock`] if this PE holds it; [`Error::WaitTimeout`] if it does not come before the deadline, after which
    /// the lock is of no use any more; those of the atomics.
    #[inline(always)]
    #[track_caller]
    pub fn set_lock(&self, lock: Sym<Lock>) -> Result {
        let (me, home) = self.prepare_request(lock)?;
        let before = self.atomic_swap(lock.word(LAST), me, home)?;
        if before != 0 {
            // Only a PE asks, so its number fits.
            self.atomic_set(lock.word(NEXT), me, before as u32 - 1)?;
            let _ = self.await_word(lock.word(GRANTED), Cmp::Ne, 0)?;
        }
        self.mark_held(lock);
        Ok(())
    }

    /// Takes the lock if it is free; true if this PE has it now. (OpenSHMEM's returns 0 then.) OpenSHMEM 1.6 section 9.12.1,
    /// `shmem_test_lock`.
    ///
    /// # Errors
    /// As [`Ctx::set_lock`], but for the deadline.
    #[inline(always)]
    #[track_caller]
    pub fn test_lock(&self, lock: Sym<Lock>) -> Result<bool> {
        let (me, home) = self.prepare_request(lock)?;
        let free = self.atomic_compare_swap(lock.word(LAST), 0, me, home)? == 0;
        if free {
            self.mark_held(lock);
        }
        Ok(free)
    }

    /// Gives the lock to whoever asked next, after `quiet`: what this PE did through this context is complete before
    /// anybody else has the lock. OpenSHMEM 1.6 section 9.12.1, `shmem_clear_lock`.
    ///
    /// # Errors
    /// [`Error::BadLock`] if this PE does not hold it; those of [`Ctx::quiet`] and the atomics.
    #[inline(always)]
    #[track_caller]
    pub fn clear_lock(&self, lock: Sym<Lock>) -> Result {
        self.check(lock)?;
        if self.local_one(lock.word(HELD)).load(0) == 0 {
            return Err(self.bad_lock(lock));
        }
        self.quiet(Thread)?;
        self.local_one(lock.word(HELD)).store(0, 0);
        let me = self.my_pe() as u64 + 1;
        if self.atomic_compare_swap(lock.word(LAST), me, 0, self.lock_home(lock))? == me {
            return Ok(());
        }
        let next = self.await_word(lock.word(NEXT), Cmp::Ne, 0)?;
        self.atomic_set(lock.word(GRANTED), 1, next as u32 - 1)?;
        self.quiet_pe(next as u32 - 1)
    }

    /// The PE that has the word of who asked last: the locks of a program are spread over all.
    #[inline(always)]
    fn lock_home(&self, lock: Sym<Lock>) -> u32 {
        (lock.offset() / 128).checked_rem(self.n_pes() as u64).unwrap_or(0) as u32
    }

    /// Makes this PE's words those of one who begins to ask; its number plus one, and the ctx_ref.
    #[inline(always)]
    #[track_caller]
    fn prepare_request(&self, lock: Sym<Lock>) -> Result<(u64, u32)> {
        self.check(lock)?;
        if self.local_one(lock.word(HELD)).load(0) != 0 {
            return Err(self.bad_lock(lock));
        }
        // Nobody else writes these words: this PE is not in the queue.
        self.local_one(lock.word(NEXT)).store(0, 0);
        self.local_one(lock.word(GRANTED)).store(0, 0);
        Sys::fence();
        Ok((self.my_pe() as u64 + 1, self.lock_home(lock)))
    }

    #[inline(always)]
    fn mark_held(&self, lock: Sym<Lock>) {
        self.local_one(lock.word(HELD)).store(0, 1);
        Sys::fence();
    }

    #[cold]
    #[inline(always)]
    #[track_caller]
    fn bad_lock(&self, lock: Sym<Lock>) -> Error {
        let held = self.local_one(lock.word(HELD)).load(0);
        self.fail(Error::BadLock, Detail { found: held, offset: lock.offset(), ..Detail::NONE })
    }
}
