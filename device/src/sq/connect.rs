//! Connecting a QP on demand: the handshake of a kernel with the host.
//!
//! A QP without connection looks full, so its first poster arrives in `wait_slow` and from there in [`connect`].
//!
//! ```text
//! kernel                                    host
//!   wanted = 1, requested = 1  ---------->  connects the QP with the peer
//!   connection, done           <----------  connection, answer
//! ```
//!
//! The answer comes in host memory, because the host may not be able to write GPU memory while a kernel waits. One thread
//! copies the connection into the QP's entry and then advances `done` to [`FIRST_BLOCK`], for which the others wait.
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

/// Turns of waiting between two looks at the answer in host memory, by threads that have not asked for the connection.
const SELDOM: u32 = 1 << 10;

/// Asks the host to connect the QP, and waits until it has. Outlined, like `wait_slow`.
///
/// # Errors
/// - [`Error::Unconnected`]: the host did not answer before the deadline.
/// - [`Error::Poisoned`]: the host could not connect the QP; the launch reports the reason.
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
    let asks = is_first(offset_of!(QpState, connect_requested));
    if asks {
        request(desc, handshake);
    }
    // SAFETY: the host made the state, and nobody changes this field while kernels run.
    let connect_ns = || unsafe { (*desc.pe_state.ptr::<DeviceState>()).connect_ns };
    let mut watch = Watch::new(desc.pe_state);
    let mut turns = 0u32;
    // The thread that fetches the connection may be any thread of the GPU, so the scope is the GPU's.
    // SAFETY: a word of the QP's state.
    while unsafe { Gpu::load_acquire(done) } == 0 {
        // If all threads of a GPU polled host memory, they would slow down the host's answer.
        turns = turns.wrapping_add(1);
        let looks = asks || turns.is_multiple_of(SELDOM);
        // SAFETY: a word of the handshake.
        let answer = unsafe {
            if looks { <u32 as SysWord>::load_acquire(&raw const (*handshake).answer) } else { answer::NONE }
        };
        match answer {
            answer::CONNECTED if is_first(offset_of!(QpState, connect_fetched)) => {
                // SAFETY: the host has written the connection before the answer, and `is_first` holds in one thread.
                unsafe { fetch_connection(&qp, handshake) }
            }
            answer::FAILED => {
                // SAFETY: a word of the QP's state.
                unsafe { Gpu::store_release(qp.poison_word(), Error::Unconnected as u64) };
                return Err(Error::Poisoned);
            }
            _ => match watch.turn() {
                Ok(()) => {}
                // The deadline of a connection is often longer. It is read here only, since few registers are free.
                Err(Error::Timeout) if !watch.has_lasted(connect_ns()) => {}
                Err(Error::Timeout) => {
                    let detail = Detail { peer: desc.peer, ..Detail::NONE };
                    return Err(qp.poison(Error::Unconnected, detail, site));
                }
                Err(other) => return Err(other),
            },
        }
    }
    Ok(())
}

/// Asks the host for the connection.
#[inline(always)]
fn request(desc: &QpDesc, handshake: *mut Handshake) {
    // SAFETY: the host made handshake and control page, and reads these words atomically.
    unsafe {
        <u32 as SysWord>::store_release(&raw mut (*handshake).wanted, 1);
        let control = (*desc.pe_state.ptr::<DeviceState>()).control.ptr::<ControlPage>();
        <u32 as SysWord>::store_release(&raw mut (*control).requested, 1);
    }
}

/// Copies the connection into the QP's entry, and releases the threads that wait for it.
///
/// # Safety
/// `handshake` is the QP's, and the host has written the connection there. No other thread calls this for the QP.
#[inline(always)]
unsafe fn fetch_connection<S: Sharing>(qp: &Qp<S>, handshake: *const Handshake) {
    let entry = qp.entry();
    // SAFETY: the host wrote the connection, by this function's contract. Other threads read the entry's copy only after
    // they have seen `done`, which is stored last.
    unsafe {
        (&raw const (*handshake).connection).copy_to_nonoverlapping(&raw mut (*entry).connection, 1);
        if (*entry).connection.flags & qp_flags::WEAK != 0 {
            let state = qp.desc().pe_state.ptr::<DeviceState>();
            Gpu::store_relaxed(&raw mut (*state).weak.word, 1);
        }
        Gpu::store_release(qp.word(offset_of!(QpState, done)), FIRST_BLOCK);
    }
}
