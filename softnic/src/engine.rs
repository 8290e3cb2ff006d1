//! The engine thread, which takes the place of the hardware.
#![allow(unsafe_code, reason = "one prctl on the engine's own thread")]

use crate::alarm::Alarm;
use crate::config::Idle;
use crate::core::Core;
use crate::event::Sink;
use crate::link::udp::Waiter;
use crate::management::Receiver;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// State shared by the engine thread and the handles.
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Number of callers that wait for the core; the engine then yields between passes.
    waiting: AtomicU32,
    stop: AtomicBool,
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) sink: Sink,
    pub(crate) mads: Receiver,
}

impl Shared {
    pub(crate) fn new(core: Core, alarm: Alarm) -> Shared {
        Shared {
            core: Mutex::new(core),
            waiting: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            alarm: Arc::new(alarm),
            sink: Sink::default(),
            mads: Receiver::default(),
        }
    }

    /// Locks the core for a command.
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        // Relaxed: only a hint to the engine, the mutex orders everything.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        core
    }

    /// Returns whether a caller waits for the core.
    fn wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.alarm.ring();
    }
}

/// Number of panics after which the engine stops.
const PANICS: usize = 3;

/// Runs until [`Shared::stop`]. A panic, which a foreign [`Memory`](crate::Memory) may cause, ends all connections
/// with error completions.
pub(crate) fn run(shared: &Arc<Shared>) {
    set_timer_slack();
    for _ in 0..PANICS {
        // A panic can leave QPs in an inconsistent state, so all of them enter the error state.
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(shared))) else { return };
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        shared.core().end_all_connections(&format!("the engine panicked: {text}"));
    }
}

fn work(shared: &Arc<Shared>) {
    let idle = shared.core().config.idle;
    let mut pause = IdleTimer { idle, since: None };
    while !shared.stop.load(Ordering::Relaxed) {
        let (busy, wake, events, mads, listeners, observed) = {
            let mut core = shared.core.lock().unwrap_or_else(PoisonError::into_inner);
            let busy = core.pass(|| shared.wanted());
            let observed = core.out.lookout.take();
            (busy, core.wake(), core.take_events(), core.mads.take(), core.changed_listeners(), observed)
        };
        listeners.iter().for_each(|listener| listener());
        if !events.is_empty() {
            shared.sink.deliver(&events);
        }
        if !mads.is_empty() {
            shared.mads.deliver(mads);
        }
        if let Some((observer, observations)) = observed {
            observations.into_iter().for_each(|(at, observation)| observer.observe(at, observation));
        }
        while shared.wanted() && !shared.stop.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        if busy {
            pause.since = None;
            shared.alarm.disarm();
        } else {
            pause.rest(&wake, &shared.alarm);
        }
    }
}

/// The conditions that end a sleep early.
pub(crate) struct Wake {
    /// The socket of the fabric.
    pub(crate) socket: Option<Waiter>,
    /// The next timer.
    pub(crate) timer: Option<Instant>,
    pub(crate) now: Instant,
}

/// The idle time of the engine.
struct IdleTimer {
    idle: Idle,
    since: Option<Instant>,
}

impl IdleTimer {
    fn rest(&mut self, wake: &Wake, alarm: &Alarm) {
        let since = *self.since.get_or_insert(wake.now);
        self.idle.rest(wake.now.saturating_duration_since(since), |sleep| {
            let until_timer = wake.timer.map(|timer| timer.saturating_duration_since(wake.now));
            let sleep = until_timer.map_or(sleep, |until| until.min(sleep));
            if alarm.is_armed() {
                alarm.sleep(wake.socket.map(Waiter::fd), sleep);
            } else {
                // One more pass follows, which finds doorbells that were rung before this.
                alarm.arm();
            }
        });
    }
}

/// Reduces the timer slack of this thread: the default of 50 us would double a short sleep.
fn set_timer_slack() {
    // SAFETY: sets one property of the calling thread; a failure leaves the default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
}
