//! What every exported function does around its call of the device API.
#![allow(unsafe_code, reason = "trusts the context and the addresses that the kernel passes")]

use core::ffi::c_void;

use rushmem_device::abi::{DevAddr, LOCAL_OFFSETS};
use rushmem_device::{Error, Foreign, Group, Pod, Result, Sym, SymSlice, Team};

pub(crate) type Ctx<'k> = rushmem_device::Ctx<'k, Foreign>;

/// A value that a call returns, as bits that its leader shares with the other threads.
pub(crate) trait Value: Sized {
    /// The type that the exported function returns.
    type Word;
    fn bits(self) -> u64;
    fn word(bits: u64) -> Self::Word;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Value for $t {
            type Word = Self;
            #[inline(always)]
            fn bits(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn word(bits: u64) -> Self {
                bits as Self
            }
        }
    )*};
}
integers! { u8 u16 u32 u64 i32 }

impl Value for () {
    type Word = ();
    #[inline(always)]
    fn bits(self) -> u64 {
        0
    }
    #[inline(always)]
    fn word(_: u64) {}
}

impl Value for *mut c_void {
    type Word = u64;
    #[inline(always)]
    fn bits(self) -> u64 {
        self as u64
    }
    #[inline(always)]
    fn word(bits: u64) -> u64 {
        bits
    }
}

impl Value for f32 {
    type Word = Self;
    #[inline(always)]
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
    #[inline(always)]
    fn word(bits: u64) -> Self {
        Self::from_bits(bits as u32)
    }
}

impl Value for f64 {
    type Word = Self;
    #[inline(always)]
    fn bits(self) -> u64 {
        self.to_bits()
    }
    #[inline(always)]
    fn word(bits: u64) -> Self {
        Self::from_bits(bits)
    }
}

/// Returns whether the context at `ctx` takes the direct path of a call: `test` holds, and implies that the call neither
/// fails nor calls an outlined function.
///
/// The exported function then leaves all other cases to another function, which it calls last. Otherwise ptxas would
/// save registers on the stack for the calls of all cases, and a fence waits for these stores: a put of 1 KiB with quiet
/// would take 1.26 us instead of 0.98 on an H200.
///
/// # Safety
/// `ctx` is the address of a context that the host returned for this PE.
#[inline(always)]
pub(crate) unsafe fn is_direct(ctx: u64, test: impl FnOnce(&Ctx<'_>) -> bool) -> bool {
    // SAFETY: the address of a context, by this function's contract.
    unsafe { Ctx::resident_passes(DevAddr(ctx), test) }
}

/// Runs the [direct](is_direct) path of a call in the group's leader. Returns its value to all threads.
///
/// # Safety
/// The same as for [`by_group`].
#[inline(always)]
pub(crate) unsafe fn by_leader_directly<G: Group, T: Value>(
    ctx: u64,
    group: G,
    run: impl FnOnce(&Ctx<'_>) -> Result<T>,
) -> Result<T::Word> {
    // SAFETY: the address of a context, by this function's contract.
    let found = unsafe { Ctx::resident(DevAddr(ctx)) }?;
    group.sync();
    let bits = if group.leader() { run(&found)?.bits() } else { 0 };
    group.sync();
    Ok(T::word(group.broadcast_any(false, bits).1))
}

/// Runs a call of the whole group, for the exported function `name`.
///
/// # Safety
/// `ctx` is the address of a context that the host returned for this PE, and `run` passes on the kernel's arguments.
#[inline(always)]
pub(crate) unsafe fn by_group<G: Group>(
    ctx: u64,
    name: &'static str,
    group: G,
    run: impl FnOnce(&Ctx<'_>, G) -> Result,
) -> Result {
    // SAFETY: the address of a context, by this function's contract.
    let found = unsafe { Ctx::resident(DevAddr(ctx)) }?;
    // SAFETY: as above, and the context has been found.
    run(&found, group).map_err(|error| unsafe { failed(ctx, name, group, error) })
}

/// Runs a call in the group's leader, for the exported function `name`. Returns its value to all threads.
///
/// The call comes after whatever the threads of the group did before.
///
/// # Safety
/// The same as for [`by_group`].
#[inline(always)]
pub(crate) unsafe fn by_leader<G: Group, T: Value>(
    ctx: u64,
    name: &'static str,
    group: G,
    run: impl FnOnce(&Ctx<'_>) -> Result<T>,
) -> Result<T::Word> {
    // SAFETY: the address of a context, by this function's contract.
    let found = unsafe { Ctx::resident(DevAddr(ctx)) }?;
    group.sync();
    let shared = group.leader_result(|| run(&found).map(Value::bits));
    // SAFETY: as above, and the context has been found.
    shared.map(T::word).map_err(|error| unsafe { failed(ctx, name, group, error) })
}

/// Names the failed call in its error record. Returns the same error in all threads of the group, so a kernel that
/// branches on it stays uniform.
///
/// # Safety
/// The same as for [`by_group`], and the context comes from this build.
#[cold]
#[inline(never)]
unsafe fn failed<G: Group>(ctx: u64, name: &'static str, group: G, error: Error) -> Error {
    if error != Error::InGroup {
        // SAFETY: the address of a context of this build, by this function's contract.
        unsafe { Ctx::name_failed_call(DevAddr(ctx), name, error) };
    }
    if group.size() == 1 {
        return error;
    }
    group.sync();
    let mut code = 1;
    while let Some(cause) = Error::from_code(code) {
        let is_cause = cause != Error::InGroup && group.any(cause == error);
        // Without a barrier between the votes, some threads of an H200 saw the result of the next one. They come from
        // the leader's error record at different times.
        group.sync();
        if is_cause {
            return cause;
        }
        code += 1;
    }
    error
}

#[inline(always)]
pub(crate) fn status(result: Result) -> i32 {
    result.err().map_or(0, |error| error as i32)
}

#[inline(always)]
pub(crate) fn value<T: Default>(result: Result<T>) -> T {
    result.unwrap_or_default()
}

/// Returns a handle of `bytes` bytes of this PE at `address`: symmetric memory or a registered buffer.
///
/// # Errors
/// - [`Error::OutOfRange`], which the leader of `group` records; [`Error::InGroup`] in other threads.
#[inline(always)]
#[track_caller]
pub(crate) fn local_at<G: Group>(
    ctx: &Ctx<'_>,
    group: G,
    address: *const c_void,
    bytes: usize,
) -> Result<SymSlice<u8>> {
    handle_at(ctx, group, ctx.offset_of(address as u64, bytes as u64), bytes)
}

/// Returns a handle of `bytes` bytes of symmetric memory, at `address` on this PE.
///
/// # Errors
/// The errors of [`local_at`]. A registered buffer is not symmetric: other PEs have no memory keys of it.
#[inline(always)]
#[track_caller]
pub(crate) fn symmetric_at<G: Group>(
    ctx: &Ctx<'_>,
    group: G,
    address: *const c_void,
    bytes: usize,
) -> Result<SymSlice<u8>> {
    let offset = ctx.offset_of(address as u64, bytes as u64).filter(|&offset| offset < LOCAL_OFFSETS);
    handle_at(ctx, group, offset, bytes)
}

#[inline(always)]
#[track_caller]
fn handle_at<G: Group>(ctx: &Ctx<'_>, group: G, offset: Option<u64>, bytes: usize) -> Result<SymSlice<u8>> {
    match offset {
        // SAFETY: these bytes are in symmetric memory or in a registered buffer, and any bytes are a `u8`.
        Some(offset) => Ok(unsafe { SymSlice::from_raw(offset, bytes) }),
        None if group.leader() => Err(ctx.bad_address(bytes as u64)),
        None => Err(Error::InGroup),
    }
}

/// Returns a handle of the symmetric word at `address` on this PE.
///
/// # Errors
/// The errors of [`symmetric_at`], also if the address is not aligned.
#[inline(always)]
#[track_caller]
pub(crate) fn word_at<G: Group, T: Pod>(ctx: &Ctx<'_>, group: G, address: *const T) -> Result<Sym<T>> {
    let aligned = if address.is_aligned() { address.cast() } else { core::ptr::null() };
    let bytes = symmetric_at(ctx, group, aligned, size_of::<T>())?;
    // SAFETY: the word is in symmetric memory and aligned, and any bytes are a value of a `Pod` type.
    Ok(unsafe { Sym::from_raw(bytes.offset()) })
}

/// Returns the error of a call of `group` with an invalid comparison or signal operation. The leader records it.
#[cold]
#[inline(always)]
#[track_caller]
pub(crate) fn bad_constant<G: Group>(ctx: &Ctx<'_>, group: G, value: i32) -> Error {
    if group.leader() { ctx.bad_constant(value) } else { Error::InGroup }
}

/// A team handle, as [`Team::to_bits`] returns it.
pub(crate) type TeamBits = u64;

#[inline(always)]
pub(crate) fn team_of(team: TeamBits) -> Team {
    // SAFETY: device code checks the handle against its table of teams.
    unsafe { Team::from_bits(team) }
}
