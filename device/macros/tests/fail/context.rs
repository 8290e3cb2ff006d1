use rushmem_device::Ctx;
use rushmem_device::kernel::kernel;

#[kernel]
pub fn none() {}

#[kernel]
pub fn by_value(ctx: Ctx, n: u32) {}

#[kernel]
pub fn exclusive(ctx: &mut Ctx) {}

#[kernel]
pub fn lifetime(ctx: &'static Ctx) {}

#[kernel]
pub fn something_else(n: &u32) {}

fn main() {}
