//! L57: there are no remote atomics on floating-point numbers.

use rushmem_device::{Ctx, Sym};

fn accumulate(ctx: &Ctx, x: Sym<f32>) {
    let _ = ctx.atomic_add(x, 1.0, 0);
}

fn main() {
    let _ = accumulate;
}
