//! Instances that a kernel does not have, or cannot have.
use rushmem_device::kernel::kernel;
use rushmem_device::{Ctx, Element, Pod, SymSlice};

#[kernel(T = [f32, f64, u64])]
pub fn scale<T: Pod>(_ctx: &Ctx, _data: SymSlice<T>) {}

#[kernel(T = [u8, u32], N = [4])]
pub fn two<T: Pod, const N: usize>(_ctx: &Ctx, _data: SymSlice<T>) {}

/// Lists a type that does not satisfy the kernel's bound.
#[kernel(T = [f32, bool])]
pub fn unsatisfied<T: Element>(_ctx: &Ctx) {}

#[derive(Clone, Copy)]
pub struct Unknown(u32, u64);

/// Lists a type that cannot be a kernel argument.
#[kernel(T = [f32, Unknown])]
pub fn argument<T>(_ctx: &Ctx, _value: T) {}

/// Launches instances that the kernels do not list.
pub fn launch(bytes: SymSlice<u8>, words: SymSlice<u32>) {
    let _ = scale(bytes);
    let _ = two::<u32, 8>(words);
}

/// Launches a generic kernel without the bound `(): ScaleInstance<T>`.
pub fn any<T: Pod>(data: SymSlice<T>) {
    let _ = scale(data);
}

fn main() {}
