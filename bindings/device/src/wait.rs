//! Waits for words of this PE, and tests of them.

use rushmem_device::amo::Amo;
use rushmem_device::{Cmp, Group, Result, Thread};
use rushmem_macros::export;

use crate::call::{Ctx, bad_constant, word_at};

/// Waits until `word` on this PE compares with `value` as `cmp` says.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64, int32: i32, int64: i64])]
fn wait_until<T: Amo + PartialOrd>(
    ctx: &Ctx<'_>,
    group: impl Group,
    word: *const T,
    cmp: i32,
    value: T,
) -> Result {
    let cmp = comparison(ctx, group, cmp)?;
    ctx.wait_until(group, word_at(ctx, group, word)?, cmp, value)
}

/// Waits like `rushmem_device_*_wait_until` for a word that `pe` updates. Fails if `pe` is lost.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64, int32: i32, int64: i64])]
fn wait_until_from<T: Amo + PartialOrd>(
    ctx: &Ctx<'_>,
    group: impl Group,
    word: *const T,
    cmp: i32,
    value: T,
    pe: i32,
) -> Result {
    let cmp = comparison(ctx, group, cmp)?;
    ctx.wait_until_from(group, word_at(ctx, group, word)?, cmp, value, pe as u32)
}

/// Returns 1 if `word` on this PE compares with `value` as `cmp` says, and 0 if not.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64, int32: i32, int64: i64])]
fn test<T: Amo + PartialOrd>(ctx: &Ctx<'_>, word: *const T, cmp: i32, value: T) -> Result<i32> {
    let cmp = comparison(ctx, Thread, cmp)?;
    ctx.test(word_at(ctx, Thread, word)?, cmp, value).map(i32::from)
}

/// Returns the comparison with the number `cmp`, in OpenSHMEM's order of the `SHMEM_CMP_*` constants.
///
/// # Errors
/// - [`Error::BadConstant`](rushmem_device::Error::BadConstant).
#[inline(always)]
#[track_caller]
pub(crate) fn comparison<G: Group>(ctx: &Ctx<'_>, group: G, cmp: i32) -> Result<Cmp> {
    Ok(match cmp {
        0 => Cmp::Eq,
        1 => Cmp::Ne,
        2 => Cmp::Gt,
        3 => Cmp::Ge,
        4 => Cmp::Lt,
        5 => Cmp::Le,
        6 => Cmp::Reached,
        _ => return Err(bad_constant(ctx, group, cmp)),
    })
}
