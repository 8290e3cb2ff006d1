//! Generic kernels that compile.
#![deny(missing_docs, warnings)]

use rushmem_device::kernel::KernelArg;
use rushmem_device::{F16, Pod, SymSlice};

use kernels::{LoopInstance, Scale, r#loop, mixed, without_arguments};

mod kernels {
    #![forbid(unsafe_code)]

    use rushmem_device::kernel::{KernelArg, kernel};
    use rushmem_device::{Ctx, Pod, SymSlice};

    /// Has two types and a constant, in another order than its lists.
    #[kernel(T = [f32, rushmem_device::F16], max_threads = 64, N = [4, 8], U = [u8, [u32; 2]], per_block)]
    pub fn mixed<T: Pod, U, const N: usize>(
        ctx: &Ctx,
        a: SymSlice<T>,
        mut b: SymSlice<U>,
        n: u32,
    ) -> Result<(), u8>
    where
        U: Pod + Default,
    {
        let _ = (ctx, a, n, N, U::default());
        b = b.slice(0..1);
        if b.len() == N { Ok(()) } else { Err(1) }
    }

    /// Has a generic type that is not the type of any argument.
    #[kernel(T = [u8])]
    pub fn without_arguments<T: Default + 'static>(_ctx: &Ctx) {
        let _ = T::default();
    }

    /// A struct with a field of a generic type, as a kernel argument.
    #[derive(Clone, Copy, KernelArg)]
    #[repr(C)]
    pub struct Scale<T: KernelArg> {
        /// Factor of the generic type `T`.
        pub factor: T,
    }

    /// Has a generic structure and a flag.
    #[kernel(T = [f32, f64], FAST = [true, false])]
    pub fn r#loop<T: KernelArg, const FAST: bool>(_ctx: &Ctx, scale: Scale<T>) {
        let _ = (scale.factor, FAST);
    }
}

/// Launches the instance for any listed type `T`.
fn name<T: KernelArg>(factor: T) -> &'static str
where
    (): LoopInstance<T, true>,
{
    r#loop::<T, true>(Scale { factor }).name()
}

fn handle<T: Pod>() -> SymSlice<T> {
    // SAFETY: no kernel runs with it.
    unsafe { SymSlice::stamped(64, 1, 9) }
}

fn main() {
    let call = mixed::<F16, _, 8>(handle(), handle::<[u32; 2]>(), 3);
    assert_eq!(call.name(), "mixed_rushmem_device_F16_u32_2_8");
    assert_eq!((call.max_threads(), call.uses_per_block(), call.args().len()), (Some(64), true, 3));
    assert_eq!(mixed::<_, u8, 4>(handle::<f32>(), handle(), 3).name(), "mixed_f32_u8_4");
    assert_eq!(without_arguments::<u8>().name(), "without_arguments_u8");
    assert_eq!((name(1.0_f32), name(1.0_f64)), ("loop_f32_true", "loop_f64_true"));
}
