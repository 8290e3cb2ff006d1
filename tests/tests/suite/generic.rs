//! Tests of generic kernels.

use std::ops::Mul;

use rushmem::{Error, Pe};
use rushmem_device::Scalar;
use rushmem_device::kernel::KernelArg;
use rushmem_test_kernels::{PutScaledInstance, convert, put_scaled};
use rushmem_tests::{Setup, grid};

/// Puts every `STEP`th number, multiplied by `factor`, to the next PE. Returns the numbers that the previous PE has
/// put.
fn scaled<T, const STEP: usize>(pe: &Pe, factor: T) -> Result<Vec<T>, Error>
where
    T: Scalar + KernelArg + Mul<Output = T> + From<u8>,
    (): PutScaledInstance<T, STEP>,
{
    let (dst, src) = (pe.alloc::<T>(5)?, pe.alloc::<T>(5)?);
    pe.write(src, &[1, 2, 3, 4, 5].map(T::from))?;
    pe.host_sync()?;
    pe.run(grid(1, 32), put_scaled::<T, STEP>(dst, src, factor))?;
    pe.host_sync()?;
    pe.read(dst)
}

#[test]
fn kernel_instances_use_their_types_and_constants() {
    Setup::new(2).run(|pe| {
        assert_eq!(scaled::<f32, 1>(pe, 0.5)?, [0.5, 1.0, 1.5, 2.0, 2.5]);
        assert_eq!(scaled::<f64, 2>(pe, 1e300)?, [1e300, 0.0, 3e300, 0.0, 5e300]);
        assert_eq!(scaled::<u64, 2>(pe, 1 << 40)?, [1 << 40, 0, 3 << 40, 0, 5 << 40]);
        Ok(())
    });
}

#[test]
fn arguments_select_the_kernel_instance() {
    Setup::new(1).run(|pe| {
        let (bytes, words, longs) = (pe.alloc::<u8>(3)?, pe.alloc::<u32>(3)?, pe.alloc::<u64>(3)?);
        pe.write(bytes, &[1, 2, 255])?;
        pe.run(grid(1, 32), convert(words, bytes))?;
        pe.run(grid(1, 32), convert(longs, words))?;
        assert_eq!(pe.read(longs)?, [1, 2, 255]);
        let error = pe.run(grid(1, 65), convert(longs, bytes)).unwrap_err().to_string();
        assert!(error.contains("convert_u8_u64"), "{error}");
        Ok(())
    });
}
