//! Locks among PEs, granted in the order of requests.
//!
//! A lock is a queue of PEs (Mellor-Crummey and Scott). One PE, the home of the lock, has a word that names the last
//! requester. A requester swaps its own number in and gets its predecessor's, announces itself to that predecessor, and
//! waits for a word in its own memory. A contended lock thus costs each PE two messages, and no PE polls the network.
#![allow(unsafe_code, reason = "names the words of a lock by their offsets")]

use bytemuck::{Pod, Zeroable};

use super::Cmp;
use crate::arch;
use crate::ctx::Ctx;
use crate::error::{Detail, Error, Result};
use crate::group::Thread;
use crate::heap::Sym;
use crate::sharing::Sharing;
use crate::wait::Needs;
use crate::watch::{self, Event, PeRange};

/// A lock: an element of symmetric memory, free when all zero. It is held by a PE, of which only one thread at a time
/// may request it.
///
/// OpenSHMEM 1.6 section 9.12.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Lock {
    /// PE number of the last requester plus one, or 0 if the lock is free. Only used on the home PE.
    last: u64,
    /// PE number of the requester after this PE, plus one; 0 while unknown.
    next: u64,
    /// 1 once this PE's predecessor has passed the lock on.
    granted: u64,
    /// 1 while this PE holds the lock.
    held: u64,
}

impl Lock {
    /// Returns the PE that requested last, which holds the lock or waits for it. Call it on the copy at the lock's
    /// home, to see whether PEs are waiting.
    ///
    /// Returns `None` on all other copies, and while the lock is free.
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

/// # Locks
///
/// Mutual exclusion among PEs by [`Lock`]s.
impl<S: Sharing> Ctx<'_, S> {
    /// Acquires the lock. Waits while other PEs hold it; requests are served in order. Everything the last holder did
    /// before it cleared the lock is complete.
    ///
    /// OpenSHMEM 1.6 section 9.12.1, `shmem_set_lock`.
    ///
    /// # Errors
    /// - [`Error::BadLock`]: this PE holds it already.
    /// - [`Error::WaitTimeout`]: the lock was not granted before the deadline. It is unusable from then on.
    /// - The errors of [`Ctx::atomic_swap`].
    #[inline(always)]
    #[track_caller]
    pub fn set_lock(&self, lock: Sym<Lock>) -> Result {
        let (me, home) = self.prepare_request(lock)?;
        // The swap enqueues this PE and returns its predecessor, if there is one.
        let before = self.for_job_words().atomic_swap(lock.word(LAST), me, home)?;
        if before != 0 {
            // The predecessor reset these words before it queued up, so they are ours to set.
            self.fence_system();
            // The word holds a PE number plus one, so the cast does not truncate.
            self.atomic_set(lock.word(NEXT), me, before as u32 - 1)?;
            let _ =
                self.await_word(("set_lock", Needs::pe(before as u32 - 1)), lock.word(GRANTED), Cmp::Ne, 0)?;
        }
        self.mark_held("set_lock", lock);
        Ok(())
    }

    /// Acquires the lock if it is free. Returns whether this PE now holds it; OpenSHMEM's function returns 0 in that
    /// case.
    ///
    /// OpenSHMEM 1.6 section 9.12.1, `shmem_test_lock`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::set_lock`]. A loop of failing calls returns [`Error::WaitTimeout`] at the deadline, like
    ///   one of [`Ctx::test`]; the lock remains usable.
    #[inline(always)]
    #[track_caller]
    pub fn test_lock(&self, lock: Sym<Lock>) -> Result<bool> {
        let begin = arch::ticks();
        let (me, home) = self.prepare_request(lock)?;
        let last = self.for_job_words().atomic_compare_swap(lock.word(LAST), 0, me, home)?;
        if last != 0 {
            self.test_failed(begin, last, 0, lock.offset())?;
            return Ok(false);
        }
        arch::clear_failed_tests();
        self.mark_held("test_lock", lock);
        Ok(true)
    }

    /// Completes this PE's operations through this context, like [`Ctx::quiet`], and then passes the lock to the next
    /// requester.
    ///
    /// OpenSHMEM 1.6 section 9.12.1, `shmem_clear_lock`.
    ///
    /// # Errors
    /// - [`Error::BadLock`]: this PE does not hold it.
    /// - The errors of [`Ctx::quiet`] and [`Ctx::atomic_swap`].
    #[inline(always)]
    #[track_caller]
    pub fn clear_lock(&self, lock: Sym<Lock>) -> Result {
        self.check(lock)?;
        if self.local_one(lock.word(HELD)).load(0) == 0 {
            return Err(self.bad_lock(lock));
        }
        self.quiet(Thread)?;
        self.local_one(lock.word(HELD)).store(0, 0);
        watch::note("clear_lock", self.lock_event(lock, false));
        let me = self.my_pe() as u64 + 1;
        let home = self.lock_home(lock);
        // Nobody is queued if the last requester is still this PE.
        if self.for_job_words().atomic_compare_swap(lock.word(LAST), me, 0, home)? == me {
            return Ok(());
        }
        // A successor is queued but may not have announced itself yet.
        let next = self.await_word(("clear_lock", Needs::NOBODY), lock.word(NEXT), Cmp::Ne, 0)?;
        self.atomic_set(lock.word(GRANTED), 1, next as u32 - 1)?;
        self.quiet_pe(next as u32 - 1)
    }

    /// Returns the home PE of a lock. It depends on the offset, which spreads the locks of a program over the PEs.
    #[inline(always)]
    fn lock_home(&self, lock: Sym<Lock>) -> u32 {
        (lock.offset() / 128).checked_rem(self.n_pes() as u64).unwrap_or(0) as u32
    }

    /// Resets this PE's words of the lock before a request. Returns this PE's number plus one, and the home PE of the
    /// lock.
    #[inline(always)]
    #[track_caller]
    fn prepare_request(&self, lock: Sym<Lock>) -> Result<(u64, u32)> {
        self.check(lock)?;
        if self.local_one(lock.word(HELD)).load(0) != 0 {
            return Err(self.bad_lock(lock));
        }
        // No other PE writes these words while this PE is not queued.
        self.local_one(lock.word(NEXT)).store(0, 0);
        self.local_one(lock.word(GRANTED)).store(0, 0);
        self.fence_system();
        Ok((self.my_pe() as u64 + 1, self.lock_home(lock)))
    }

    #[inline(always)]
    #[track_caller]
    fn mark_held(&self, name: &'static str, lock: Sym<Lock>) {
        self.local_one(lock.word(HELD)).store(0, 1);
        watch::note(name, self.lock_event(lock, true));
        self.fence_system();
    }

    #[inline(always)]
    fn lock_event(&self, lock: Sym<Lock>, is_held: bool) -> Event {
        let lock = PeRange::new(self.my_pe(), lock.offset(), size_of::<Lock>() as u64);
        Event::Lock { lock, is_held }
    }

    #[cold]
    #[inline(always)]
    #[track_caller]
    fn bad_lock(&self, lock: Sym<Lock>) -> Error {
        let held = self.local_one(lock.word(HELD)).load(0);
        self.fail(Error::BadLock, Detail { found: held, offset: lock.offset(), ..Detail::NONE })
    }
}
