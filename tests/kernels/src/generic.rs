//! Generic test kernels.

use core::ops::Mul;

use rushmem_device::prelude::*;

/// Multiplies every `STEP`th element of `src` by `factor`, and puts the results to `dst` of the next PE.
#[kernel(T = [f32, f64, u64], STEP = [1, 2])]
pub fn put_scaled<T, const STEP: usize>(ctx: &Ctx, dst: SymSlice<T>, src: SymSlice<T>, factor: T) -> Result
where
    T: Scalar + Mul<Output = T>,
{
    let src = ctx.local(src);
    let mut i = Thread::index() * STEP;
    while i < src.len() {
        ctx.p(dst.at(i), src.load(i) * factor, ctx.pe_after(1))?;
        i += Thread::count() * STEP;
    }
    ctx.quiet(Thread)
}

/// Converts the elements of `from` and stores them in `to`.
#[kernel(T = [u8, u32], U = [u32, u64], max_threads = 64)]
pub fn convert<T: Pod + Into<U>, U: Pod>(ctx: &Ctx, to: SymSlice<U>, from: SymSlice<T>) {
    let (to, from) = (ctx.local(to), ctx.local(from));
    let mut i = Thread::index();
    while i < from.len() {
        to.store(i, from.load(i).into());
        i += Thread::count();
    }
}
