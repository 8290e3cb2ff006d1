//! OpenSHMEM names, as thin functions over the methods of [`Ctx`].
//!
//! A call made by a group takes the group as its second argument: `shmem_put(ctx, Block::current(), ..)` is NVSHMEM's
//! `nvshmemx_put_block(..)`. Unlike in C, the element type is inferred from the arguments and is not part of the name.

use bytemuck::Pod;

use crate::{Ctx, RemoteView, Sharing, SymSlice};

/// Defines functions that call methods of [`Ctx`]: `name = method [type parameters] (arguments) -> result;`.
macro_rules! names {
    ($($name:ident = $method:ident [$($g:ident: $b:ident $(+ $bs:ident)*),*] ($($arg:ident: $t:ty),*) -> $r:ty;)*) => {$(
        #[doc = concat!("Calls [`Ctx::", stringify!($method), "`], and returns its errors.")]
        #[inline(always)]
        #[track_caller]
        #[allow(clippy::too_many_arguments, reason = "the signature of OpenSHMEM")]
        pub fn $name<S: Sharing, $($g: $b $(+ $bs)*),*>(ctx: &Ctx<S>, $($arg: $t),*) -> $r {
            ctx.$method($($arg),*)
        }
    )*};
}

mod amo;
mod coll;
mod order;
mod rma;
mod signal;
mod team;
mod wait;

pub use amo::*;
pub use coll::*;
pub use order::*;
pub use rma::*;
pub use signal::*;
pub use team::*;
pub use wait::*;

/// Returns this PE's number. Calls [`Ctx::my_pe`].
#[inline(always)]
pub fn shmem_my_pe<S: Sharing>(ctx: &Ctx<S>) -> u32 {
    ctx.my_pe()
}

/// Returns the number of PEs in the job. Calls [`Ctx::n_pes`].
#[inline(always)]
pub fn shmem_n_pes<S: Sharing>(ctx: &Ctx<S>) -> u32 {
    ctx.n_pes()
}

/// Returns the memory of an object on a P2P peer, if it is mapped. Calls [`Ctx::ptr`].
#[inline(always)]
pub fn shmem_ptr<'k, S: Sharing, T: Pod>(
    ctx: &Ctx<'k, S>,
    object: SymSlice<T>,
    pe: u32,
) -> Option<RemoteView<'k, T>> {
    ctx.ptr(object, pe)
}
