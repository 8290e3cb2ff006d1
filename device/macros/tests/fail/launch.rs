//! Passes wrong arguments to the launcher of a kernel.
use rushmem_device::Ctx;
use rushmem_device::kernel::kernel;

#[kernel]
pub fn scale(_ctx: &Ctx, _n: u32, _by: f32) {}

fn main() {
    let _ = scale(1.0, 1.0);
    let _ = scale(1);
}

/// Passes a context to a launcher. The runtime supplies its own.
pub fn with_a_context(ctx: &Ctx) {
    let _ = scale(ctx, 1, 1.0);
}
