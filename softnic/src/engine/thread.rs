//! The engine thread, which stands in for the hardware.
#![allow(unsafe_code, reason = "one prctl on the engine's own thread")]

use super::alarm::Alarm;
use super::core::{Core, Wake};
use crate::config::Idle;
use crate::link::Rest;
use crate::link::udp::Waiter;
use crate::management::Receiver;
use crate::report::Sink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// State that the engine thread shares with the adapter's handles.
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Number of threads waiting to lock the core. While there are any, the engine yields between passes.
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
        // Relaxed: only a hint to the engine. The mutex provides the ordering.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        core
    }

    /// Whether a caller is waiting for the core.
    fn wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.alarm.ring();
    }
}

/// Number of sleeps that the engine thread times at its start to choose its shortest sleep.
const SAMPLES: usize = 8;

/// Number of panics after which the engine thread exits.
const PANICS: usize = 3;

/// Runs the engine until [`Shared::stop`] is called. After a panic, which a foreign [`Memory`](crate::Memory) may
/// cause, all connections fail with error completions.
pub(crate) fn run(shared: &Arc<Shared>) {
    set_timer_slack();
    for _ in 0..PANICS {
        // A panic can leave QPs in an inconsistent state, so all of them enter the Error state.
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(shared))) else { return };
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        shared.core().end_all_connections(&format!("the engine panicked: {text}"));
    }
}

fn work(shared: &Arc<Shared>) {
    let idle = shared.core().path.config.idle;
    let shortest = shortest_sleep(&shared.alarm);
    let mut pause = IdleTimer { idle, shortest, ..IdleTimer::default() };
    while !shared.stop.load(Ordering::Relaxed) {
        let (busy, wake, events, mads, listeners, observed) = {
            let mut core = shared.core.lock().unwrap_or_else(PoisonError::into_inner);
            core.rest = Rest { is_drowsy: pause.is_drowsy, has_mail: pause.has_mail };
            let busy = core.pass(|| shared.wanted());
            let observed = core.path.report.lookout.take();
            (busy, core.wake(), core.take_events(), core.path.mads.take(), core.changed_listeners(), observed)
        };
        // Callbacks run without the lock, so they may issue commands.
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
        // A mutex is not fair, so without yielding the engine would take the lock again before a waiting caller does.
        while shared.wanted() && !shared.stop.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        pause.has_mail = false;
        if busy {
            pause.work(wake.now);
            shared.alarm.disarm();
        } else {
            pause.rest(&wake, &shared.alarm);
        }
    }
}

/// Decides whether an idle engine polls or sleeps, and for how long.
#[derive(Default)]
struct IdleTimer {
    idle: Idle,
    /// Shortest sleep for which the system switches to another thread.
    shortest: Duration,
    /// When the engine last ran out of work, or `None` if it has work.
    since: Option<Instant>,
    /// How long to poll before sleeping. Grows while work keeps arriving shortly after the engine went idle.
    patience: Duration,
    /// Whether the next sleep may be longer than [`MAX_QUIET_SLEEP`], so peers should interrupt it.
    is_drowsy: bool,
    /// Whether traffic on a socket interrupted the last sleep.
    has_mail: bool,
}

/// Longest sleep that peers do not interrupt.
///
/// To wake a thread, the system interrupts a core that is doing something else. In a virtual machine, this costs the
/// peer more time than such a sleep lasts.
const MAX_QUIET_SLEEP: Duration = Duration::from_micros(50);

impl IdleTimer {
    fn work(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            // Work within the polling time means that polling pays off, so poll longer next time.
            let came_soon = now.saturating_duration_since(since) < MAX_POLL_TIME;
            self.patience = if came_soon {
                (self.patience * 2).clamp(MIN_POLL_TIME, MAX_POLL_TIME)
            } else {
                self.patience / 4
            };
        }
        self.is_drowsy = false;
    }

    fn rest(&mut self, wake: &Wake, alarm: &Alarm) {
        let since = *self.since.get_or_insert(wake.now);
        let idle = wake.now.saturating_duration_since(since);
        if self.idle.never_yields() && idle < self.patience {
            return std::hint::spin_loop();
        }
        self.idle.rest(idle, |sleep| {
            let until_timer = wake.timer.map(|timer| timer.saturating_duration_since(wake.now));
            let sleep = sleep.max(self.shortest);
            let wanted = until_timer.map_or(sleep, |until| until.min(sleep));
            // The peers learn of a long sleep only in the pass before it, so the first sleep is short.
            let sleep = if self.is_drowsy { wanted } else { wanted.min(MAX_QUIET_SLEEP) };
            self.is_drowsy = wanted > MAX_QUIET_SLEEP;
            if alarm.is_armed() {
                self.has_mail = alarm.sleep(wake.sockets.map(|socket| socket.map(Waiter::fd)), sleep);
            } else {
                // One more pass follows, which finds doorbells rung before the alarm was armed.
                alarm.arm();
            }
        });
    }
}

/// Minimum time to poll before sleeping, once work has arrived early.
const MIN_POLL_TIME: Duration = Duration::from_micros(1);
/// Maximum time to poll before sleeping. Work that arrives within this time after the last is early.
const MAX_POLL_TIME: Duration = Duration::from_micros(30);

/// Returns the shortest sleep for which the system switches to another thread.
///
/// In a virtual machine, setting a timer may take longer than the timer runs. Such a sleep returns before the thread
/// has left the core, and the engine keeps the core from the very program that it works for.
fn shortest_sleep(alarm: &Alarm) -> Duration {
    let to_set = (0..SAMPLES).map(|_| {
        let begin = Instant::now();
        alarm.sleep([None; 2], Duration::from_nanos(1));
        begin.elapsed()
    });
    (to_set.min().unwrap_or_default() * 2 / 3).min(MAX_QUIET_SLEEP)
}

/// Reduces this thread's timer slack: the default of 50 us would double a short sleep.
fn set_timer_slack() {
    // SAFETY: sets one property of the calling thread; a failure leaves the default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
}
