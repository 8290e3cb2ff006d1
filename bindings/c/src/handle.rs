//! The PEs of this process that a caller has started, by the value of their `rushmem_pe *`.

use std::collections::{BTreeMap, HashMap};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rushmem::{Error, Pe, RegisteredBuffer, Result, RunningPe, Window};
use rushmem_base::lock;

use crate::addresses::Addresses;
use crate::caller_memory::CallerMemory;
use crate::operation::Operation;
use crate::streams::{RawStream, Streams};
use crate::types::rushmem_pe;

static RUNNING: Mutex<BTreeMap<usize, Arc<Handle>>> = Mutex::new(BTreeMap::new());

/// A PE, and what its caller has created.
pub(crate) struct Handle {
    streams: Streams,
    pub(crate) addresses: Addresses,
    /// Windows by the value of their `rushmem_window *`, with their addresses.
    pub(crate) windows: Mutex<HashMap<usize, (u64, Window<CallerMemory>)>>,
    /// Local buffers by address.
    pub(crate) buffers: Mutex<HashMap<u64, RegisteredBuffer<CallerMemory>>>,
    pe: Arc<RunningPe>,
}

/// Where an operation runs.
#[derive(Clone, Copy)]
pub(crate) enum On {
    /// On the calling thread, which waits for it.
    Host,
    /// In a stream.
    Stream(RawStream),
}

impl Handle {
    pub(crate) fn pe(&self) -> &Pe {
        &self.pe
    }

    pub(crate) fn issue(&self, on: On, operation: Operation) -> Result<()> {
        match on {
            On::Host => operation.issue(self.pe()),
            On::Stream(stream) => operation.issue(&*self.streams.get(stream)?),
        }
    }

    /// Waits for a stream.
    pub(crate) fn wait(&self, stream: RawStream) -> Result<()> {
        self.streams.get(stream)?.wait()
    }
}

/// Returns a value that has not been a handle before, as a pointer that is never dereferenced.
pub(crate) fn ticket<T>() -> *mut T {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    // Aligned for any type, and never null.
    ptr::without_provenance_mut((LAST.fetch_add(1, Ordering::Relaxed) + 1) * 16)
}

/// Adds a PE that has been started, and returns its handle.
pub(crate) fn add(pe: RunningPe) -> *mut rushmem_pe {
    let pe = Arc::new(pe);
    let handle = Handle {
        streams: Streams::new(Arc::clone(&pe)),
        addresses: Addresses::default(),
        windows: Mutex::default(),
        buffers: Mutex::default(),
        pe,
    };
    let ticket = ticket::<rushmem_pe>();
    lock(&RUNNING).insert(ticket.addr(), Arc::new(handle));
    ticket
}

/// Returns the PE with this handle.
///
/// # Errors
/// - [`Error::Misuse`] if there is none.
pub(crate) fn get(call: &'static str, pe: *const rushmem_pe) -> Result<Arc<Handle>> {
    lock(&RUNNING).get(&pe.addr()).cloned().ok_or_else(|| unknown(call, pe))
}

/// Removes the PE with this handle and shuts it down.
///
/// # Errors
/// - [`Error::Misuse`] if there is none, or if another thread uses it. The PE is unchanged.
/// - The errors of [`RunningPe::finish`].
pub(crate) fn finish(call: &'static str, pe: *const rushmem_pe) -> Result<()> {
    let mut running = lock(&RUNNING);
    let handle = running.remove(&pe.addr()).ok_or_else(|| unknown(call, pe))?;
    let handle = match Arc::try_unwrap(handle) {
        Ok(handle) => handle,
        Err(used) => {
            running.insert(pe.addr(), used);
            return Err(Error::misuse(call, "another thread is in a call with this PE"));
        }
    };
    drop(running);
    let Handle { streams, pe, .. } = handle;
    // The streams borrow the PE.
    drop(streams);
    Arc::into_inner(pe).map_or(Ok(()), RunningPe::finish)
}

fn unknown(call: &'static str, pe: *const rushmem_pe) -> Error {
    let what = match pe.is_null() {
        true => "`pe` is null".into(),
        false => format!("`pe` ({pe:p}) is not a PE of this process, or has been finalized"),
    };
    Error::misuse(call, what)
}

#[cfg(test)]
mod tests {
    use rushmem::config::{Config, DeviceKind};
    use rushmem::{Job, Status};
    use rushmem_device::Cmp;

    use super::*;

    /// Starts a job of one PE, with a deadline for waits.
    fn start() -> *mut rushmem_pe {
        let mut config = Config::default();
        config.device = DeviceKind::Native;
        config.set("heap_bytes", "64KiB").unwrap();
        config.set("timeout", "200ms").unwrap();
        add(Job::with_config(config).start().unwrap())
    }

    #[test]
    fn pe_is_finished_once_and_only_while_no_other_thread_uses_it() {
        let pe = start();
        let used = get("get", pe).unwrap();
        used.issue(On::Host, Operation::Quiet).unwrap();
        let error = finish("finish", pe).unwrap_err().to_string();
        assert!(error.contains("another thread is in a call with this PE"), "{error}");
        drop(used);
        finish("finish", pe).unwrap();
        let error = finish("finish", pe).unwrap_err().to_string();
        assert!(error.contains("is not a PE of this process, or has been finalized"), "{error}");
    }

    #[test]
    #[allow(unsafe_code, reason = "names the PE's own stream")]
    fn failure_in_a_stream_is_returned_by_its_wait_or_by_finish() {
        // SAFETY: null is the PE's own stream.
        let stream = unsafe { RawStream::new(ptr::null_mut()) };
        let pe = start();
        let handle = get("get", pe).unwrap();
        let signal = handle.pe().alloc_one::<u64>().unwrap();
        let wait = Operation::Wait { signal, cmp: Cmp::Eq, value: 1 };
        handle.issue(On::Stream(stream), wait).unwrap();
        assert_eq!(handle.wait(stream).unwrap_err().status(), Status::Kernel);
        handle.wait(stream).unwrap();
        handle.issue(On::Stream(stream), wait).unwrap();
        drop(handle);
        assert_eq!(finish("finish", pe).unwrap_err().status(), Status::Kernel);
    }
}
