//! The arguments of a call are those that the compiler checked, and the host's checks of handles cannot be removed.

use rushmem_device::kernel::Call;
use rushmem_device::prelude::*;

#[kernel]
pub fn fill(ctx: &Ctx, data: SymSlice<u64>, value: u64) {
    ctx.local(data).store(0, value);
}

fn forge(ctx: &Ctx, data: SymSlice<u64>) {
    let mut call = fill(data, 1);
    call.handles.clear();
    call.args[0] = vec![0; 24].into();
    call.name = "another";
    (call.native)(ctx);
}

fn make(data: SymSlice<u64>) -> Call {
    Call::new("fill", |_| ()).with_arg(1u64).with_arg(data)
}

fn main() {}
