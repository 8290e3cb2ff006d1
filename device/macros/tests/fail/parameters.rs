use rushmem_device::Ctx;
use rushmem_device::kernel::kernel;

#[kernel]
pub fn pattern(ctx: &Ctx, (a, b): (u32, u32)) {}

#[kernel]
pub fn reference(ctx: &Ctx, data: &[u32]) {}

#[kernel]
pub fn pointer(ctx: &Ctx, data: *mut u32) {}

#[kernel]
pub fn any(ctx: &Ctx, data: impl Copy) {}

struct Solver;

impl Solver {
    #[kernel]
    pub fn method(&self, ctx: &Ctx) {}
}

fn main() {}
