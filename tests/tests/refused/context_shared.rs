//! A kernel cannot hand its context, or a view, to other threads of the host.

use rushmem_device::prelude::*;

#[kernel]
pub fn share_context(ctx: &Ctx) {
    std::thread::scope(|scope| {
        scope.spawn(|| ctx.my_pe());
    });
}

#[kernel]
pub fn move_exclusive(ctx: &Ctx) -> Result {
    let own = ctx.exclusive(0)?;
    std::thread::scope(|scope| {
        scope.spawn(move || own.my_pe());
    });
    Ok(())
}

#[kernel]
pub fn share_view(ctx: &Ctx, data: SymSlice<u64>) {
    let view = ctx.local(data);
    std::thread::scope(|scope| {
        scope.spawn(|| view.load(0));
    });
}

fn main() {}
