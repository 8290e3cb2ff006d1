//! L84: a view, by which loads and stores go, is not a symmetric address.

use rushmem_device::{Ctx, SymSlice};

fn symmetric(_: SymSlice<u64>) {}

fn put(ctx: &Ctx, x: SymSlice<u64>) {
    symmetric(ctx.local(x));
}

fn main() {
    let _ = put;
}
