//! Checks and hashes of the arguments of collective calls.
//!
//! Used by both implementations: [`call`](super::call) for teams with NIC peers, and [`p2p`](super::p2p) for teams
//! whose members are all reached by loads and stores.

#![allow(unsafe_code, reason = "reads the member list of a team, and words of peers")]

use bytemuck::Pod;

use super::element::{is_defined, log_size};
pub(super) use crate::abi::call_kind as kind;
use crate::abi::{TeamDesc, team_words};
use crate::arch::{self, SysWord};
use crate::ctx::Ctx;
use crate::error::{Detail, Error, Result, Site, length_mismatch, outcome, record};
use crate::group::Group;
use crate::heap::{Signal, Sym, SymSlice};
use crate::sharing::Sharing;
use crate::tend::{Tended, poll_until};
use crate::wait::{Needs, Until, lost};

/// Call hash of a member that found its own arguments to be invalid.
pub(super) const WRONG: u32 = kind::WRONG << kind::SHIFT;

/// A range of the symmetric heap: offset and length, in bytes.
pub(super) type Span = (u64, u64);

#[inline(always)]
pub(super) fn span_of<T: Pod>(object: SymSlice<T>) -> Span {
    (object.offset(), object.bytes())
}

/// Returns the hash of a collective call by `group`: see [`kind::hash`].
#[inline(always)]
pub(super) fn call_hash<G: Group>(group: G, generation: u32, kind: u32, arguments: [u64; 4]) -> u32 {
    kind::hash(group.channels(), generation, kind, arguments)
}

/// Checks that the destination and source of a collective are in symmetric memory and do not overlap, unless `src`
/// starts at `may`.
///
/// All checks take the `site` of the call as an argument, because a closure has no caller location.
#[inline(always)]
pub(super) fn check_spans<S>(site: Site, ctx: &Ctx<S>, dst: Span, src: Span, may: u64) -> Result {
    ctx.check_bytes_at(dst.0, dst.1, site)?;
    ctx.check_bytes_at(src.0, src.1, site)?;
    // Empty ranges overlap nothing.
    let apart = dst.1 == 0 || src.1 == 0 || dst.0 + dst.1 <= src.0 || src.0 + src.1 <= dst.0;
    if apart || src.0 == may {
        return Ok(());
    }
    let d = Detail { found: dst.0, offset: src.0, ..Detail::NONE };
    Err(record(ctx.parts_ref().state, Error::Overlap, d, site))
}

/// Checks that two lengths, in bytes, are equal.
#[inline(always)]
pub(super) fn check_equal<S>(site: Site, ctx: &Ctx<S>, found: u64, wanted: u64) -> Result {
    if found == wanted {
        return Ok(());
    }
    Err(length_mismatch(ctx.parts_ref().state, u32::MAX, found, wanted, site))
}

/// Returns how many bytes `n` strided elements span, gaps included.
#[inline(always)]
fn extent(n: u64, stride: u64, size: u64) -> u64 {
    if n == 0 { 0 } else { (n - 1).saturating_mul(stride).saturating_add(1).saturating_mul(size) }
}

/// Strides of destination and source in a strided collective, in elements.
pub(super) type Strides = (u64, u64);

/// Checks that destination and source have room for `all` strided elements of `size` bytes.
#[inline(always)]
pub(super) fn check_strided<S>(
    site: Site,
    ctx: &Ctx<S>,
    all: u64,
    dst: Span,
    src: Span,
    (dst_stride, src_stride): Strides,
    size: u64,
) -> Result {
    let fits = |(_, bytes): Span, stride: u64| {
        let wanted = if stride == 0 { u64::MAX } else { extent(all, stride, size) };
        if wanted <= bytes { Ok(()) } else { check_equal(site, ctx, bytes, wanted) }
    };
    check_spans(site, ctx, dst, src, u64::MAX)
        .and_then(|()| fits(dst, dst_stride))
        .and_then(|()| fits(src, src_stride))
}

/// Packs both strides into one argument of a call hash.
#[inline(always)]
pub(super) fn packed((dst_stride, src_stride): Strides) -> u64 {
    dst_stride << 32 ^ src_stride
}

/// A reduction of an element type, as the numbers of [`Reduce`](super::Reduce) and [`ElementKind`](super::ElementKind).
#[derive(Clone, Copy)]
pub(super) struct Reduction {
    pub(super) op: u32,
    pub(super) kind: u32,
}

impl Reduction {
    /// Packs the reduction into one argument of a call hash.
    #[inline(always)]
    pub(super) fn word(self) -> u64 {
        (self.op as u64) << 32 | self.kind as u64
    }

    /// Checks that the reduction is defined, and that destination and source consist of whole, aligned elements.
    #[inline(always)]
    pub(super) fn check<S>(self, site: Site, ctx: &Ctx<S>, dst: Span, src: Span) -> Result {
        let state = ctx.parts_ref().state;
        let Some(log) = log_size(self.kind).filter(|_| is_defined(self.op, self.kind)) else {
            let d = Detail { found: self.op as u64, wanted: self.kind as u64, ..Detail::NONE };
            return Err(record(state, Error::BadReduction, d, site));
        };
        // Sizes are powers of two, so one test covers the alignment of the offset and of the length.
        let odd = |(offset, bytes): Span| (offset | bytes) & ((1 << log) - 1) != 0;
        if odd(dst) || odd(src) {
            let d =
                Detail { found: src.1, wanted: ctx.parts_ref().heap_bytes, offset: src.0, ..Detail::NONE };
            return Err(record(state, Error::OutOfRange, d, site));
        }
        Ok(())
    }
}

/// Returns whether a reduction is defined and its elements are aligned. `places` is the bitwise or of all offsets and
/// lengths, in bytes.
#[doc(hidden)]
pub fn is_defined_for(op: u32, kind: u32, places: u64) -> bool {
    is_defined(op, kind) && log_size(kind).is_some_and(|log| places & ((1 << log) - 1) == 0)
}

/// Returns the start of share `i` when `bytes` bytes are divided into `n` shares. A multiple of 16 below `bytes`, so no
/// share splits an element.
#[inline(always)]
pub(super) fn cut(bytes: u64, i: u64, n: u64) -> u64 {
    let units = bytes.div_ceil(16);
    (units.wrapping_mul(i).checked_div(n).unwrap_or(0) * 16).min(bytes)
}

/// Returns the part of `bytes` bytes that `group` moves, as offset and length. The parts of all channels partition the
/// bytes.
///
/// There is at most one channel for each started `per_channel` bytes, so small amounts use channel 0 alone.
#[inline(always)]
pub(super) fn part<G: Group>(group: G, bytes: u64, per_channel: u64) -> Span {
    if group.channels() == 1 {
        return (0, bytes);
    }
    part_of(group.channel(), group.channels(), bytes, per_channel)
}

/// Alignment of the ranges that [`part`] returns, in bytes: a cache line. Empty ranges may be unaligned.
const PART_UNIT: u64 = 128;

/// Implements [`part`] for channel `channel` of `channels`.
#[inline(always)]
fn part_of(channel: u32, channels: u32, bytes: u64, per_channel: u64) -> Span {
    // As many channels as pay off, but no more than there are.
    let of = bytes.div_ceil(per_channel).min(channels as u64).max(1) as u32;
    let share = share_of(bytes.div_ceil(PART_UNIT) + of as u64 - 1, of) * PART_UNIT;
    let cut = |i: u32| share.saturating_mul(i as u64).min(bytes);
    let begin = cut(channel);
    (begin, cut(channel + 1) - begin)
}

/// Returns the length of the longest part of `bytes` bytes that a channel of a P2P team moves, in a job of `n_pes`.
pub(super) fn longest_part(channels: u32, bytes: u64, n_pes: u32) -> u64 {
    if channels == 1 {
        return bytes;
    }
    // The first part is as long as any.
    part_of(0, channels, bytes, team_words::p2p_bytes_per_channel(n_pes)).1
}

/// Returns `bytes / n`, by a 32-bit division where possible: 64-bit divisions are slow on GPUs.
#[inline(always)]
pub(super) fn share_of(bytes: u64, n: u32) -> u64 {
    match u32::try_from(bytes) {
        Ok(bytes) => (bytes / n.max(1)) as u64,
        Err(_) => bytes / n.max(1) as u64,
    }
}

/// Wraps a member's rank below `2 * n` into `0..n`.
#[inline(always)]
pub(super) fn wrapped(member: u32, n: u32) -> u32 {
    if member >= n { member - n } else { member }
}

/// Returns the PE of a member. `pes` is the PE of member 0 and the stride to the next member; a stride of 0 means that
/// the strides vary.
#[inline(always)]
pub(super) fn pe_of(desc: *mut TeamDesc, pes: (u32, u32), member: u32) -> u32 {
    match pes {
        (_, 0) => listed(desc, member),
        (start, stride) => start.wrapping_add(member.wrapping_mul(stride)),
    }
}

/// Looks the PE of a member up in the team's list. Outlined, because few teams need it.
#[cold]
#[inline(never)]
fn listed(desc: *mut TeamDesc, member: u32) -> u32 {
    // SAFETY: the caller got `desc` from a team with that member, and the list has a word for each member.
    unsafe { arch::read((*desc).pes.ptr::<u32>().add(member as usize)) }
}

/// Returns the offset, within the words of a team of `n`, of the word that `member` writes at check-in `number`.
#[inline(always)]
pub(super) fn check_in_word(number: u64, n: u32, member: u32) -> u64 {
    let set = (number & 1) * n as u64;
    team_words::MEETINGS + (set + member as u64) * 8
}

/// Returns the handle of a word that the runtime keeps at `offset` of the symmetric heap.
#[inline(always)]
pub(super) fn team_word(offset: u64) -> Sym<Signal> {
    // SAFETY: the host has reserved it at the same offset on all members.
    unsafe { Sym::from_raw(offset) }
}

/// Returns where the scratch of a team channel starts, relative to the channel's words, and its length in bytes.
/// `bytes` is the total length of the channel in a team of `n`.
#[inline(always)]
pub(super) fn scratch_of(bytes: u64, n: u32) -> (u64, u64) {
    let words = team_words::scratch(n);
    (words, bytes.saturating_sub(words))
}

/// Returns what the waits of a call need that is made on the team with this entry: all its members.
#[inline(always)]
pub(super) fn needs_of(desc: *const TeamDesc) -> Needs {
    // SAFETY: the host made the entry, and the slot is the same for all teams in it.
    Needs::members(unsafe { (*desc).slot })
}

/// Waits until the upper half of a word on this PE, which member `pe` of the team writes, is `number`. Returns the lower
/// half.
#[inline(always)]
pub(super) fn await_number<S: Sharing>(
    ctx: &Ctx<S>,
    offset: u64,
    number: u32,
    (desc, pe): (*const TeamDesc, u32),
    site: Site,
) -> Result<u32> {
    let (at, state) = (ctx.address::<u64>(offset), ctx.parts_ref().state);
    // SAFETY: an aligned word of the heap: the runtime's own, or one of a checked range.
    let read = || unsafe { u64::load_acquire(at) };
    let needs = needs_of(desc);
    let arrived = |found| (found >> 32) as u32 == number;
    let (code, found) = poll_until(Tended::of(ctx), Until::lost(needs), read, arrived);
    if code == Error::PeerLost as u32 {
        return Err(lost(state, needs, site));
    }
    if code == Error::Timeout as u32 {
        let d = Detail { peer: pe, found: found >> 32, wanted: number as u64, offset, ..Detail::NONE };
        return Err(record(state, Error::WaitTimeout, d, site));
    }
    outcome(code).map(|()| found as u32)
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_bytes_once() {
        let sizes = (0..70).map(|k| k * 997).chain([8192, 8193, 1 << 20, (1 << 20) + 1, (64 << 20) + 24]);
        for bytes in sizes {
            for channels in [1, 2, 3, 7, 64] {
                let mut end = 0;
                for channel in 0..channels {
                    let (begin, len) = part_of(channel, channels, bytes, 8192);
                    let begins_well = begin == end && begin.is_multiple_of(PART_UNIT);
                    assert!(len == 0 || begins_well, "{bytes} bytes, part {channel} of {channels}");
                    end += len;
                }
                assert_eq!(end, bytes);
            }
        }
    }

    #[test]
    fn small_transfers_use_one_channel() {
        assert_eq!(part_of(0, 64, 8192, 8192), (0, 8192));
        assert_eq!(part_of(1, 64, 8192, 8192), (8192, 0));
        assert_eq!(part_of(1, 64, 8193, 8192), (4096 + 128, 8193 - 4096 - 128));
    }
}
