//! Detects lanes that run for long without suspending. Such a lane occupies its worker, so only a signal can reach it.
//!
//! Each worker thread counts the turns of its lanes. The watchdog watches for a count that stays the same while the
//! thread keeps using processor time. It then interrupts the thread to find out which lane is running, and at which
//! source line.
#![allow(unsafe_code, reason = "interrupts a thread by a signal, and reads its clock")]

use std::backtrace::Backtrace;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, c_void, siginfo_t};
use rushmem_base::lock;

use crate::{overflow, signal};

/// The signal that interrupts a worker. It is ignored by default, and few programs use it.
const SIGNAL: c_int = libc::SIGURG;

/// Time limit for a worker to answer [`SIGNAL`].
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A lane that has run for long without a barrier, a warp exchange or a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Name of the kernel that the lane is running.
    pub kernel: Option<&'static str>,
    /// Index of the block in the grid.
    pub block: u32,
    /// Index of the lane in its block.
    pub thread: u32,
    /// Source line at which the lane was interrupted, or the function if the program has no line tables.
    pub place: Option<String>,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} of block {}", self.thread, self.block)?;
        self.place.as_ref().map_or(Ok(()), |place| write!(f, " at {place}"))
    }
}

/// The threads of this process that run lanes.
static WORKERS: Mutex<Vec<Arc<Worker>>> = Mutex::new(Vec::new());

/// The answer of the signal handler, or null. At most one interruption is in progress.
static REPLY: AtomicPtr<Reply> = AtomicPtr::new(ptr::null_mut());

/// Action for [`SIGNAL`] that was installed before this module's handler.
static EARLIER: OnceLock<libc::sigaction> = OnceLock::new();

/// A thread that runs lanes, as the watchdog sees it.
struct Worker {
    thread: libc::pthread_t,
    clock: libc::clockid_t,
    /// PE whose lane is running, or `u32::MAX` for none.
    pe: AtomicU32,
    /// Twice the number of completed turns (runs of a lane from one suspension to the next), plus one while a lane is
    /// running.
    turns: AtomicU64,
    /// The turn that the watchdog saw last, and the thread's processor time when it first saw that turn.
    seen: Mutex<(u64, Duration)>,
}

struct Reply {
    kernel: Option<&'static str>,
    block: u32,
    thread: u32,
    backtrace: Backtrace,
}

/// Keeps a worker thread in [`WORKERS`] until the thread exits.
struct Registration(Arc<Worker>);

impl Registration {
    fn new() -> Self {
        let mut clock = 0;
        // SAFETY: the calls read the identity of the calling thread.
        let thread = unsafe {
            let thread = libc::pthread_self();
            libc::pthread_getcpuclockid(thread, &mut clock);
            thread
        };
        let seen = Mutex::new((0, Duration::ZERO));
        let worker = Worker { thread, clock, pe: AtomicU32::new(u32::MAX), turns: AtomicU64::new(0), seen };
        let worker = Arc::new(worker);
        lock(&WORKERS).push(Arc::clone(&worker));
        Self(worker)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&WORKERS).retain(|worker| !Arc::ptr_eq(worker, &self.0));
    }
}

thread_local! {
    static THIS: Registration = Registration::new();
}

/// Runs `f`, in which a lane of PE `pe` runs until it suspends, as one counted turn.
#[inline]
pub(crate) fn turn<R>(pe: Option<u32>, f: impl FnOnce() -> R) -> R {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            step(None);
        }
    }
    step(pe);
    let _end = End;
    f()
}

/// Counts that a lane's turn has started or finished. Only this thread writes the counter, so it needs no
/// read-modify-write.
fn step(pe: Option<u32>) {
    // A thread that is exiting has already destroyed its thread-local values, and is no longer watched.
    let _ = THIS.try_with(|Registration(worker)| {
        worker.pe.store(pe.unwrap_or(u32::MAX), Ordering::Relaxed);
        worker.turns.store(worker.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    });
}

/// Returns a lane of PE `pe` that has used at least `limit` of processor time since it last suspended.
///
/// Time counts from the first call that saw the lane running without a suspension, so call this regularly. The lane
/// keeps running: terminate the process, or call again.
pub fn stalled(pe: u32, limit: Duration) -> Option<Stall> {
    // While the lock is held, no worker thread can exit, and no other interruption starts.
    let workers = lock(&WORKERS);
    let late =
        workers.iter().find(|worker| worker.pe.load(Ordering::Relaxed) == pe && worker.is_late(limit))?;
    let reply = interrupt(late.thread)?;
    let place = place(&reply.backtrace.to_string());
    Some(Stall { kernel: reply.kernel, block: reply.block, thread: reply.thread, place })
}

impl Worker {
    fn is_late(&self, limit: Duration) -> bool {
        let turn = self.turns.load(Ordering::Relaxed);
        let mut seen = lock(&self.seen);
        // Between turns, or in another turn than before: start measuring anew.
        if turn.is_multiple_of(2) || turn != seen.0 {
            *seen = (turn, self.used());
            return false;
        }
        self.used().saturating_sub(seen.1) >= limit
    }

    /// Returns the processor time that the thread has used.
    fn used(&self) -> Duration {
        // SAFETY: the thread is alive, since it unregisters under the lock that the caller holds.
        let time = unsafe {
            let mut time = MaybeUninit::<libc::timespec>::zeroed().assume_init();
            libc::clock_gettime(self.clock, &mut time);
            time
        };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// Interrupts a worker thread to find out which lane it is running, and where. Returns `None` if the lane has
/// suspended, or if the thread does not answer in time.
fn interrupt(thread: libc::pthread_t) -> Option<Reply> {
    EARLIER.get_or_init(|| signal::install(SIGNAL, on_signal, libc::SA_RESTART));
    // Discard the late answer of an earlier interruption that timed out.
    drop(take_reply());
    // SAFETY: the thread is alive, as above.
    unsafe { libc::pthread_kill(thread, SIGNAL) };
    let begin = Instant::now();
    while begin.elapsed() < ANSWER_TIMEOUT {
        if let Some(reply) = take_reply() {
            return Some(reply);
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

fn take_reply() -> Option<Reply> {
    let reply = REPLY.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: the handler stores a pointer from `Box::into_raw`, and the swap takes it exactly once.
    (!reply.is_null()).then(|| *unsafe { Box::from_raw(reply) })
}

/// Handles [`SIGNAL`]: records the current lane and its backtrace.
///
/// Capturing a backtrace allocates, which a signal handler should not do: it may have interrupted the allocator.
/// Kernels do not allocate, though. If one does, its thread may hang here, and it was stuck already.
extern "C" fn on_signal(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let reply = overflow::with_current(|lane| Reply {
        kernel: lane.kernel,
        block: lane.block,
        thread: lane.thread,
        backtrace: Backtrace::force_capture(),
    });
    if let Some(reply) = reply {
        let earlier = REPLY.swap(Box::into_raw(Box::new(reply)), Ordering::AcqRel);
        if !earlier.is_null() {
            // SAFETY: as in `take_reply`.
            drop(unsafe { Box::from_raw(earlier) });
        }
    }
    if let Some(earlier) = EARLIER.get() {
        // SAFETY: the arguments are those that the system passed to this handler.
        unsafe { signal::call(earlier, number, info, context) };
    }
}

/// Returns the position of the kernel in a backtrace: the source line of its innermost frame, or the function if there
/// are no line tables.
fn place(backtrace: &str) -> Option<String> {
    let mut function: Option<&str> = None;
    let mut first = None;
    let lines: Vec<&str> = backtrace.lines().map(str::trim).collect();
    // The handler's closure may have a separate frame, above the handler's.
    let handler = lines.iter().rposition(|line| line.contains("on_signal")).map_or(0, |at| at + 1);
    for line in &lines[handler..] {
        match line.strip_prefix("at ") {
            Some(at) if function.is_some_and(is_of_kernel) && !is_library(at) => {
                let line = at.rsplit_once(':').map_or(at, |(line, _column)| line);
                return Some(line.trim_start_matches("./").to_owned());
            }
            Some(_) => {}
            None => {
                let name = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(": ");
                function = Some(name);
                if is_of_kernel(name) {
                    first.get_or_insert(name);
                }
            }
        }
    }
    first.map(str::to_owned)
}

/// Returns whether a source file belongs to Rust's libraries or to the runtime. The path is checked because inlined
/// functions lack their crate names in programs with line tables only.
fn is_library(file: &str) -> bool {
    let is_own = match file!().strip_suffix("host/native/src/stall.rs") {
        // The compiler may record paths relative to the workspace, while a backtrace shows absolute ones.
        Some(root) => ["host/native/src/", "device/src/"].iter().any(|folder| {
            let folder = ["/", root.trim_start_matches('/'), folder].concat();
            ["/", file.trim_start_matches("./")].concat().contains(&folder)
        }),
        None => ["/rushmem-native-", "/rushmem-device-"].iter().any(|package| file.contains(package)),
    };
    is_own || file.starts_with("/rustc/") || file.contains("/rustlib/src/rust/library/")
}

/// Returns whether the function `name` belongs to a kernel, and not to Rust's libraries or the runtime.
fn is_of_kernel(name: &str) -> bool {
    const OTHERS: [&str; 7] =
        ["core::", "std::", "alloc::", "rushmem_device::", "rushmem_native::", "__restore_rt", "<unknown>"];
    let name = name.trim_start_matches(['<', '&']);
    !OTHERS.iter().any(|other| name.starts_with(other.trim_start_matches('<')))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::{LaunchConfig, Options, launch};

    const GRID: LaunchConfig = LaunchConfig::new(1, 2);

    /// Runs a kernel of PE `pe` on another thread, and `watch` on this one at the same time.
    fn watched(pe: u32, kernel: impl Fn() + Send + Sync, watch: impl FnOnce()) {
        let options = Options { pe: Some(pe), kernel: Some("spins"), ..Options::default() };
        thread::scope(|scope| {
            scope.spawn(|| launch(GRID, &options, kernel).unwrap());
            watch();
        });
    }

    #[test]
    fn finds_the_source_line_of_a_stalled_lane() {
        let (stop, limit) = (AtomicBool::new(false), Duration::from_millis(20));
        let mut found = None;
        let kernel = || {
            if rushmem_device::arch::thread() == 1 {
                spin_on(&stop);
            }
        };
        watched(4001, kernel, || {
            while found.is_none() {
                found = stalled(4001, limit);
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(stalled(4002, limit), None);
            stop.store(true, Ordering::Relaxed);
        });
        let found = found.unwrap();
        assert_eq!((found.kernel, found.block, found.thread), (Some("spins"), 0, 1));
        let text = found.to_string();
        assert!(text.starts_with("thread 1 of block 0"), "{text}");
    }

    #[inline(never)]
    fn spin_on(stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {}
    }

    #[test]
    fn suspending_lane_is_never_stalled() {
        let (stop, limit) = (AtomicBool::new(false), Duration::from_millis(1));
        let kernel = || {
            while !stop.load(Ordering::Relaxed) {
                rushmem_device::arch::spin();
            }
        };
        watched(4003, kernel, || {
            for _ in 0..50 {
                assert_eq!(stalled(4003, limit), None);
                thread::sleep(Duration::from_millis(2));
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn place_is_the_innermost_line_of_the_application() {
        let text = "   0: rushmem_native::stall::on_signal::{{closure}}
             at ./host/native/src/stall.rs:9:1
   1: rushmem_native::stall::on_signal
             at ./host/native/src/stall.rs:190:20
   2: <unknown>
   3: core::sync::atomic::AtomicU64::load
             at /rustc/1/library/core/src/sync/atomic.rs:1:1
      <rushmem_device::view::View<T>>::load
             at ./device/src/view.rs:5:9
      my_kernels::spin
             at ./kernels/src/lib.rs:20:33
   4: my_kernels::outer
             at ./kernels/src/lib.rs:50:1";
        assert_eq!(place(text).as_deref(), Some("kernels/src/lib.rs:20"));
        let short = "   1: on_signal
             at ./host/native/src/stall.rs:190:20
   2: load<u64>
             at /rustc/1/library/core/src/sync/atomic.rs:1:1
      load<u64>
             at ./device/src/view.rs:5:9
      now_ns
             at /home/me/rushmem/device/src/arch/native.rs:486:5
      spin
             at ./kernels/src/lib.rs:20:33";
        assert_eq!(place(short).as_deref(), Some("kernels/src/lib.rs:20"));
        let bare = "   1: rushmem_native::stall::on_signal\n   2: <unknown>\n   3: my_kernels::spin";
        assert_eq!(place(bare).as_deref(), Some("my_kernels::spin"));
        assert_eq!(place(""), None);
    }
}
