use rushmem_device::Ctx;
use rushmem_device::kernel::kernel;

#[kernel]
pub fn no_list<T: Copy, const N: usize>(ctx: &Ctx, value: T) {}

#[kernel(T = [u32], U = [u8])]
pub fn unknown<T>(ctx: &Ctx, value: T) {}

#[kernel(T = [u32])]
pub fn not_generic(ctx: &Ctx, value: u32) {}

#[kernel(T = [], N = [])]
pub fn empty<T, const N: usize>(ctx: &Ctx, value: T) {}

#[kernel(T = [u8, u32, u8], N = [4, 4])]
pub fn twice<T, const N: usize>(ctx: &Ctx, value: T) {}

#[kernel(T = [u8], T = [u32])]
pub fn two_lists<T>(ctx: &Ctx, value: T) {}

#[kernel(T = [4], N = [u8])]
pub fn wrong_kind<T, const N: usize>(ctx: &Ctx, value: T) {}

#[kernel(T = u8)]
pub fn no_brackets<T>(ctx: &Ctx, value: T) {}

#[kernel(T = [u8])]
pub fn lifetime<'a, T>(ctx: &Ctx, value: T) {}

#[kernel]
pub fn condition(ctx: &Ctx, value: u32)
where
    u32: Copy,
{
}

fn main() {}
