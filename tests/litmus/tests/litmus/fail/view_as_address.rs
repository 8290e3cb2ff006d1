//! L84: what loads and stores go by is no symmetric address.

use rushmem_device::{Ctx, SymSlice};

fn symmetric(_: SymSlice<u64>) {}

fn put(ctx: &Ctx, x: SymSlice<u64>) {
    symmetric(ctx.local(x));
}

fn main() {
    let _ = put;
}
