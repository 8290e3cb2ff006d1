//! Tests of the context for kernels that the runtime does not launch. Here it launches them itself, with that context.

use rushmem::{Error, Pages, Pe};
use rushmem_device::abi::{CtxParts, DevAddr};
use rushmem_device::{Error as Code, SymSlice};
use rushmem_test_kernels::{Misuse, fill, misuse};
use rushmem_tests::{Setup, grid};

use super::errors::code;
use super::memory::{ALL, BLOCKS, Reached, growing};
use super::setups;

/// Returns the context of a kernel that the runtime does not launch.
fn resident(pe: &Pe) -> Result<CtxParts, Error> {
    Ok(CtxParts { segments: DevAddr(pe.resident_context()?), ..pe.ctx_parts() })
}

#[test]
fn resident_context_reaches_memory_that_was_added_later() {
    let on_gpu = Setup::on_gpu();
    // On a GPU, such kernels cannot post to DC initiators.
    let can_run = |setup: &Setup| !(on_gpu && setup.config().dc_above.0 == Some(0));
    for setup in setups::with_host_windows().filter(can_run).map(growing) {
        setup.run(|pe| {
            let context = resident(pe)?;
            let grown = pe.alloc::<u64>(ALL)?;
            let more = pe.alloc::<u64>((3 << 20) / 8)?;
            let window = pe.register_symmetric(Pages::<u64>::zeroed(ALL))?;
            assert_eq!(pe.resident_context()?, context.segments.0);
            for all in [grown, more.slice(1000..1000 + ALL), window.handle()] {
                Reached::within(all).check_with(pe, |call| {
                    // The flags of a window that peers cannot map are in the table, and in current contexts.
                    let context = CtxParts { segments: context.segments, ..pe.ctx_parts() };
                    // SAFETY: the context of this PE, whose segment table exists as long as the PE.
                    unsafe { pe.launch_with(context, grid(BLOCKS, 33), call) }?.wait()
                })?;
            }
            pe.unregister_symmetric(window).map(drop)?;
            Ok(())
        });
    }
}

#[test]
fn resident_context_rejects_removed_memory() {
    Setup::new(2).without_sanitizer("an access to unregistered memory").run(|pe| {
        let window = pe.register_symmetric(Pages::<u64>::zeroed(64))?;
        let context = resident(pe)?;
        // SAFETY: the same words; the runtime does not check a handle without a stamp.
        let raw = unsafe { SymSlice::<u64>::from_raw(window.handle().offset(), 64) };
        // SAFETY: the context of this PE, whose segment table exists as long as the PE.
        let run = || unsafe { pe.launch_with(context, grid(1, 32), fill(raw, 7)) }?.wait();
        run()?;
        let pages = pe.unregister_symmetric(window)?;
        assert!(pages.iter().step_by(2).all(|&word| word == 7));
        assert_eq!(code(&run().unwrap_err()), Some(Code::OutOfRange));
        Ok(())
    });
}

#[test]
fn full_resident_context_is_an_error_of_the_call_that_would_exceed_it() {
    Setup::new(2).run(|pe| {
        // Only one PE has a resident context, but all of them have to agree.
        if pe.my_pe() == 0 {
            pe.resident_context()?;
        }
        let mut buffers = Vec::new();
        for _ in 0..64 {
            buffers.push(pe.register(Pages::<u64>::zeroed(8))?);
        }
        let local = pe.register(Pages::<u64>::zeroed(8)).map(drop);
        let window = pe.register_symmetric(Pages::<u64>::zeroed(8)).map(drop).unwrap_err();
        if pe.my_pe() == 0 {
            let error = local.unwrap_err().to_string();
            assert!(error.starts_with("a segment beside 64 others"), "{error}");
            assert!(matches!(window, Error::Unavailable { .. }), "{window}");
        } else {
            local?;
            assert!(matches!(window, Error::Elsewhere { pe: 0, .. }), "{window}");
        }
        for buffer in buffers {
            drop(pe.unregister(buffer)?);
        }
        let window = pe.register_symmetric(Pages::<u64>::zeroed(8))?;
        pe.unregister_symmetric(window).map(drop)?;
        Ok(())
    });
}

#[test]
fn check_returns_errors_that_no_launch_reports() {
    Setup::new(2).run(|pe| {
        let context = resident(pe)?;
        let (data, lock, seen) = (pe.alloc::<u32>(8)?, pe.alloc_one()?, pe.alloc_one::<u32>()?);
        pe.check()?;
        let call = misuse(Misuse::PutToMissingPe as u32, data, lock, seen);
        // The kernel itself does not fail.
        // SAFETY: the context of this PE, whose segment table exists as long as the PE.
        unsafe { pe.launch_with(context, grid(1, 32), call) }?.wait()?;
        assert_eq!(code(&pe.check().unwrap_err()), Some(Code::BadPe));
        pe.check()
    });
}
