use rushmem_device::Ctx;
use rushmem_device::kernel::kernel;

#[derive(Clone, Copy)]
pub struct Unknown(u32, u64);

#[kernel]
pub fn unknown_argument(_ctx: &Ctx, _value: Unknown) {}

#[kernel]
pub fn unknown_result(_ctx: &Ctx) -> u32 {
    1
}

fn main() {}
