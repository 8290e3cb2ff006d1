//! The watchdog of a PE: it reports kernels that run for long, and finds kernels that nothing but the end of their
//! process can end.
//!
//! Calls of the device API have deadlines, and so have loops of tests, but no other loop of the application. Launch queues
//! and host operations tell the watchdog what runs, and the service thread asks it for alarms. Natively, a lane that does
//! not suspend keeps its worker from all others, so it gets less time than a kernel. The watchdog knows when the launches of a
//! queue began, but not which of them runs. So a queue with several launches has as many times the limit.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rushmem_base::{crowd_deadline, lock};
use rushmem_config::Config;
use rushmem_error::Error;
use rushmem_native as native;

/// The smallest automatic warning, limit, lane limit and abort limit.
const WARNING: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_secs(3600);
const LANE_LIMIT: Duration = Duration::from_secs(5);
const ABORT_LIMIT: Duration = Duration::from_secs(5);

/// Number of launches of a queue that are remembered by name, the oldest first.
const NAMES: usize = 64;

/// The place of a launch in the application's source.
pub type LaunchSite = &'static Location<'static>;

/// Returns whether launches of a queue may be running.
pub(crate) type IsBusy = Box<dyn Fn() -> bool + Send>;

/// The time that kernels may run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    warning: Option<Duration>,
    limit: Option<Duration>,
    /// Processor time that a native lane may use without suspending.
    lane: Option<Duration>,
    /// Time from the failure of the job, or from `limit`, to the end of the process.
    abort: Duration,
    /// Whether the machine itself ends kernels at `limit`.
    machine_ends: bool,
}

impl Limits {
    /// Returns the limits of the settings. `machine_ends` tells whether the machine itself ends kernels at the limit.
    pub fn new(config: &Config, machine_ends: bool) -> Self {
        let abort = || config.timeout.max(crowd_deadline(ABORT_LIMIT, config.pes_on_node()));
        Self {
            warning: config.kernel_warning.0.map_or(Some((config.timeout * 3).max(WARNING)), |set| set.0),
            limit: kernel_limit(config),
            lane: config.lane_limit.0.map_or(Some(config.timeout.max(LANE_LIMIT)), |set| set.0),
            abort: config.abort_limit.0.unwrap_or_else(abort),
            machine_ends,
        }
    }
}

/// Returns the time that a kernel may run, or `None` for no limit.
pub fn kernel_limit(config: &Config) -> Option<Duration> {
    config.kernel_limit.0.map_or(Some((config.timeout.saturating_mul(100)).max(LIMIT)), |set| set.0)
}

/// The name and the launch place of a kernel or an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The name of the kernel.
    pub name: &'static str,
    /// `None` for an operation of the runtime.
    pub site: Option<LaunchSite>,
}

impl fmt::Display for Launched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.site {
            Some(site) => write!(f, "kernel {}, launched at {}:{},", self.name, site.file(), site.line()),
            None => write!(f, "operation {}", self.name),
        }
    }
}

/// A request of the watchdog to the service thread.
#[derive(Debug)]
pub enum Alarm {
    /// Log the text as a warning.
    Warning(String),
    /// Fail the job with this error, and set the abort word.
    Limit(Error),
    /// End the process with this text.
    Fatal(String),
}

/// The launches of a PE that may be running, and the end of its job.
pub struct Watchdog {
    pe: u32,
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    runs: BTreeMap<u64, Launches>,
    next: u64,
    /// Time and cause of the end of the job.
    aborted: Option<(Instant, String)>,
}

/// Launches of one queue that may be running, or one operation of the host.
struct Launches {
    is_busy: IsBusy,
    /// The oldest of them.
    oldest: VecDeque<Launched>,
    latest: Launched,
    /// Number of launches; 0 once all have ended.
    count: u32,
    /// Time when the first began, or when an earlier one was known to have ended.
    since: Instant,
    warned: bool,
}

impl Launches {
    fn forget(&mut self) {
        self.oldest.clear();
        self.count = 0;
    }

    /// Returns the launch that is running, as far as is known.
    fn describe(&self) -> String {
        let first = self.oldest.front().unwrap_or(&self.latest);
        match self.count {
            0 | 1 => first.to_string(),
            n => format!("{first} or one of the {} launches after it,", n - 1),
        }
    }

    /// Returns whether the launches have run for longer than `limit` each.
    fn exceed(&self, limit: Option<Duration>, now: Instant) -> bool {
        limit.is_some_and(|limit| {
            now.saturating_duration_since(self.since) >= limit.saturating_mul(self.count)
        })
    }
}

impl Watchdog {
    /// Creates the watchdog of a PE.
    pub fn new(pe: u32, limits: Limits) -> Arc<Self> {
        Arc::new(Self { pe, limits, state: Mutex::default() })
    }

    /// Returns the interval at which alarms are due to be checked.
    pub fn interval(&self) -> Duration {
        let Limits { warning, limit, lane, abort, .. } = self.limits;
        let least = [warning, limit, lane].into_iter().flatten().fold(abort, Duration::min);
        (least / 4).clamp(Duration::from_millis(10), Duration::from_secs(5))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Adds a queue with a first launch, or with a graph of `count` kernels, or an operation of the host.
    pub fn begin(self: &Arc<Self>, is_busy: IsBusy, first: Launched, count: u32) -> Run {
        let launches = Launches {
            is_busy,
            oldest: VecDeque::from([first]),
            latest: first,
            count,
            since: Instant::now(),
            warned: false,
        };
        let mut state = self.lock();
        let key = state.next;
        state.next += 1;
        state.runs.insert(key, launches);
        Run { watchdog: Arc::clone(self), key }
    }

    /// Notes that the job has failed, for the reason `cause`.
    pub fn job_failed(&self, cause: String) {
        self.lock().aborted.get_or_insert((Instant::now(), cause));
    }

    /// Returns the kernels and operations that run, one line each.
    pub(crate) fn running(&self) -> Vec<String> {
        let now = Instant::now();
        let state = self.lock();
        let runs = state.runs.values().filter(|launches| launches.count > 0 && (launches.is_busy)());
        let time = |launches: &Launches| Duration::from_millis((now - launches.since).as_millis() as u64);
        runs.map(|launches| format!("runs {} for {:?}", launches.describe(), time(launches))).collect()
    }

    /// Returns the alarm for a native lane that has run too long without suspending, if there is one.
    pub fn check_lanes(&self) -> Option<Alarm> {
        let limit = self.limits.lane?;
        let stall = native::stalled(self.pe, limit)?;
        let name = stall.kernel.unwrap_or("of another launch");
        let state = self.lock();
        let known = state.runs.values().flat_map(|launches| launches.oldest.iter().chain([&launches.latest]));
        let what = known.into_iter().find(|launched| launched.name == name);
        let what = what.map_or_else(|| format!("kernel {name}"), ToString::to_string);
        Some(Alarm::Fatal(format!(
            "PE {}: {} did not let other threads run for {limit:?} of processor time: {stall}; a loop of loads has no \
             deadline, so wait by wait_until or test, or raise RUSHMEM_LANE_LIMIT (none for long computations)",
            self.pe, what
        )))
    }

    /// Returns the next alarm at the time `now`, if there is one.
    pub fn check(&self, now: Instant) -> Option<Alarm> {
        let (pe, limits) = (self.pe, self.limits);
        let mut state = self.lock();
        let State { runs, aborted, .. } = &mut *state;
        for launches in runs.values_mut().filter(|launches| launches.count > 0) {
            let job_end = aborted.as_ref().map(|(at, _)| (*at).max(launches.since) + limits.abort);
            let is_late = job_end.is_some_and(|end| now >= end);
            let warns = !launches.warned && launches.exceed(limits.warning, now);
            let exceeds = aborted.is_none() && launches.exceed(limits.limit, now);
            if !is_late && !warns && !exceeds {
                continue;
            }
            if !(launches.is_busy)() {
                launches.forget();
                continue;
            }
            if let (true, Some((_, cause))) = (is_late, &*aborted) {
                return Some(Alarm::Fatal(format!(
                    "PE {pe}: {} did not end within {:?} after the failure of the job, so this process ends: {cause}",
                    launches.describe(),
                    limits.abort
                )));
            }
            if exceeds {
                let limit = limits.limit.unwrap_or_default();
                let error = Error::KernelLimit { pe, kernel: launches.describe(), limit };
                *aborted = Some((now, error.to_string()));
                if limits.machine_ends {
                    continue;
                }
                return Some(Alarm::Limit(error));
            }
            launches.warned = true;
            return Some(Alarm::Warning(warning(pe, launches, now, limits.limit)));
        }
        None
    }
}

fn warning(pe: u32, launches: &Launches, now: Instant, limit: Option<Duration>) -> String {
    let ran = now.saturating_duration_since(launches.since);
    let ran = if ran.as_secs() > 0 { Duration::from_secs(ran.as_secs()) } else { ran };
    let what = launches.describe();
    match limit {
        Some(limit) => format!(
            "PE {pe}: {what} has run for {ran:?}; a kernel that runs for {limit:?} ends the job (setting kernel_limit)"
        ),
        None => format!("PE {pe}: {what} has run for {ran:?}"),
    }
}

/// The launches of a queue, or an operation of the host, until this is dropped.
pub struct Run {
    watchdog: Arc<Watchdog>,
    key: u64,
}

impl Run {
    /// Adds a launch, or a graph of `count` kernels.
    pub fn add(&self, launched: Launched, count: u32) {
        self.with(|launches| {
            if launches.count == 0 {
                (launches.since, launches.warned) = (Instant::now(), false);
            }
            if launches.oldest.len() as u32 == launches.count && launches.oldest.len() < NAMES {
                launches.oldest.push_back(launched);
            }
            launches.latest = launched;
            launches.count = launches.count.saturating_add(count);
        });
    }

    /// Notes that all launches but the last `left` have ended.
    pub fn keep_last(&self, left: u32) {
        self.with(|launches| {
            let ended = launches.count.saturating_sub(left);
            launches.oldest.drain(..(ended as usize).min(launches.oldest.len()));
            launches.count -= ended;
            (launches.since, launches.warned) = (Instant::now(), false);
        });
    }

    fn with(&self, change: impl FnOnce(&mut Launches)) {
        if let Some(launches) = self.watchdog.lock().runs.get_mut(&self.key) {
            change(launches);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let ended = self.watchdog.lock().runs.remove(&self.key);
        // Its queue may end here, which must not happen under the lock.
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const SPIN: Launched = Launched { name: "spin", site: None };
    const RING: Launched = Launched { name: "ring", site: None };

    fn watchdog(machine_ends: bool) -> Arc<Watchdog> {
        let (warning, limit) = (Some(10 * SECOND), Some(60 * SECOND));
        Watchdog::new(3, Limits { warning, limit, lane: None, abort: 5 * SECOND, machine_ends })
    }

    fn busy() -> IsBusy {
        Box::new(|| true)
    }

    fn text(alarm: Option<Alarm>) -> String {
        match alarm {
            Some(Alarm::Warning(text)) => format!("warning: {text}"),
            Some(Alarm::Limit(error)) => format!("limit: {error}"),
            Some(Alarm::Fatal(text)) => format!("fatal: {text}"),
            None => String::new(),
        }
    }

    #[test]
    fn a_long_kernel_is_reported_once_and_then_ends_the_job() {
        let watchdog = watchdog(false);
        let _run = watchdog.begin(busy(), SPIN, 1);
        let begin = Instant::now();
        assert!(watchdog.running()[0].starts_with("runs operation spin for "));
        let after = |seconds| text(watchdog.check(begin + seconds * SECOND));
        assert_eq!(after(9), "");
        assert_eq!(
            after(10),
            "warning: PE 3: operation spin has run for 10s; a kernel that runs for 60s ends the job (setting \
             kernel_limit)"
        );
        assert_eq!(after(11), "");
        let limit = "PE 3: operation spin did not end within 60s; check its loops, or raise RUSHMEM_KERNEL_LIMIT \
                     (none for kernels that run on)";
        assert_eq!(after(61), format!("limit: {limit}"));
        assert_eq!(after(62), "");
        assert_eq!(
            after(66),
            format!(
                "fatal: PE 3: operation spin did not end within 5s after the failure of the job, so this process \
                 ends: {limit}"
            )
        );
    }

    #[test]
    fn a_kernel_that_survives_the_job_is_fatal() {
        let watchdog = watchdog(true);
        let run = watchdog.begin(busy(), SPIN, 1);
        watchdog.job_failed("PE 1 was lost".into());
        watchdog.job_failed("later".into());
        let begin = Instant::now();
        assert!(watchdog.check(begin + 4 * SECOND).is_none());
        let fatal = text(watchdog.check(begin + 6 * SECOND));
        assert!(
            fatal.starts_with("fatal: ") && fatal.ends_with("so this process ends: PE 1 was lost"),
            "{fatal}"
        );
        drop(run);
        assert!(watchdog.check(begin + 100 * SECOND).is_none());
    }

    #[test]
    fn ended_launches_raise_no_alarm() {
        let (watchdog, runs) = (watchdog(false), Arc::new(AtomicBool::new(false)));
        let is_busy = Arc::clone(&runs);
        let run = watchdog.begin(Box::new(move || is_busy.load(Ordering::Acquire)), SPIN, 1);
        let begin = Instant::now();
        assert!(watchdog.check(begin + 1000 * SECOND).is_none());
        // A later launch of the queue has its own time.
        runs.store(true, Ordering::Release);
        run.add(RING, 1);
        assert!(watchdog.check(begin + 9 * SECOND).is_none());
        assert!(
            text(watchdog.check(Instant::now() + 10 * SECOND)).contains("operation ring has run for 10s")
        );
    }

    #[test]
    fn several_launches_have_as_many_times_the_limit() {
        let watchdog = watchdog(false);
        let run = watchdog.begin(busy(), SPIN, 1);
        run.add(RING, 1);
        run.add(RING, 3);
        let begin = Instant::now();
        assert!(watchdog.check(begin + 49 * SECOND).is_none());
        let several = text(watchdog.check(begin + 51 * SECOND));
        assert!(
            several.contains("operation spin or one of the 4 launches after it, has run for"),
            "{several}"
        );
        run.keep_last(1);
        let last = text(watchdog.check(Instant::now() + 10 * SECOND));
        assert!(last.contains("operation ring has run for"), "{last}");
    }
}
