//! PMIx, the interface of Open MPI's `mpirun`, PRRTE's `prterun` and `srun --mpi=pmix`, through the system's `libpmix`.
//!
//! The library is loaded on demand. This module declares the few functions it uses, after the PMIx standard 4.1
//! (sections 3.2, 6.1, 6.2 and 7.1). Its calls have no timeout, so a separate thread makes them, and is abandoned if
//! they take too long.
#![allow(unsafe_code, reason = "calls libpmix")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use libloading::Library;
use rushmem_base::root_cause;

use super::{ID_KEY, PePosition};
use crate::error::Error;
use crate::id::UniqueId;

/// File names of the library, preferred first.
const LIBRARIES: [&str; 2] = ["libpmix.so.2", "libpmix.so"];

/// `pmix_proc_t`: namespace and rank of a process.
#[repr(C)]
#[derive(Clone, Copy)]
struct Proc {
    nspace: [c_char; 256],
    rank: u32,
}

/// `pmix_value_t`: a type, and a union of 24 bytes. Only the union's smallest members are used here.
#[repr(C)]
struct Value {
    kind: u16,
    data: [u64; 3],
}

const _: () = assert!(size_of::<Proc>() == 260 && size_of::<Value>() == 32 && offset_of!(Value, data) == 8);

const SUCCESS: c_int = 0;
const STRING: u16 = 3;
const UINT16: u16 = 13;
const UINT32: u16 = 14;
const RANK_WILDCARD: u32 = u32::MAX - 1;
const GLOBAL: u8 = 3;

type Init = unsafe extern "C" fn(*mut Proc, *const c_void, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const c_void, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const c_void, usize) -> c_int;
type Get = unsafe extern "C" fn(*const Proc, *const c_char, *const c_void, usize, *mut *mut Value) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// Returns the position of this process, and the ID that PE 0 creates with `make`. Collective.
pub(crate) fn exchange_id(
    within: Duration,
    make: impl FnOnce() -> Result<UniqueId, Error> + Send + 'static,
) -> Result<(PePosition, UniqueId), Error> {
    let (sender, receiver) = channel();
    let name = "rushmem-pmix";
    // Sending fails if the deadline has passed and the receiver is gone.
    let body = move || drop(sender.send(exchange_with_library(make)));
    let thread = std::thread::Builder::new().name(name.into()).spawn(body);
    let thread = thread.map_err(|source| Error::Thread { name, source })?;
    match receiver.recv_timeout(within) {
        Ok(outcome) => {
            // The thread returns right after it has sent its result.
            let _ = thread.join();
            outcome
        }
        Err(RecvTimeoutError::Timeout) => Err(fail(format!(
            "the launcher gave no answer within {within:?}: check that all processes have started, or raise \
             bootstrap_timeout"
        ))),
        Err(RecvTimeoutError::Disconnected) => Err(fail("its thread panicked".into())),
    }
}

fn fail(why: String) -> Error {
    Error::Exchange { by: "the launcher's process-management interface (PMIx)".into(), why }
}

fn exchange_with_library(
    make: impl FnOnce() -> Result<UniqueId, Error>,
) -> Result<(PePosition, UniqueId), Error> {
    let pmix = Pmix::start()?;
    let outcome = pmix.exchange(make);
    pmix.end().and(outcome)
}

/// `libpmix`, loaded and initialized for this process.
struct Pmix {
    library: &'static Library,
    me: Proc,
}

impl Pmix {
    fn start() -> Result<Pmix, Error> {
        let mut errors = Vec::new();
        let open = |name: &&str| {
            // SAFETY: loading runs the initializers of a library that the user installed for this purpose.
            unsafe { Library::new(*name) }.map_err(|error| errors.push(root_cause(&error))).ok()
        };
        let Some(library) = LIBRARIES.iter().find_map(open) else {
            let why = format!(
                "its library cannot be loaded ({}): install it (Debian: libpmix2), or set LD_LIBRARY_PATH to the \
                 launcher's",
                errors.join("; ")
            );
            return Err(fail(why));
        };
        // The library starts threads, so it must never be unloaded.
        let library: &'static Library = Box::leak(Box::new(library));
        let mut me = Proc { nspace: [0; 256], rank: 0 };
        let pmix = Pmix { library, me };
        let init: Init = pmix.symbol("PMIx_Init")?;
        // SAFETY: `me` is a live variable with the layout of `pmix_proc_t`; null and 0 stand for no further
        // information.
        pmix.check("PMIx_Init", unsafe { init(&mut me, std::ptr::null(), 0) })?;
        Ok(Pmix { library, me })
    }

    fn exchange(
        &self,
        make: impl FnOnce() -> Result<UniqueId, Error>,
    ) -> Result<(PePosition, UniqueId), Error> {
        let all = Proc { rank: RANK_WILDCARD, ..self.me };
        let n_pes = self.number(&all, c"pmix.job.size")?;
        // Some launchers do not provide these values. The runtime then finds them by itself.
        let local = self.number(&self.me, c"pmix.lrank").ok().zip(self.number(&all, c"pmix.local.size").ok());
        let position = PePosition { pe: self.me.rank, n_pes, local };
        let key = std::ffi::CString::new(ID_KEY).map_err(|error| fail(error.to_string()))?;
        if position.pe == 0 {
            let id = make()?;
            self.put(&key, &id.to_hex())?;
            self.fence(&all)?;
            return Ok((position, id));
        }
        self.fence(&all)?;
        let first = Proc { rank: 0, ..self.me };
        let id = self.get(&first, &key, |value| {
            if value.kind != STRING || value.data[0] == 0 {
                return None;
            }
            // SAFETY: a value of this type is a pointer to a C string, which is valid during this call.
            Some(unsafe { CStr::from_ptr(value.data[0] as *const c_char) }.to_string_lossy().into_owned())
        })?;
        Ok((position, UniqueId::from_hex(&id)?))
    }

    fn put(&self, key: &CStr, value: &str) -> Result<(), Error> {
        let text = std::ffi::CString::new(value).map_err(|error| fail(error.to_string()))?;
        let mut value = Value { kind: STRING, data: [text.as_ptr() as u64, 0, 0] };
        let put: Put = self.symbol("PMIx_Put")?;
        // SAFETY: key and value are valid during the call, which copies them.
        self.check("PMIx_Put", unsafe { put(GLOBAL, key.as_ptr(), &mut value) })?;
        let commit: Commit = self.symbol("PMIx_Commit")?;
        // SAFETY: the library is initialized.
        self.check("PMIx_Commit", unsafe { commit() })
    }

    fn fence(&self, all: &Proc) -> Result<(), Error> {
        let fence: Fence = self.symbol("PMIx_Fence")?;
        // SAFETY: `all` is an array of one process; null and 0 stand for no further information.
        self.check("PMIx_Fence", unsafe { fence(all, 1, std::ptr::null(), 0) })
    }

    fn number(&self, of: &Proc, key: &CStr) -> Result<u32, Error> {
        self.get(of, key, |value| match value.kind {
            UINT32 => Some(value.data[0] as u32),
            UINT16 => Some(u32::from(value.data[0] as u16)),
            _ => None,
        })
    }

    fn get<T>(&self, of: &Proc, key: &CStr, read: impl FnOnce(&Value) -> Option<T>) -> Result<T, Error> {
        let get: Get = self.symbol("PMIx_Get")?;
        let mut value = std::ptr::null_mut();
        // SAFETY: process and key are valid, and the call writes a pointer to a live variable. The value is never
        // freed: a process reads at most four small ones.
        let status = unsafe { get(of, key.as_ptr(), std::ptr::null(), 0, &mut value) };
        self.check(&format!("PMIx_Get of {}", key.to_string_lossy()), status)?;
        // SAFETY: after success, the pointer is null or valid.
        let value = unsafe { value.as_ref() };
        value.and_then(read).ok_or_else(|| fail(format!("{} has no usable value", key.to_string_lossy())))
    }

    fn end(&self) -> Result<(), Error> {
        let finalize: Finalize = self.symbol("PMIx_Finalize")?;
        // SAFETY: the library is initialized, and this is the last call.
        self.check("PMIx_Finalize", unsafe { finalize(std::ptr::null(), 0) })
    }

    fn symbol<T: Copy>(&self, name: &str) -> Result<T, Error> {
        // SAFETY: callers pair each name with its function type in the PMIx standard.
        let symbol = unsafe { self.library.get::<T>(name) };
        symbol
            .map(|symbol| *symbol)
            .map_err(|error| fail(format!("libpmix has no {name}: {}", root_cause(&error))))
    }

    fn check(&self, call: &str, status: c_int) -> Result<(), Error> {
        if status == SUCCESS {
            return Ok(());
        }
        let text = self.symbol::<ErrorString>("PMIx_Error_string").map_or_else(
            |_| "unknown".into(),
            // SAFETY: the function returns a static string.
            |text| unsafe { CStr::from_ptr(text(status)) }.to_string_lossy().into_owned(),
        );
        Err(fail(format!("{call}: {text} ({status})")))
    }
}
