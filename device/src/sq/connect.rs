//! Connecting a QP on demand: the handshake between a kernel and the host.
//!
//! An unconnected QP appears full, so its first poster reaches `wait_slow`, which calls [`connect`].
//!
//! ```text
//! kernel                                    host
//!   wanted = 1, requested = 1  ---------->  connects the QP with the peer
//!   connection, done           <----------  connection, answer
//! ```
//!
//! The answer is in host memory, because the host may be unable to write GPU memory while a kernel is waiting. One
//! thread copies the connection into the QP's entry and then advances `done` to [`FIRST_BLOCK`], which releases all
//! waiters.
#![allow(
    unsafe_code,
    reason = "accesses the handshake and the state words of a QP, at addresses from the host"
)]

use core::mem::offset_of;

use super::Qp;
use crate::abi::{
    ControlPage, DeviceState, FIRST_BLOCK, Handshake, QpDesc, QpEntry, QpState, answer, qp_flags,
};
use crate::arch::{Gpu, Scope, SysWord};
use crate::error::{Detail, Error, Result, Site};
use crate::sharing::Sharing;
use crate::wait::Watch;

/// Number of iterations between two reads of the answer in host memory, for threads that did not request the
/// connection.
const TURNS_PER_ANSWER_READ: u32 = 1 << 10;

/// Requests the connection from the host and waits for it. Outlined for the same reason as `wait_slow`.
///
/// # Errors
/// - [`Error::Unconnected`]: the host did not answer before the deadline.
/// - [`Error::Poisoned`]: the host could not connect the QP. The launch reports why.
/// - [`Error::PeerLost`].
/// - [`Error::Aborted`].
#[cold]
#[inline(never)]
pub(super) fn connect<S: Sharing>(entry: *mut QpEntry, site: Site) -> Result {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let desc = qp.desc();
    let handshake = desc.handshake.ptr::<Handshake>();
    let done = qp.word(offset_of!(QpState, done));
    let is_first = |field| {
        // SAFETY: a word of the QP's state.
        unsafe { Gpu::swap_acq_rel(qp.word(field), 1) == 0 }
    };
    // Any number of threads may arrive here; only the first one notifies the host.
    let asks = is_first(offset_of!(QpState, connect_requested));
    if asks {
        qp.note_process();
        request(desc, handshake, 1);
    }
    let mut watch = Watch::needing(desc.pe_state, qp.needs());
    let mut turns = 0u32;
    // Any thread of the GPU may fetch the connection, whatever `S` is, so the scope is the GPU's.
    // SAFETY: a word of the QP's state.
    while unsafe { Gpu::load_acquire(done) } == 0 {
        // Thousands of threads polling host memory would delay the host's answer. Only the requester reads it on every
        // turn. The others rely on `done`, and read the answer now and then in case the requester has given up.
        turns = turns.wrapping_add(1);
        let looks = asks || turns.is_multiple_of(TURNS_PER_ANSWER_READ);
        // SAFETY: a word of the handshake.
        let answer = unsafe {
            if looks { <u32 as SysWord>::load_acquire(&raw const (*handshake).answer) } else { answer::NONE }
        };
        match answer {
            answer::CONNECTED if is_first(offset_of!(QpState, connect_fetched)) => {
                // SAFETY: the host has written the connection before the answer, and `is_first` holds in one thread.
                unsafe {
                    copy_connection(&qp);
                    Gpu::store_release(done, FIRST_BLOCK);
                }
            }
            answer::FAILED => return Err(qp.refused()),
            _ => qp.unanswered(&mut watch, site)?,
        }
    }
    Ok(())
}

/// Waits for the host's answer to a request of this thread for another connection.
///
/// # Errors
/// The errors of [`connect`].
#[inline(always)]
pub(super) fn wait_for_answer<S: Sharing>(qp: &Qp<'_, S>, site: Site) -> Result {
    let handshake = qp.desc().handshake.ptr::<Handshake>();
    let mut watch = Watch::needing(qp.desc().pe_state, qp.needs());
    loop {
        // SAFETY: a word of the handshake.
        match unsafe { <u32 as SysWord>::load_acquire(&raw const (*handshake).answer) } {
            answer::CONNECTED => return Ok(()),
            answer::FAILED => return Err(qp.refused()),
            _ => qp.unanswered(&mut watch, site)?,
        }
    }
}

impl<S: Sharing> Qp<'_, S> {
    /// Poisons the QP after the host has refused to connect it, and returns the error.
    #[inline(always)]
    fn refused(&self) -> Error {
        // Not `poison`, which would write a record: the host knows the cause and reports it.
        self.mark_poisoned(Error::Unconnected);
        self.poisoned()
    }

    /// Runs one iteration of a wait for the host's answer. On an error other than an abort, the QP is poisoned.
    #[inline(always)]
    fn unanswered(&self, watch: &mut Watch, site: Site) -> Result {
        // SAFETY: the host made the state, and nobody changes this field while kernels run.
        let connect_ns = || unsafe { (*self.desc().pe_state.ptr::<DeviceState>()).connect_ns };
        match watch.turn() {
            // The connection deadline is often longer than the PE's. It is read only here, where registers are scarce.
            Err(Error::Timeout) if !watch.has_lasted(connect_ns()) => Ok(()),
            Err(Error::Timeout) => {
                let detail = Detail { peer: self.desc().peer, ..Detail::NONE };
                Err(self.poison(Error::Unconnected, detail, site))
            }
            Err(Error::PeerLost) => Err(self.poison(Error::PeerLost, Detail::NONE, site)),
            Ok(()) if watch.has_just_looked() && self.is_stale() => Err(self.stale(site)),
            outcome => outcome,
        }
    }
}

/// Requests a connection of a QP from the host: the first if `wanted` is 1, and so on. Sets the QP's own word before the PE-wide
/// flag, so a host that sees the latter finds the former.
#[inline(always)]
pub(super) fn request(desc: &QpDesc, handshake: *mut Handshake, wanted: u32) {
    // SAFETY: the host made handshake and control page, and reads these words atomically.
    unsafe {
        <u32 as SysWord>::store_release(&raw mut (*handshake).wanted, wanted);
        let control = (*desc.pe_state.ptr::<DeviceState>()).control.ptr::<ControlPage>();
        <u32 as SysWord>::store_release(&raw mut (*control).requested, 1);
    }
}

/// Copies the connection from the host's answer into the QP's entry. A release of `done` must follow.
///
/// # Safety
/// The host has written the connection to the handshake. No other thread calls this for the QP, or reads the connection.
#[inline(always)]
pub(super) unsafe fn copy_connection<S: Sharing>(qp: &Qp<S>) {
    let (entry, handshake) = (qp.entry(), qp.desc().handshake.ptr::<Handshake>());
    // SAFETY: the host wrote the connection, by this function's contract. Other threads read the entry's copy only after
    // they have seen `done`, which is stored last.
    unsafe {
        (&raw const (*handshake).connection).copy_to_nonoverlapping(&raw mut (*entry).connection, 1);
        if (*entry).connection.flags & qp_flags::WEAK != 0 {
            // `fence` posts no strong fences while this word is 0, so it must be set before `done` allows anyone to
            // post.
            let state = qp.desc().pe_state.ptr::<DeviceState>();
            Gpu::store_relaxed(&raw mut (*state).weak.word, 1);
        }
    }
}
