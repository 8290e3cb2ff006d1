//! A kernel cannot keep its context, nor a view, for use after the job.

use std::cell::{Cell, RefCell};

use rushmem_device::prelude::*;

thread_local! {
    static CONTEXT: Cell<Option<&'static Ctx<'static>>> = const { Cell::new(None) };
    static OWN: RefCell<Option<Ctx<'static, Exclusive>>> = const { RefCell::new(None) };
    static VIEW: Cell<Option<View<'static, u64>>> = const { Cell::new(None) };
    static PEER: Cell<Option<RemoteView<'static, u64>>> = const { Cell::new(None) };
}

#[kernel]
pub fn keep_context(ctx: &Ctx) {
    CONTEXT.set(Some(ctx));
}

#[kernel]
pub fn copy_context(ctx: &Ctx) {
    let copied: Ctx = *ctx;
    copied.my_pe();
}

#[kernel]
pub fn keep_exclusive(ctx: &Ctx) -> Result {
    OWN.set(Some(ctx.exclusive(0)?));
    Ok(())
}

#[kernel]
pub fn keep_view(ctx: &Ctx, data: SymSlice<u64>) {
    VIEW.set(Some(ctx.local(data)));
}

#[kernel]
pub fn keep_peer_view(ctx: &Ctx, data: SymSlice<u64>) {
    PEER.set(ctx.ptr(data, 1));
}

fn main() {}
