//! The streams in which a caller has queued operations.
#![allow(unsafe_code, reason = "keeps streams next to the PE that they borrow")]

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use rushmem::{Pe, Result, RunningPe, Stream};
use rushmem_base::lock;

/// A `CUstream` of the caller, or null for the stream that the PE creates itself.
#[derive(Clone, Copy)]
pub(crate) struct RawStream(*mut c_void);

impl RawStream {
    /// # Safety
    /// `stream` is null, or a stream that exists until the PE is finalized.
    pub(crate) unsafe fn new(stream: *mut c_void) -> Self {
        Self(stream)
    }
}

/// The streams of a PE, by their `CUstream`. Must be dropped before the PE is shut down.
///
/// A stream keeps its entry: dropping a [`Stream`] would make the PE's next call wait for it.
pub(crate) struct Streams {
    /// The lifetime is that of `pe`, which outlives the streams.
    streams: Mutex<HashMap<usize, Arc<Stream<'static>>>>,
    pe: Arc<RunningPe>,
}

impl Streams {
    pub(crate) fn new(pe: Arc<RunningPe>) -> Self {
        Self { streams: Mutex::default(), pe }
    }

    /// Returns the PE's stream for `raw`.
    ///
    /// # Errors
    /// - The errors of [`Pe::stream`] and [`Pe::stream_from`].
    pub(crate) fn get(&self, raw: RawStream) -> Result<Arc<Stream<'static>>> {
        let mut streams = lock(&self.streams);
        if let Some(stream) = streams.get(&raw.0.addr()) {
            return Ok(Arc::clone(stream));
        }
        let pe: *const Pe = &**self.pe;
        // SAFETY: the streams are dropped before `pe`, which never moves. `get` gives out only references that callers
        // drop before they return to C.
        let pe: &'static Pe = unsafe { &*pe };
        let stream = match raw.0.is_null() {
            true => pe.stream()?,
            // SAFETY: the creator of `raw` has promised that the stream exists.
            false => unsafe { pe.stream_from_raw(raw.0) }?,
        };
        let stream = Arc::new(stream);
        streams.insert(raw.0.addr(), Arc::clone(&stream));
        Ok(stream)
    }
}
