use rushmem_device::prelude::*;

fn from_shared_memory(ctx: &Ctx, dst: SymSlice<u64>) -> Result {
    ctx.put(Thread, dst, ctx.shared::<u64>(), 0)
}

fn from_the_stack(ctx: &Ctx, dst: SymSlice<u64>) -> Result {
    ctx.put(Thread, dst, [1, 2, 3, 4], 0)
}

fn from_a_constant(ctx: &Ctx, dst: SymSlice<u64>) -> Result {
    static WORDS: [u64; 4] = [1, 2, 3, 4];
    ctx.put(Thread, dst, &WORDS, 0)
}

fn main() {}
