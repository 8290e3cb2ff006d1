//! Copies data of this PE to several members of a team at the same time.
//!
//! A thread stores a few units to every target before it loads the next ones. The links to all targets are busy at the
//! same time, and the copy within this PE's own memory overlaps with the stores to peers.

#![allow(unsafe_code, reason = "copies between checked addresses")]

use super::args::wrapped;
use super::fold::{Four, load_four, load_unit, member_addr, store_four, store_unit};
use crate::abi::DevAddr;
use crate::outlined::outlined;
use crate::rma::copy::copy_part;

/// Maximum number of 16-byte units per thread for which a copy loads eight at a time. A short copy waits for the
/// latency of loads. In a longer one, a link carries slightly more if each thread has only four loads in flight.
const SHORT: u64 = 32;

/// A copy of data of this PE to the members of a team.
#[derive(Clone, Copy)]
pub(super) struct Spread {
    /// Address of the data for member 0, and distance to the data for the next member.
    pub(super) src: (u64, u64),
    /// Address of the destination on this PE.
    pub(super) own: u64,
    /// Address of the destination on member 0. With a list of the members' PEs: on PE 0.
    pub(super) first: u64,
    /// Wrapping distance between the destinations on successive members. With a list of the members' PEs: on successive
    /// PEs.
    pub(super) step: u64,
    /// Address of the list of the members' PEs, or 0 if addresses are computed from member ranks.
    pub(super) pes: DevAddr,
    /// Rank of this member, and number of members.
    pub(super) members: (u32, u32),
    /// Rank of a member that receives nothing; `u32::MAX` if all do.
    pub(super) except: u32,
    /// Length of the data for one member, in bytes.
    pub(super) bytes: u64,
}

impl Spread {
    /// Loads from the address of each target's data, and stores to its destination. Data that is the same for all targets
    /// is loaded once.
    #[inline(always)]
    fn each<T: Copy>(self, load: impl Fn(u64) -> T, store: impl Fn(u64, T)) {
        let (me, n) = self.members;
        let from = |member: u32| self.src.0.wrapping_add(self.src.1.wrapping_mul(member as u64));
        let mut data = load(from(wrapped(me + 1, n)));
        let mut k = 1;
        while k <= n {
            let member = wrapped(me + k, n);
            if member != self.except {
                if k > 1 && self.src.1 != 0 {
                    data = load(from(member));
                }
                store(member_addr(self.own, self.first, self.step, self.pes, me, member), data);
            }
            k += 1;
        }
    }
}

outlined! {
    /// Runs the copy, as one of `(rank, size)` threads of a group. Each thread copies a share.
    ///
    /// Stores start with the member after this one, so concurrent callers store to different members.
    ///
    /// # Safety
    /// - For each member but `except`, the data is valid for reads of `bytes` bytes, and the destination is valid for
    ///   writes until the kernel returns. They do not overlap.
    /// - The threads have different ranks below `size`. `pes` is 0 or has a word for each member.
    pub(super) unsafe fn run(
        thread: (u32, u32);
        spread: Spread {
            src: (u64, u64),
            own: u64,
            first: u64,
            step: u64,
            pes: DevAddr,
            members: (u32, u32),
            except: u32,
            bytes: u64,
        }
    ) {
        let Spread { src, own, first, step, bytes, .. } = spread;
        let aligned = (src.0 | src.1 | own | first | step | bytes) & 15 == 0;
        if !aligned {
            // SAFETY: the data of each target is readable and its destination writable, by this function's contract.
            return spread.each(|from| from, |to, from| unsafe {
                copy_part(thread, DevAddr(to).ptr(), DevAddr(from).ptr::<u8>().cast_const(), bytes as usize, 1);
            });
        }
        let (units, threads, mut i) = (bytes / 16, thread.1 as u64, thread.0 as u64);
        // Loads of different data for each target do not wait for each other.
        let is_short = units <= SHORT * threads || src.1 != 0;
        // SAFETY: all units are below `units`, so they lie within the data and the destinations, which are valid by this
        // function's contract and multiples of 16.
        unsafe {
            while !is_short && i + 3 * threads < units {
                spread.each(|from| load_four(from, i, threads), |to, four| store_four(to, i, threads, four));
                i += 4 * threads;
            }
            while i + 7 * threads < units {
                let load = |from| (load_four(from, i, threads), load_four(from, i + 4 * threads, threads));
                spread.each(load, |to, (a, b)| {
                    store_four(to, i, threads, a);
                    store_four(to, i + 4 * threads, threads, b);
                });
                i += 8 * threads;
            }
            while i < units {
                let load = |from| {
                    (load_within(from, i, threads, units), load_within(from, i + 4 * threads, threads, units))
                };
                spread.each(load, |to, (a, b)| {
                    store_within(to, i, threads, units, a);
                    store_within(to, i + 4 * threads, threads, units, b);
                });
                i += 8 * threads;
            }
        }
    }
}

/// Loads four units like [`load_four`], but loads the last of `units` units instead of any beyond it. Without branches,
/// all loads are issued before the first store.
///
/// # Safety
/// `from` is a multiple of 16, and `units` units are valid for reads there, at least one.
#[inline(always)]
unsafe fn load_within(from: u64, i: u64, step: u64, units: u64) -> Four {
    // SAFETY: the index is below `units`.
    let unit = |k: u64| unsafe { load_unit(from + (i + k * step).min(units - 1) * 16) };
    Four(unit(0), unit(1), unit(2), unit(3))
}

/// Stores those of four units whose index is below `units`.
///
/// # Safety
/// `to` is a multiple of 16, and `units` units are valid for writes there until the kernel returns.
#[inline(always)]
unsafe fn store_within(to: u64, i: u64, step: u64, units: u64, Four(a, b, c, d): Four) {
    let store = |k: u64, unit| {
        if i + k * step < units {
            // SAFETY: the index is below `units`.
            unsafe { store_unit(to + (i + k * step) * 16, unit) }
        }
    };
    store(0, a);
    store(1, b);
    store(2, c);
    store(3, d);
}
