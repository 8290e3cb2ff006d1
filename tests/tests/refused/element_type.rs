use rushmem_device::prelude::*;

fn wrong(ctx: &Ctx, dst: SymSlice<u64>, src: SymSlice<u32>) -> Result {
    ctx.put(Thread, dst, src, 0)
}

fn main() {}
