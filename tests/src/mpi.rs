//! Bindings to the few MPI functions that a test needs. Handles have MPICH's representation (`mpi.h` of MPICH 3 and 4).

use std::ffi::{c_int, c_void};

use libloading::Library;
use rushmem::bootstrap::{Exchange, ExchangeError};

/// File name of the MPICH library on Debian.
const LIBRARY: &str = "libmpich.so.12";

const COMM_WORLD: c_int = 0x4400_0000;
const BYTE: c_int = 0x4c00_010d;
const UINT64: c_int = 0x4c00_083e;
const SUM: c_int = 0x5800_0003;
const THREAD_SERIALIZED: c_int = 2;

/// The MPI library, loaded and initialized.
pub struct Mpi(Library);

/// An MPI communicator of a loaded MPI library.
pub struct Communicator<'a> {
    mpi: &'a Mpi,
    handle: c_int,
    rank: c_int,
    size: c_int,
}

impl Mpi {
    /// Loads the library and initializes MPI for calls from one thread at a time.
    ///
    /// # Errors
    /// - the library is missing, or it does not work on this machine
    pub fn begin() -> Result<Mpi, ExchangeError> {
        type InitThread = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *mut c_int) -> c_int;
        // SAFETY: loading the library runs its initializers, as intended.
        let mpi = Mpi(unsafe { Library::new(LIBRARY) }?);
        let mut level = 0;
        // SAFETY: the type matches the function, and null is allowed for the program arguments.
        let status = unsafe {
            mpi.0.get::<InitThread>("MPI_Init_thread")?(
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                THREAD_SERIALIZED,
                &mut level,
            )
        };
        check("MPI_Init_thread", status)?;
        if level < THREAD_SERIALIZED {
            return Err("MPI cannot be called from threads".into());
        }
        Ok(mpi)
    }

    /// Returns the communicator of all processes.
    ///
    /// # Errors
    /// - MPI returns an error
    pub fn world(&self) -> Result<Communicator<'_>, ExchangeError> {
        self.communicator(COMM_WORLD)
    }

    fn communicator(&self, handle: c_int) -> Result<Communicator<'_>, ExchangeError> {
        type Ask = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
        let ask = |name: &str| -> Result<c_int, ExchangeError> {
            let mut answer = 0;
            // SAFETY: the type matches both functions, and the result goes to a live variable.
            check(name, unsafe { self.0.get::<Ask>(name)?(handle, &mut answer) })?;
            Ok(answer)
        };
        Ok(Communicator { mpi: self, handle, rank: ask("MPI_Comm_rank")?, size: ask("MPI_Comm_size")? })
    }

    /// Finalizes MPI.
    ///
    /// # Errors
    /// - MPI returns an error
    pub fn end(self) -> Result<(), ExchangeError> {
        type Finalize = unsafe extern "C" fn() -> c_int;
        // SAFETY: the type matches the function, and MPI is not used afterwards.
        check("MPI_Finalize", unsafe { self.0.get::<Finalize>("MPI_Finalize")?() })
    }
}

impl Communicator<'_> {
    /// Returns the communicator of the processes with the same `color`, ordered by `key`.
    ///
    /// # Errors
    /// - MPI returns an error
    pub fn split(&self, color: c_int, key: c_int) -> Result<Self, ExchangeError> {
        type Split = unsafe extern "C" fn(c_int, c_int, c_int, *mut c_int) -> c_int;
        let mut handle = 0;
        // SAFETY: the type matches the function, and the result goes to a live variable.
        let status =
            unsafe { self.mpi.0.get::<Split>("MPI_Comm_split")?(self.handle, color, key, &mut handle) };
        check("MPI_Comm_split", status)?;
        self.mpi.communicator(handle)
    }

    /// Returns the sum of `mine` over all processes.
    ///
    /// # Errors
    /// - MPI returns an error
    pub fn sum(&self, mine: u64) -> Result<u64, ExchangeError> {
        type Allreduce =
            unsafe extern "C" fn(*const c_void, *mut c_void, c_int, c_int, c_int, c_int) -> c_int;
        let mut sum = 0u64;
        // SAFETY: the type matches the function, and both buffers hold one such number.
        let status = unsafe {
            self.mpi.0.get::<Allreduce>("MPI_Allreduce")?(
                (&raw const mine).cast(),
                (&raw mut sum).cast(),
                1,
                UINT64,
                SUM,
                self.handle,
            )
        };
        check("MPI_Allreduce", status)?;
        Ok(sum)
    }
}

impl Exchange for Communicator<'_> {
    fn pe(&self) -> u32 {
        self.rank as u32
    }

    fn n_pes(&self) -> u32 {
        self.size as u32
    }

    fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        type Allgather =
            unsafe extern "C" fn(*const c_void, c_int, c_int, *mut c_void, c_int, c_int, c_int) -> c_int;
        let mut all = vec![0u8; mine.len() * self.size as usize];
        let n = mine.len() as c_int;
        // SAFETY: the type matches the function, and the buffers have room for one part and for all parts.
        let status = unsafe {
            self.mpi.0.get::<Allgather>("MPI_Allgather")?(
                mine.as_ptr().cast(),
                n,
                BYTE,
                all.as_mut_ptr().cast(),
                n,
                BYTE,
                self.handle,
            )
        };
        check("MPI_Allgather", status)?;
        Ok(all.chunks(mine.len()).map(<[u8]>::to_vec).collect())
    }
}

fn check(call: &str, status: c_int) -> Result<(), ExchangeError> {
    if status == 0 { Ok(()) } else { Err(format!("{call} failed: {status}").into()) }
}
