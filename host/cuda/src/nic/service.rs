//! The service kernel on a GPU: its launch and its end.
//!
//! The kernel is launched when an access needs it, and leaves when it has nothing to do. Nothing waits for a launched kernel
//! to begin for longer than [`START_WAIT`], because kernels of the application may fill the GPU.
#![allow(unsafe_code, reason = "launches a kernel and shares a ring with it")]

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rushmem_base::{LaunchConfig, lock};
use rushmem_service::{Client, Left, Request, Ring, State, THREADS};

use crate::driver_gate::{DRIVER_GATE, KernelQueue, Service};
use crate::{Device, Error, Event, Function, Image, Module, PinnedBuffer, Stream};

/// Name of the kernel.
const KERNEL: &str = "rushmem_service";

/// Time without a request after which the kernel ends.
const IDLE: Duration = Duration::from_millis(1);

/// Time after which the kernel ends once the ring is empty.
const LIFE: Duration = Duration::from_millis(100);

/// Longest time that an access waits for a launched kernel to begin. The copy engines serve after it.
const START_WAIT: Duration = Duration::from_micros(100);

/// Interval at which a waiting access looks for an error of the kernel.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The service kernel of a GPU, which runs or not, and its requests.
pub(super) struct ServiceKernel {
    function: Function,
    running: Arc<Running>,
    bars: Arc<Mutex<Bars>>,
    client: Client,
}

/// A kernel that may run.
struct Running {
    stream: Stream,
    /// Asks the kernel to leave.
    stop: Box<dyn Fn() + Send + Sync>,
    /// The ring, which the kernel uses.
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

/// The launches that need the whole GPU.
#[derive(Default)]
struct Bars {
    /// Number of launches in progress, and of those without a known end.
    launching: usize,
    /// Ends of launches.
    ends: Vec<Event>,
}

/// Keeps the service kernel away from a launch that needs the whole GPU.
#[must_use = "end or cancel it, or it stays"]
pub struct Bar {
    bars: Arc<Mutex<Bars>>,
}

impl Bar {
    /// Ends the bar when all work that is now in `stream` has completed.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver cannot record the end; the bar then stays
    pub fn end_after(self, stream: &Stream) -> Result<(), Error> {
        let end = Event::new(stream.device())?;
        end.record(stream)?;
        let mut bars = lock(&self.bars);
        bars.ends.push(end);
        bars.launching -= 1;
        Ok(())
    }

    /// Ends the bar, because the launch failed.
    pub fn cancel(self) {
        lock(&self.bars).launching -= 1;
    }
}

/// Keeps the service kernel away from launches. It outlives the kernel.
pub(super) struct Barrier {
    running: Weak<Running>,
    bars: Arc<Mutex<Bars>>,
}

impl Barrier {
    /// Keeps the kernel away from a launch that follows, and asks a running one to leave.
    pub(super) fn bar(&self) -> Bar {
        lock(&self.bars).launching += 1;
        if let Some(running) = self.running.upgrade() {
            running.retire();
        }
        Bar { bars: Arc::clone(&self.bars) }
    }
}

impl ServiceKernel {
    /// Loads the kernel from `image`.
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

    /// Returns whether the kernel takes requests now. Launches it if that is possible, and waits a moment for it to begin.
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

    /// Launches the kernel, unless the driver gate or a bar forbids it.
    fn start(&mut self) -> Result<bool, Error> {
        let Some(launch) = DRIVER_GATE.try_begin_service() else { return Ok(false) };
        {
            let mut bars = lock(&self.bars);
            bars.ends.retain(|end| matches!(end.query(), Ok(false)));
            if bars.launching > 0 || !bars.ends.is_empty() {
                return Ok(false);
            }
            // A bar that comes after this asks the new kernel to leave.
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

    /// Posts a request to the kernel, which was ready. `make` gets the address for a result in the ring. Returns the number
    /// of the request, and the requests that the kernel left if it is gone.
    pub(super) fn post(&mut self, make: impl FnOnce(u64) -> Request) -> Result<(u64, Left), Error> {
        let mut check = watchdog(&self.running.stream);
        while self.client.is_full() && self.client.state() != State::Gone {
            check()?;
        }
        self.client.post(make, check)
    }

    /// Waits until the kernel has executed all requests. Returns those that it left if it is gone.
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

    /// Reads the result of an executed request, before the ring has gone round.
    pub(super) fn read_result(&self, number: u64, to: &mut [u8]) {
        self.client.read_result(number, to);
    }
}

/// Returns a function for waiting loops. It returns an error if the kernel in `stream` has failed.
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
