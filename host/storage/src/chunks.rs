//! Threads that process the chunks of a file, each with its own buffer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rushmem_error::{Error, Result};

use crate::format::ALIGN;

/// Number of threads. Two saturate a file system in memory; network file systems need more requests in flight.
const THREADS: usize = 4;

/// Cancels a call whose result is no longer needed.
#[derive(Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// Makes the call fail soon.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Memory for a chunk, aligned for writes past the page cache.
#[derive(Default)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    /// Returns `bytes` bytes with any content.
    pub(crate) fn take(&mut self, bytes: u64) -> &mut [u8] {
        let (bytes, align) = (bytes as usize, ALIGN as usize);
        if self.0.len() < bytes + align {
            self.0.resize(bytes + align, 0);
        }
        let skipped = self.0.as_ptr().align_offset(align);
        &mut self.0[skipped..skipped + bytes]
    }
}

/// Runs `work` on the numbers `0..count`, in several threads. Returns its results in this order.
///
/// `work` gets a buffer for its use.
///
/// # Errors
/// - The first error of `work`. Numbers that come later may not have been worked on.
/// - [`Error::Thread`]
pub(crate) fn in_parallel<R: Send>(
    count: usize,
    stop: &Stop,
    work: impl Fn(usize, &mut Buffer) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let worker = || {
        let (mut buffer, mut done) = (Buffer::default(), Vec::new());
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let result = if stop.is_set() { Err(stopped()) } else { work(number, &mut buffer) };
            match result {
                Ok(result) => done.push((number, result)),
                Err(error) => {
                    failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(done)
    };
    let mut done = thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().name("storage".into()).spawn_scoped(scope, worker);
        let others = (1..THREADS.min(count)).map(spawn).collect::<Result<Vec<_>, _>>();
        if others.is_err() {
            failed.store(true, Ordering::Relaxed);
        }
        let mut done = worker();
        for other in others.map_err(Error::Thread)? {
            let theirs = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done = done.and_then(|mut done| {
                done.extend(theirs?);
                Ok(done)
            });
        }
        done
    })?;
    done.sort_unstable_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

fn stopped() -> Error {
    Error::Unavailable { what: "the rest of the data".into(), why: "the call has failed elsewhere".into() }
}
