//! Copies between host and GPU memory, in call order.

use super::driver::{Context, CudaError, Driver, NON_BLOCKING, Stream};
use super::owner::Owner;
use crate::per_process::PerProcess;
use rushmem_softnic::{AtomicOp, Width};
use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Length of the page-locked buffer, in bytes.
const STAGING: usize = 1 << 20;

/// Waits for copies that take longer than this are logged.
const SLOW_WAIT: Duration = Duration::from_millis(50);

/// Stream and page-locked buffer of a CUDA context, shared by all its memory.
pub(super) struct Copier {
    driver: &'static Driver,
    owner: Owner,
    queue: Mutex<Queue>,
}

/// CUDA stream of the copies, with their staging buffer.
struct Queue {
    stream: Stream,
    staging: NonNull<u8>,
    /// Number of bytes of the staging buffer that pending copies use.
    used: usize,
    waits: Waits,
}

/// Statistics of waits for copies.
#[derive(Default)]
struct Waits {
    count: u64,
    time: Duration,
}

// SAFETY: the driver's handles and the buffer are used under the lock of the copier, by any thread.
unsafe impl Send for Queue {}
// SAFETY: the driver's functions take a context from any thread.
unsafe impl Send for Copier {}
// SAFETY: as for Send.
unsafe impl Sync for Copier {}

/// Returns the copier of a context, creating it if needed. Takes over the owner's reference to a primary context.
pub(super) fn shared(driver: &'static Driver, owner: Owner) -> Result<Arc<Copier>, CudaError> {
    static COPIERS: PerProcess<Mutex<Vec<Weak<Copier>>>> = PerProcess::new();
    let mut copiers = COPIERS.current(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    copiers.retain(|copier| copier.strong_count() > 0);
    let of_context = |copier: &Arc<Copier>| copier.owner.context == owner.context;
    if let Some(copier) = copiers.iter().filter_map(Weak::upgrade).find(of_context) {
        give_back(driver, owner);
        return Ok(copier);
    }
    let copier = Copier::new(driver, owner).inspect_err(|_| give_back(driver, owner))?;
    let copier = Arc::new(copier);
    copiers.push(Arc::downgrade(&copier));
    Ok(copier)
}

/// Releases a retained primary context.
fn give_back(driver: &Driver, owner: Owner) {
    let mut device = -1;
    if owner.is_retained {
        // SAFETY: a live variable, and a context that was kept once.
        let released = unsafe {
            driver.device(&raw mut device, owner.ordinal).and_then(|()| driver.release_primary(device))
        };
        if let Err(error) = released {
            tracing::debug!("the primary context is not given back: {error}");
        }
    }
}

impl Copier {
    fn new(driver: &'static Driver, owner: Owner) -> Result<Copier, CudaError> {
        let _entered = driver.enter(owner.context)?;
        let (mut least, mut greatest): (c_int, c_int) = (0, 0);
        let (mut stream, mut staging) = (null_mut(), null_mut());
        // SAFETY: live variables for the results.
        unsafe {
            // Streams of different priorities share no hardware queue, and copies must not queue up after the program's
            // kernels.
            driver.priorities(&raw mut least, &raw mut greatest)?;
            driver.create_stream(&raw mut stream, NON_BLOCKING, greatest)?;
            if let Err(error) = driver.allocate_host(&raw mut staging, STAGING, 0) {
                let _ = driver.destroy_stream(stream);
                return Err(error);
            }
        }
        let staging = NonNull::new(staging.cast()).expect("the driver has allocated it");
        Ok(Copier {
            driver,
            owner,
            queue: Mutex::new(Queue { stream, staging, used: 0, waits: Waits::default() }),
        })
    }

    pub(super) fn ordinal(&self) -> u32 {
        self.owner.ordinal.unsigned_abs()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn context(&self) -> Context {
        self.owner.context
    }

    /// Starts a copy of `data` to a device address, after all earlier copies.
    pub(super) fn write(&self, to: u64, data: &[u8]) -> Result<(), CudaError> {
        let mut queue = self.lock();
        let _entered = self.driver.enter(self.context())?;
        self.write_in(&mut queue, to, data)
    }

    fn write_in(&self, queue: &mut Queue, mut to: u64, data: &[u8]) -> Result<(), CudaError> {
        for piece in data.chunks(STAGING) {
            let from = self.reserve(queue, piece.len())?;
            // SAFETY: reserved bytes of the buffer, which no pending copy uses.
            unsafe {
                from.as_ptr().copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                self.driver.copy_to_gpu(to, from.as_ptr().cast(), piece.len(), queue.stream)?;
            }
            to += piece.len() as u64;
        }
        Ok(())
    }

    /// Copies `data` from a device address, after all earlier copies.
    pub(super) fn read(&self, from: u64, data: &mut [u8]) -> Result<(), CudaError> {
        let mut queue = self.lock();
        let _entered = self.driver.enter(self.context())?;
        self.read_in(&mut queue, from, data)
    }

    /// Copies ranges, each of a device address and a length, to `data` one after another. Synchronizes only once if all
    /// fit into the buffer.
    pub(super) fn gather(&self, ranges: &[(u64, usize)], data: &mut [u8]) -> Result<(), CudaError> {
        let mut queue = self.lock();
        let _entered = self.driver.enter(self.context())?;
        let len: usize = ranges.iter().map(|(_, len)| len).sum();
        let mut rest = &mut data[..len];
        if len > STAGING {
            for (from, len) in ranges {
                let (part, behind) = rest.split_at_mut(*len);
                self.read_in(&mut queue, *from, part)?;
                rest = behind;
            }
            return Ok(());
        }
        let at = self.reserve(&mut queue, len)?;
        let mut done = 0;
        for (from, len) in ranges {
            // SAFETY: reserved bytes of the buffer, which no pending copy uses.
            unsafe {
                self.driver.copy_to_host(at.as_ptr().add(done).cast(), *from, *len, queue.stream)?;
            }
            done += len;
        }
        self.drain(&mut queue)?;
        // SAFETY: the copies to the buffer are complete.
        unsafe { rest.as_mut_ptr().copy_from_nonoverlapping(at.as_ptr(), len) };
        Ok(())
    }

    fn read_in(&self, queue: &mut Queue, mut from: u64, data: &mut [u8]) -> Result<(), CudaError> {
        for piece in data.chunks_mut(STAGING) {
            let at = self.reserve(queue, piece.len())?;
            // SAFETY: reserved bytes of the buffer, which no pending copy uses.
            unsafe {
                self.driver.copy_to_host(at.as_ptr().cast(), from, piece.len(), queue.stream)?;
                self.drain(queue)?;
                piece.as_mut_ptr().copy_from_nonoverlapping(at.as_ptr(), piece.len());
            }
            from += piece.len() as u64;
        }
        Ok(())
    }

    /// Executes an atomic on the aligned word at a device address, after all earlier copies, and returns the old value.
    ///
    /// It is atomic among the accesses of this process's adapters, as the atomics of a NIC are atomic within the NIC.
    pub(super) fn atomic(&self, at: u64, width: Width, op: AtomicOp) -> Result<u64, CudaError> {
        let mut queue = self.lock();
        let _entered = self.driver.enter(self.context())?;
        let mut old = [0; 8];
        let len = width.bytes() as usize;
        self.read_in(&mut queue, at, &mut old[..len])?;
        let old = u64::from_le_bytes(old);
        if let Some(new) = op.apply(old, width) {
            self.write_in(&mut queue, at, &new.to_le_bytes()[..len])?;
            self.drain(&mut queue)?;
        }
        Ok(old)
    }

    /// Waits until all earlier copies are complete.
    pub(super) fn flush(&self) -> Result<(), CudaError> {
        let mut queue = self.lock();
        if queue.used == 0 {
            return Ok(());
        }
        let _entered = self.driver.enter(self.context())?;
        self.drain(&mut queue)
    }

    /// Reserves `len` bytes of the buffer.
    fn reserve(&self, queue: &mut Queue, len: usize) -> Result<NonNull<u8>, CudaError> {
        if STAGING - queue.used < len {
            self.drain(queue)?;
        }
        let at = queue.used;
        queue.used += len;
        // SAFETY: inside of the buffer: a piece has at most its size.
        Ok(unsafe { queue.staging.add(at) })
    }

    /// Waits for all pending copies, and frees the staging buffer. The caller has made the context current.
    fn drain(&self, queue: &mut Queue) -> Result<(), CudaError> {
        queue.used = 0;
        let (begin, number) = (Instant::now(), queue.waits.count + 1);
        if number.is_power_of_two() {
            tracing::debug!(number, so_far = ?queue.waits.time, "waits for copies of GPU memory");
        }
        // SAFETY: the stream of this copier.
        let waited = unsafe { self.driver.synchronize_stream(queue.stream) };
        let time = begin.elapsed();
        queue.waits = Waits { count: number, time: queue.waits.time + time };
        if number.is_power_of_two() || time > SLOW_WAIT {
            tracing::debug!(number, ?time, "has waited for copies of GPU memory");
        }
        waited
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        let queue = self.lock();
        let freed = self.driver.enter(self.context()).and_then(|_entered| {
            // SAFETY: this copier has made both, and nothing is pending: each memory has flushed its copies.
            unsafe {
                let destroyed = self.driver.destroy_stream(queue.stream);
                self.driver.free_host(queue.staging.as_ptr().cast()).and(destroyed)
            }
        });
        drop(queue);
        if let Err(error) = freed {
            // The program has destroyed its context first.
            tracing::debug!("a stream is not destroyed: {error}");
        }
        give_back(self.driver, self.owner);
    }
}
