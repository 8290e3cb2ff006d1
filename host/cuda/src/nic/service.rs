//! Launches and stops the service kernel, which accesses GPU memory on behalf of the software ConnectX.
//!
//! The kernel is launched when an access needs it, and exits when it has nothing to do. Kernels of the application may
//! fill the GPU and keep it from starting, so an access waits at most [`START_WAIT`] for it.
#![allow(unsafe_code, reason = "launches a kernel and shares a ring with it")]

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rushmem_base::{LaunchConfig, lock};
use rushmem_service::{Client, Left, Request, Ring, State, THREADS};

use crate::driver_gate::{DRIVER_GATE, KernelQueue, Service};
use crate::{Device, Error, Event, Function, Image, Module, PinnedBuffer, Stream};

/// Name of the service kernel in its PTX.
const KERNEL: &str = "rushmem_service";

/// Time without requests after which the service kernel exits.
const IDLE: Duration = Duration::from_millis(1);

/// Age at which the service kernel exits as soon as its request ring is empty. The next access launches a new one.
const LIFE: Duration = Duration::from_millis(100);

/// How long an access waits for the launched service kernel to start, before it uses the copy engines.
const START_WAIT: Duration = Duration::from_micros(100);

/// Interval at which a waiting access checks whether the service kernel has failed.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The service kernel of a GPU, running or not, and its request ring.
pub(super) struct ServiceKernel {
    function: Function,
    running: Arc<Running>,
    bars: Arc<Mutex<Bars>>,
    client: Client,
}

/// Stream and request ring of the service kernel. The driver gate holds a reference while the kernel may be running.
struct Running {
    stream: Stream,
    /// Asks the service kernel to exit.
    stop: Box<dyn Fn() + Send + Sync>,
    /// The request ring, which the kernel accesses.
    _ring: PinnedBuffer,
}

impl KernelQueue for Running {
    fn is_busy(&self) -> bool {
        self.stream.is_busy()
    }
}

impl Service for Running {
    fn retire(&self) {
        (self.stop)();
    }
}

/// Launches that need the whole GPU. The service kernel must not start while there are any.
#[derive(Default)]
struct Bars {
    /// Number of launches that are in progress, or whose completion could not be recorded.
    launching: usize,
    /// Events that pass when launches that need the whole GPU complete.
    ends: Vec<Event>,
}

/// Keeps the service kernel from starting beside a launch that needs the whole GPU.
#[must_use = "end or cancel it, or it stays"]
pub struct Bar {
    bars: Arc<Mutex<Bars>>,
}

impl Bar {
    /// Lifts the bar once all work that is now in `stream` has completed.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver cannot record an event; the bar then stays for good
    pub fn end_after(self, stream: &Stream) -> Result<(), Error> {
        let end = Event::new(stream.device())?;
        end.record(stream)?;
        let mut bars = lock(&self.bars);
        bars.ends.push(end);
        bars.launching -= 1;
        Ok(())
    }

    /// Lifts the bar immediately, because the launch failed.
    pub fn cancel(self) {
        lock(&self.bars).launching -= 1;
    }
}

/// Creates [`Bar`]s, independently of the service kernel's lifetime and of the lock of [`Queue`](super::engine::Queue),
/// which an access may hold for long.
pub(super) struct Barrier {
    running: Weak<Running>,
    bars: Arc<Mutex<Bars>>,
}

impl Barrier {
    /// Keeps the service kernel from starting, and asks a running one to exit. Call this before a launch that needs the
    /// whole GPU.
    pub(super) fn bar(&self) -> Bar {
        // Count first: a service kernel that is launched concurrently checks the count before it starts, or is asked to
        // exit below.
        lock(&self.bars).launching += 1;
        if let Some(running) = self.running.upgrade() {
            running.retire();
        }
        Bar { bars: Arc::clone(&self.bars) }
    }
}

impl ServiceKernel {
    /// Loads the service kernel from `image`, and allocates its request ring.
    pub(super) fn new(device: &Arc<Device>, image: &Image) -> Result<Self, Error> {
        let mut functions = Module::load_kernels(device, image)?;
        let function = functions
            .remove(KERNEL)
            .ok_or_else(|| Error::NoFunction { module: image.name.to_owned(), name: KERNEL.to_owned() })?;
        let ring = PinnedBuffer::new(device, size_of::<Ring>())?;
        // SAFETY: zeroed memory of whole pages, which `running` keeps. There is no other client.
        let client = unsafe { Client::new(ring.as_ptr().cast(), ring.address()) };
        let stop = Box::new(client.stopper());
        let running = Arc::new(Running { stream: Stream::new(device)?, stop, _ring: ring });
        Ok(Self { function, running, bars: Arc::default(), client })
    }

    pub(super) fn barrier(&self) -> Barrier {
        Barrier { running: Arc::downgrade(&self.running), bars: Arc::clone(&self.bars) }
    }

    /// Returns whether the service kernel accepts requests now. If it is not running, tries to launch it and waits
    /// briefly for it to start.
    pub(super) fn is_ready(&mut self) -> Result<bool, Error> {
        match self.client.state() {
            State::Alive | State::Leaving => return Ok(true),
            State::Starting => return Ok(false),
            State::Gone => {}
        }
        if !self.client.is_settled() || !self.running.stream.query()? || !self.start()? {
            return Ok(false);
        }
        let begin = Instant::now();
        while self.client.state() == State::Starting && begin.elapsed() < START_WAIT {
            std::hint::spin_loop();
        }
        Ok(matches!(self.client.state(), State::Alive | State::Leaving))
    }

    /// Launches the service kernel. Returns `false` if the driver gate or a [`Bar`] forbids that.
    fn start(&mut self) -> Result<bool, Error> {
        let Some(launch) = DRIVER_GATE.try_begin_service() else { return Ok(false) };
        {
            let mut bars = lock(&self.bars);
            bars.ends.retain(|end| matches!(end.query(), Ok(false)));
            if bars.launching > 0 || !bars.ends.is_empty() {
                return Ok(false);
            }
            // Under the lock: a bar that comes later finds the launch prepared, so its request to exit reaches the new
            // kernel.
            self.client.prepare_launch();
        }
        let grid = LaunchConfig::new(1, THREADS);
        let [idle, life] = [IDLE, LIFE].map(|time| (time.as_nanos() as u64).to_ne_bytes());
        let ring = self.client.address().to_ne_bytes();
        // SAFETY: the arguments of the kernel. The ring lives until the stream is idle.
        let launched = unsafe { self.function.launch(&self.running.stream, grid, &[&ring, &idle, &life]) };
        if let Err(error) = launched {
            self.client.cancel_launch();
            return Err(error);
        }
        launch.watch(&self.running);
        Ok(true)
    }

    /// Posts a request to the service kernel. [`is_ready`](Self::is_ready) must have returned `true`. `make` receives
    /// the address for a result in the ring. Returns the request's sequence number and, if the kernel has exited, the
    /// requests that it left unexecuted.
    pub(super) fn post(&mut self, make: impl FnOnce(u64) -> Request) -> Result<(u64, Left), Error> {
        let mut check = watchdog(&self.running.stream);
        while self.client.is_full() && self.client.state() != State::Gone {
            check()?;
        }
        self.client.post(make, check)
    }

    /// Waits until the service kernel has executed all requests. If it has exited, returns the requests that it left
    /// unexecuted.
    pub(super) fn settle(&mut self) -> Result<Left, Error> {
        let mut check = watchdog(&self.running.stream);
        while !self.client.is_settled() {
            if self.client.state() == State::Gone {
                return Ok(self.client.take_back());
            }
            check()?;
        }
        Ok(Left::new())
    }

    /// Reads the result of an executed request. Results are overwritten once the ring wraps around.
    pub(super) fn read_result(&self, number: u64, to: &mut [u8]) {
        self.client.read_result(number, to);
    }
}

/// Returns a check for spinning loops, which fails if the kernel in `stream` has failed. It queries the driver only
/// rarely.
fn watchdog(stream: &Stream) -> impl FnMut() -> Result<(), Error> {
    let (mut turns, mut checked) = (0u32, Instant::now());
    move || {
        std::hint::spin_loop();
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(256) && checked.elapsed() >= CHECK_INTERVAL {
            checked = Instant::now();
            stream.query()?;
        }
        Ok(())
    }
}

impl Drop for ServiceKernel {
    fn drop(&mut self) {
        self.running.retire();
        if let Err(error) = self.running.stream.synchronize() {
            tracing::debug!(%error, "the service kernel ended with an error");
        }
        DRIVER_GATE.forget_service(&self.running);
    }
}
