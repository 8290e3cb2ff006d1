//! PMIx: what Open MPI's `mpirun`, PRRTE's `prterun` and `srun --mpi=pmix` speak, through the system's `libpmix`.
//!
//! The library is loaded when it is needed, and the few declarations that are needed of its stable interface stand
//! here (PMIx standard 4.1, sections 3.2, 6.1, 6.2 and 7.1). Its calls have no deadline of their own, so they are made
//! by a thread that is left behind if they take too long.
#![allow(unsafe_code, reason = "calls libpmix")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use libloading::Library;

use super::{KEY, PePosition};
use crate::error::Error;
use crate::id::UniqueId;

/// Names that the library may have.
const LIBRARIES: [&str; 2] = ["libpmix.so.2", "libpmix.so"];

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Proc {
    nspace: [c_char; 256],
    rank: u32,
}

/// `pmix_value_t`: a type and 24 bytes of union, of which we use the smallest members.
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

/// This process's place, and the id that PE 0 has made by `make`.
pub(crate) fn meet(
    within: Duration,
    make: impl FnOnce() -> Result<UniqueId, Error> + Send + 'static,
) -> Result<(PePosition, UniqueId), Error> {
    let (tell, told) = channel();
    let name = "rushmem-pmix";
    // Nobody waits for what comes too late.
    let body = move || drop(tell.send(talk(make)));
    let thread = std::thread::Builder::new().name(name.into()).spawn(body);
    let thread = thread.map_err(|source| Error::Thread { name, source })?;
    match told.recv_timeout(within) {
        Ok(outcome) => {
            // It has said all that it had to say.
            let _ = thread.join();
            outcome
        }
        Err(RecvTimeoutError::Timeout) => Err(fail(format!(
            "the launcher gave no answer within {within:?}: see whether all processes have come so far, or raise \
             bootstrap_timeout"
        ))),
        Err(RecvTimeoutError::Disconnected) => Err(fail("its thread panicked".into())),
    }
}

fn fail(why: String) -> Error {
    Error::Exchange { by: "the launcher's process-management interface (PMIx)".into(), why }
}

fn talk(make: impl FnOnce() -> Result<UniqueId, Error>) -> Result<(PePosition, UniqueId), Error> {
    let pmix = Pmix::start()?;
    let outcome = pmix.exchange(make);
    pmix.end().and(outcome)
}

/// The library, initialized.
struct Pmix {
    library: &'static Library,
    me: Proc,
}

impl Pmix {
    fn start() -> Result<Pmix, Error> {
        let mut errors = Vec::new();
        let open = |name: &&str| {
            // SAFETY: loading the library runs its initializers, which is what is wanted.
            unsafe { Library::new(*name) }.map_err(|error| errors.push(error.to_string())).ok()
        };
        let Some(library) = LIBRARIES.iter().find_map(open) else {
            let why = format!(
                "its library cannot be loaded ({}): install it (Debian: libpmix2), or set LD_LIBRARY_PATH to the \
                 launcher's",
                errors.join("; ")
            );
            return Err(fail(why));
        };
        // It has threads, and is never unloaded.
        let library: &'static Library = Box::leak(Box::new(library));
        let mut me = Proc { nspace: [0; 256], rank: 0 };
        let pmix = Pmix { library, me };
        let init: Init = pmix.symbol("PMIx_Init")?;
        // SAFETY: `me` is a live variable of the library's form, and there is no further information.
        pmix.check("PMIx_Init", unsafe { init(&mut me, std::ptr::null(), 0) })?;
        Ok(Pmix { library, me })
    }

    fn exchange(
        &self,
        make: impl FnOnce() -> Result<UniqueId, Error>,
    ) -> Result<(PePosition, UniqueId), Error> {
        let all = Proc { rank: RANK_WILDCARD, ..self.me };
        let n_pes = self.number(&all, c"pmix.job.size")?;
        // Not every launcher tells these; then the PEs find out by themselves.
        let local = self.number(&self.me, c"pmix.lrank").ok().zip(self.number(&all, c"pmix.local.size").ok());
        let place = PePosition { pe: self.me.rank, n_pes, local };
        let key = std::ffi::CString::new(KEY).map_err(|error| fail(error.to_string()))?;
        if place.pe == 0 {
            let id = make()?;
            self.put(&key, &id.to_hex())?;
            self.fence(&all)?;
            return Ok((place, id));
        }
        self.fence(&all)?;
        let first = Proc { rank: 0, ..self.me };
        let id = self.get(&first, &key, |value| {
            if value.kind != STRING || value.data[0] == 0 {
                return None;
            }
            // SAFETY: a value of this type holds a C string, and lives as long as this call.
            Some(unsafe { CStr::from_ptr(value.data[0] as *const c_char) }.to_string_lossy().into_owned())
        })?;
        Ok((place, UniqueId::from_hex(&id)?))
    }

    fn put(&self, key: &CStr, value: &str) -> Result<(), Error> {
        let text = std::ffi::CString::new(value).map_err(|error| fail(error.to_string()))?;
        let mut value = Value { kind: STRING, data: [text.as_ptr() as u64, 0, 0] };
        let put: Put = self.symbol("PMIx_Put")?;
        // SAFETY: key and value are whole, and copied by the call.
        self.check("PMIx_Put", unsafe { put(GLOBAL, key.as_ptr(), &mut value) })?;
        let commit: Commit = self.symbol("PMIx_Commit")?;
        // SAFETY: the library is initialized.
        self.check("PMIx_Commit", unsafe { commit() })
    }

    fn fence(&self, all: &Proc) -> Result<(), Error> {
        let fence: Fence = self.symbol("PMIx_Fence")?;
        // SAFETY: one process is given, and no further information.
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
        // SAFETY: process and key are whole, and the answer's address is written to a live variable. The answer stays
        // the library's: it is small, and there are four in the life of a process.
        let status = unsafe { get(of, key.as_ptr(), std::ptr::null(), 0, &mut value) };
        self.check(&format!("PMIx_Get of {}", key.to_string_lossy()), status)?;
        // SAFETY: after success it is null or a value.
        let value = unsafe { value.as_ref() };
        value.and_then(read).ok_or_else(|| fail(format!("{} has no usable value", key.to_string_lossy())))
    }

    fn end(&self) -> Result<(), Error> {
        let finalize: Finalize = self.symbol("PMIx_Finalize")?;
        // SAFETY: the library is initialized, and this is the last call.
        self.check("PMIx_Finalize", unsafe { finalize(std::ptr::null(), 0) })
    }

    fn symbol<T: Copy>(&self, name: &str) -> Result<T, Error> {
        // SAFETY: every type above is that of the function which is looked up by its name, as the standard has it.
        let symbol = unsafe { self.library.get::<T>(name) };
        symbol.map(|symbol| *symbol).map_err(|error| fail(format!("libpmix has no {name}: {error}")))
    }

    fn check(&self, call: &str, status: c_int) -> Result<(), Error> {
        if status == SUCCESS {
            return Ok(());
        }
        let text = self.symbol::<ErrorString>("PMIx_Error_string").map_or_else(
            |_| "unknown".into(),
            // SAFETY: it returns a string that is never freed.
            |text| unsafe { CStr::from_ptr(text(status)) }.to_string_lossy().into_owned(),
        );
        Err(fail(format!("{call}: {text} ({status})")))
    }
}
