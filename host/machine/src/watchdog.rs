//! The watchdog of a PE. It warns about kernels that run for long, fails the job when one exceeds its limit, and
//! terminates the process when a kernel outlives the failed job.
//!
//! Calls of the device API have deadlines, as do loops that poll with `test`, but other loops of an application
//! do not. Launch queues and host operations register their work here, and the service thread polls [`Watchdog::check`]
//! for alarms. Native lanes have a separate, shorter limit, since a lane that does not suspend starves all other lanes
//! of its worker.
//!
//! The watchdog knows when a queue became busy, but not which of its launches is running. A queue with `n` outstanding
//! launches therefore gets `n` times the limit.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rushmem_base::{crowd_deadline, lock};
use rushmem_config::Config;
use rushmem_error::Error;
use rushmem_native as native;

/// Minimum of the default time after which a running kernel causes a warning. The defaults scale with the timeout
/// setting.
const MIN_WARNING: Duration = Duration::from_secs(30);
const MIN_LIMIT: Duration = Duration::from_secs(3600);
const MIN_LANE_LIMIT: Duration = Duration::from_secs(5);
const MIN_ABORT_LIMIT: Duration = Duration::from_secs(5);

/// How many outstanding launches of a queue are remembered by name. Later ones are only counted.
const MAX_NAMED_LAUNCHES: usize = 64;

/// Source location of a launch in the application.
pub type LaunchSite = &'static Location<'static>;

/// Polls whether any launch of a queue may still be running. On a GPU this is a driver call.
pub(crate) type IsBusy = Box<dyn Fn() -> bool + Send>;

/// How long kernels may run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    warning: Option<Duration>,
    limit: Option<Duration>,
    /// Processor time that a native lane may use without suspending.
    lane: Option<Duration>,
    /// Time that a kernel may outlive the failure of the job before the process is terminated.
    abort: Duration,
    /// Whether the machine terminates kernels at `limit` itself. The watchdog then reports no [`Alarm::Limit`].
    machine_ends: bool,
}

impl Limits {
    /// Reads the limits from the settings. Set `machine_ends` if the machine terminates kernels at the limit itself.
    pub fn new(config: &Config, machine_ends: bool) -> Self {
        let abort = || config.timeout.max(crowd_deadline(MIN_ABORT_LIMIT, config.pes_on_node()));
        Self {
            warning: config.kernel_warning.0.map_or(Some((config.timeout * 3).max(MIN_WARNING)), |set| set.0),
            limit: kernel_limit(config),
            lane: config.lane_limit.0.map_or(Some(config.timeout.max(MIN_LANE_LIMIT)), |set| set.0),
            abort: config.abort_limit.0.unwrap_or_else(abort),
            machine_ends,
        }
    }
}

/// Returns how long a kernel may run, or `None` for no limit.
pub fn kernel_limit(config: &Config) -> Option<Duration> {
    config.kernel_limit.0.map_or(Some((config.timeout.saturating_mul(100)).max(MIN_LIMIT)), |set| set.0)
}

/// Name and launch site of a kernel or a host operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// Name of the kernel or operation.
    pub name: &'static str,
    /// Launch site; `None` for an operation of the runtime.
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

/// An alarm that the service thread must act on.
#[derive(Debug)]
pub enum Alarm {
    /// Log this text as a warning.
    Warning(String),
    /// Fail the job with this error and set the abort word, which makes running kernels return.
    Limit(Error),
    /// Terminate the process with this text: nothing else stops the kernel.
    Fatal(String),
}

/// Tracks the launches of a PE that may be running, and whether its job has failed.
pub struct Watchdog {
    pe: u32,
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    runs: BTreeMap<u64, Launches>,
    next: u64,
    /// When and why the job failed.
    aborted: Option<(Instant, String)>,
}

/// Outstanding launches of one queue, or one operation of the host.
struct Launches {
    is_busy: IsBusy,
    /// The first launches, in order, at most [`MAX_NAMED_LAUNCHES`].
    oldest: VecDeque<Launched>,
    latest: Launched,
    /// Number of outstanding launches; 0 once the queue was seen idle.
    count: u32,
    /// When the queue became busy, or when one of its launches was last known to have completed.
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

    /// Returns whether the queue has been busy for longer than `limit` per outstanding launch.
    fn exceed(&self, limit: Option<Duration>, now: Instant) -> bool {
        limit.is_some_and(|limit| {
            now.saturating_duration_since(self.since) >= limit.saturating_mul(self.count)
        })
    }
}

impl Watchdog {
    /// Creates the watchdog of PE `pe`.
    pub fn new(pe: u32, limits: Limits) -> Arc<Self> {
        Arc::new(Self { pe, limits, state: Mutex::default() })
    }

    /// Returns the interval at which [`Watchdog::check`] should be called: a quarter of the shortest limit, but at
    /// least 10 ms and at most 5 s.
    pub fn interval(&self) -> Duration {
        let Limits { warning, limit, lane, abort, .. } = self.limits;
        let least = [warning, limit, lane].into_iter().flatten().fold(abort, Duration::min);
        (least / 4).clamp(Duration::from_millis(10), Duration::from_secs(5))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Registers a queue that has become busy, or a host operation. `first` is the launch that made the queue busy:
    /// `count` kernels for a graph, 1 otherwise.
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

    /// Records that the job has failed because of `cause`. Only the first failure counts.
    pub fn job_failed(&self, cause: String) {
        self.lock().aborted.get_or_insert((Instant::now(), cause));
    }

    /// Describes the kernels and operations that are running, one line each.
    pub(crate) fn running(&self) -> Vec<String> {
        let now = Instant::now();
        let state = self.lock();
        let runs = state.runs.values().filter(|launches| launches.count > 0 && (launches.is_busy)());
        let time = |launches: &Launches| Duration::from_millis((now - launches.since).as_millis() as u64);
        runs.map(|launches| format!("runs {} for {:?}", launches.describe(), time(launches))).collect()
    }

    /// Returns an alarm if a native lane has used more than its limit of processor time without suspending.
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

    /// Returns an alarm that is due at `now`, if any. Others follow in later calls.
    pub fn check(&self, now: Instant) -> Option<Alarm> {
        let (pe, limits) = (self.pe, self.limits);
        let mut state = self.lock();
        let State { runs, aborted, .. } = &mut *state;
        for launches in runs.values_mut().filter(|launches| launches.count > 0) {
            // A kernel launched after the failure gets the whole grace period.
            let job_end = aborted.as_ref().map(|(at, _)| (*at).max(launches.since) + limits.abort);
            let is_late = job_end.is_some_and(|end| now >= end);
            let warns = !launches.warned && launches.exceed(limits.warning, now);
            let exceeds = aborted.is_none() && launches.exceed(limits.limit, now);
            if !is_late && !warns && !exceeds {
                continue;
            }
            // Poll the queue only when an alarm is due, since that may be a driver call.
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
                // The grace period starts here, even if the machine terminates the kernel and reports the error.
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

/// Registration of a busy queue or a host operation, until it is dropped.
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
            // Names stay contiguous from the front: once one is skipped, later ones are skipped, too.
            if launches.oldest.len() as u32 == launches.count && launches.oldest.len() < MAX_NAMED_LAUNCHES {
                launches.oldest.push_back(launched);
            }
            launches.latest = launched;
            launches.count = launches.count.saturating_add(count);
        });
    }

    /// Records that all launches but the last `left` have completed.
    pub fn keep_last(&self, left: u32) {
        self.with(|launches| {
            let ended = launches.count.saturating_sub(left);
            launches.oldest.drain(..(ended as usize).min(launches.oldest.len()));
            launches.count -= ended;
            // The exact start of the next launch is unknown; it is not later than now.
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
        // Dropping `is_busy` may drop the queue itself, which waits for its kernels. Do that without the lock.
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
    fn long_kernel_is_reported_once_before_it_fails_the_job() {
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
    fn kernel_that_outlives_the_failed_job_is_fatal() {
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
    fn idle_queue_raises_no_alarm() {
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
    fn limit_scales_with_outstanding_launches() {
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
