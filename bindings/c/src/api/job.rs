//! Initialization, finalization and errors
#![allow(unsafe_code, reason = "exports functions, and reads the options of the caller")]
#![allow(clippy::missing_safety_doc, reason = "the introduction of the header states the rules for pointers")]

use std::ffi::c_char;

use rushmem::bootstrap::UniqueId;
use rushmem::config::{Config, DeviceKind};
use rushmem::cuda::Cuda;
use rushmem::{Error, Job, Result};

use super::natural;
use crate::error::{last, number, status};
use crate::handle;
use crate::pointers::{self, Out};
use crate::types::{device_kind, rushmem_init_options, rushmem_pe};

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// Returns the version of the library, such as `0.1.0`. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_version() -> *const c_char {
    VERSION.as_ptr().cast()
}

/// Returns the text of the calling thread's last error, or an empty text if there was none.
///
/// It says what failed, with values, and then the remedy. A successful call does not change it. It is valid until the
/// next error of the thread.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_error_message() -> *const c_char {
    last()
}

/// Writes a new unique ID to `out` as text, for a job without a launcher.
///
/// One PE makes this call and distributes the ID, which contains the job's secret. All PEs pass it to `rushmem_init`.
/// The process that makes the call serves the job, so it must also be a PE. `size` is the room at `out`, at least
/// `RUSHMEM_UNIQUE_ID_BYTES`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_unique_id(out: *mut c_char, size: usize) -> i32 {
    status(|| {
        let id = UniqueId::new()?.to_hex();
        // SAFETY: promised by the caller.
        unsafe { pointers::write_text("rushmem_unique_id", out, size, &id) }
    })
}

/// Joins the job and starts the PE of this process, which `*pe` then refers to. Collective.
///
/// With null `options`, or without a unique ID in them, the launcher (`rushmem run`, `mpirun`, `srun`, `torchrun`)
/// provides the PE's number. Without a launcher, this process is a job of one PE. All other settings come from the
/// environment and the settings file. `rushmem_finalize` shuts the PE down.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_init(options: *const rushmem_init_options, pe: *mut *mut rushmem_pe) -> i32 {
    status(|| {
        // SAFETY: promised by the caller.
        let (options, pe) = unsafe { (pointers::options(INIT, options)?, Out::new(INIT, "pe", pe)?) };
        // SAFETY: the text exists during the call.
        let id = options.map_or(Ok(None), |options| unsafe {
            pointers::text(INIT, "options->unique_id", options.unique_id)
        })?;
        pe.write(handle::add(job(options, id)?.start()?));
        Ok(())
    })
}

const INIT: &str = "rushmem_init";

/// Returns the job that the options describe, with the unique ID `id`.
fn job(options: Option<rushmem_init_options>, id: Option<&str>) -> Result<Job> {
    let mut config = Config::load()?;
    if let Some(options) = options {
        match device_kind(INIT, options.device)? {
            DeviceKind::Auto => {}
            chosen => config.device = chosen,
        }
        if options.heap_bytes > 0 {
            config.set("heap_bytes", &options.heap_bytes.to_string())?;
        }
    }
    // Without Rust kernels, the runtime would run natively: it does not know the caller's kernels.
    if config.device == DeviceKind::Auto {
        let gpus = Cuda::load().and_then(|cuda| cuda.device_count()).unwrap_or(0);
        config.device = if gpus > 0 { DeviceKind::Gpu } else { DeviceKind::Native };
    }
    let job = Job::with_config(config);
    match (options, id) {
        (Some(options), Some(id)) => {
            let pe = natural(INIT, "options->pe", options.pe)?;
            Ok(job.with_id(UniqueId::from_hex(id)?, pe, natural(INIT, "options->n_pes", options.n_pes)?))
        }
        (Some(options), None) if options.pe != 0 || options.n_pes != 0 => {
            let what =
                "`options->pe` and `options->n_pes` need a unique ID; a launcher provides its own numbers";
            Err(Error::misuse(INIT, what))
        }
        _ => Ok(job),
    }
}

/// Shuts the PE down. Collective: returns after all PEs have made the call. The handle becomes invalid.
///
/// Kernels that use the PE's memory must have finished. If an operation in a stream has failed and was not waited for,
/// the call returns its error, and the job is aborted. A process that exits without this call is a lost PE.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_finalize(pe: *mut rushmem_pe) -> i32 {
    status(|| handle::finish("rushmem_finalize", pe))
}

/// Terminates all processes of the job with exit code `code`, from 0 to 255. Not collective.
///
/// Nothing is completed or freed. Returns only if an argument is invalid.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_global_exit(pe: *mut rushmem_pe, code: i32) -> i32 {
    status(|| {
        const CALL: &str = "rushmem_global_exit";
        let handle = handle::get(CALL, pe)?;
        let code = u8::try_from(code)
            .map_err(|_| Error::misuse(CALL, format!("the exit code {code} is not in 0 to 255")))?;
        handle.pe().global_exit(code)
    })
}

/// Returns the number of this PE, from 0, or -1 if `pe` is invalid.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_my_pe(pe: *mut rushmem_pe) -> i32 {
    number(|| Ok(handle::get("rushmem_my_pe", pe)?.pe().my_pe() as i32))
}

/// Returns the number of PEs in the job, or -1 if `pe` is invalid.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_n_pes(pe: *mut rushmem_pe) -> i32 {
    number(|| Ok(handle::get("rushmem_n_pes", pe)?.pe().n_pes() as i32))
}

/// Returns 1 if the kernels of this PE run on a GPU, 0 if they run natively, or -1 if `pe` is invalid.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_is_gpu(pe: *mut rushmem_pe) -> i32 {
    number(|| Ok(handle::get("rushmem_is_gpu", pe)?.pe().is_gpu().into()))
}

/// Returns the CUDA ordinal of the GPU that runs the kernels of this PE, or -1 if they run natively or `pe` is invalid.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_gpu(pe: *mut rushmem_pe) -> i32 {
    number(|| Ok(handle::get("rushmem_gpu", pe)?.pe().gpu().map_or(-1, |gpu| gpu as i32)))
}
