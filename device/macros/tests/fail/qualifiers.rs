use rushmem_device::Ctx;
use rushmem_device::kernel::kernel;

#[kernel]
pub async fn asynchronous(ctx: &Ctx) {}

#[kernel]
pub unsafe fn not_safe(ctx: &Ctx) {}

#[kernel]
pub extern "C" fn abi(ctx: &Ctx) {}

#[kernel(blocks = 4)]
pub fn arguments(ctx: &Ctx) {}

#[kernel(max_threads = 2048)]
pub fn too_many(ctx: &Ctx) {}

#[kernel]
pub struct NotAFunction;

fn main() {}
