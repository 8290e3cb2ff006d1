//! Tests of structs as kernel arguments, and of handles inside them.

use rushmem_device::{Shadowed, Sym};
use rushmem_test_kernels::{Cells, Fill, fill_structured};
use rushmem_tests::{Setup, grid, without_line};

const LEN: usize = 9;

#[test]
fn kernel_receives_every_field_of_a_struct_argument() {
    Setup::new(2).run(|pe| {
        let object = pe.alloc::<u64>(LEN)?;
        let fill = Fill { enabled: true, to: Cells { object, step: 3 }, first: 1, value: 700 };
        let more = 1 << 40;
        pe.run(grid(1, 32), fill_structured(true, fill, more))?;
        pe.run(grid(1, 32), fill_structured(false, Fill { first: 0, value: 701, ..fill }, more))?;
        pe.run(grid(1, 32), fill_structured(true, Fill { enabled: false, ..fill }, 0))?;
        let (both, one) = (700 + more as u64, 701);
        assert_eq!(pe.read(object)?, [one, both, 0, one, both, 0, one, both, 0]);
        pe.free(object)
    });
}

#[test]
fn launch_rejects_a_stale_handle_in_a_struct_argument() {
    Setup::new(1).run(|pe| {
        let object = pe.alloc::<u64>(LEN)?;
        let fill = Fill { enabled: true, to: Cells { object, step: 1 }, first: 0, value: 1 };
        pe.free(object)?;
        let error = pe.run(grid(1, 32), fill_structured(true, fill, 0)).unwrap_err();
        assert!(without_line(&error).ends_with("is not an object, or has been freed"), "{error}");
        Ok(())
    });
}

#[test]
fn launch_rejects_the_signal_of_a_freed_shadowed_signal() {
    Setup::new(1).run(|pe| {
        let freed: Sym<Shadowed> = pe.alloc_one()?;
        let signal = freed.signal();
        pe.write(signal.as_slice(), &[3])?;
        pe.free(freed.as_slice())?;
        // Another object now occupies the same memory.
        let other: Sym<Shadowed> = pe.alloc_one()?;
        assert_eq!(pe.read_one(other.signal())?, 0);
        let words = Cells { object: signal.as_slice(), step: 1 };
        let fill = Fill { enabled: true, to: words, first: 0, value: 1 };
        let error = pe.run(grid(1, 32), fill_structured(false, fill, 0)).unwrap_err();
        assert!(without_line(&error).ends_with("is not an object, or has been freed"), "{error}");
        Ok(())
    });
}
