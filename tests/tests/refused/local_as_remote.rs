use rushmem_device::prelude::*;

fn to_nowhere(ctx: &Ctx, dst: Local<u64>, src: SymSlice<u64>) -> Result {
    ctx.put(Thread, dst, src, 0)
}

fn main() {}
