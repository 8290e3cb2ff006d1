//! Settings of one adapter.

use crate::nic::Error;
use crate::roce;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// Where the UDP fabric binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// No socket: only QPs of this adapter can be reached.
    LoopbackOnly,
    /// A free address 127.64.hi.lo of which hi.lo is a LID, for several processes of one machine.
    AnyLoopback,
    /// This address of this machine.
    Addr(Ipv4Addr),
}

impl From<Ipv4Addr> for Ip {
    fn from(ip: Ipv4Addr) -> Ip {
        Ip::Addr(ip)
    }
}

/// What the engine does when it finds no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Never sleeps: lowest latency, one core for itself.
    Dedicated,
    /// Polls for `spin`, then gives its time slice away for `yielding`, then sleeps, each time for an eighth of how long there
    /// has been nothing to do, so that no doorbell is seen later than that. Packets wake it at once.
    Shared {
        /// How long to poll without pause.
        spin: Duration,
        /// How long to poll with `sched_yield` in between.
        yielding: Duration,
        /// Longest sleep.
        max_sleep: Duration,
    },
}

/// Shortest sleep, unless the longest is shorter.
const FIRST_SLEEP: Duration = Duration::from_micros(5);

impl Idle {
    /// For programs that leave the cores alone, and wait for long with much that is dear: kernels on a GPU.
    pub fn patient() -> Idle {
        Idle::Shared {
            spin: Duration::from_millis(20),
            yielding: Duration::from_millis(20),
            max_sleep: Duration::from_micros(50),
        }
    }

    /// What whoever polls does between two looks, when there has been nothing to do for `idle`: nothing, a yield, or a `sleep` of
    /// so long.
    pub fn rest(self, idle: Duration, sleep: impl FnOnce(Duration)) {
        match self {
            Idle::Shared { spin, yielding, max_sleep } if idle >= spin => {
                if idle < spin + yielding {
                    std::thread::yield_now();
                } else {
                    sleep((idle / 8).max(FIRST_SLEEP).min(max_sleep));
                }
            }
            _ => std::hint::spin_loop(),
        }
    }
}

impl Default for Idle {
    /// Polls between yields: where programs and engines outnumber the cores, whoever polls keeps the one that it waits for
    /// from running, and where they do not, a yield costs less than a microsecond.
    fn default() -> Idle {
        Idle::Shared {
            spin: Duration::from_micros(1),
            yielding: Duration::from_micros(100),
            max_sleep: Duration::from_millis(1),
        }
    }
}

/// Faults that the adapter injects on purpose. Probabilities are per packet or per event, 0 to 1.
///
/// Packet faults (`drop` to `black_hole`) concern QPs of different adapters only: those of the same adapter exchange no
/// packets. `stall`, `split` and `late` are the responder's, wherever that is, and do nothing that a reliable connection
/// of a ConnectX may not do: the entries of a QP take effect at the responder in their order, the words of one message
/// have none; READs and atomics are answered in order but maybe after later WRITEs, unless those ask for a fence.
///
/// The same seed and the same order of events give the same faults.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// Seed of every choice below.
    pub seed: u64,
    /// Outgoing packets that vanish.
    pub drop: f64,
    /// Outgoing packets that are sent twice.
    pub duplicate: f64,
    /// Outgoing packets that change places with their successor.
    pub reorder: f64,
    /// Outgoing packets of which one bit flips after the CRC was made.
    pub corrupt: f64,
    /// Outgoing packets that wait for `delay_time`.
    pub delay: f64,
    /// How long a delayed packet waits.
    pub delay_time: Duration,
    /// Peers to which nothing is sent at all, and from which nothing is taken.
    pub black_hole: Vec<Ipv4Addr>,
    /// Completions that are held back for `completion_delay_time`; those behind them on the same QP wait too.
    pub completion_delay: f64,
    /// How long a held completion waits.
    pub completion_delay_time: Duration,
    /// Visits of a QP with work that are skipped, which reorders execution between QPs.
    pub skip_qp: f64,
    /// Entries, and pieces of split ones, before which their QP stands still while others go on.
    pub stall: f64,
    /// Longest time that a QP stands still.
    pub stall_time: Duration,
    /// WRITEs and READs (of at most 1 MiB) that are moved in up to 8 pieces, in any order, with work of other QPs between
    /// them; of what comes in packets each WRITE's without an immediate value. Aligned words of 8 bytes stay whole.
    pub split: f64,
    /// READs and atomics whose answer is late: a READ reads, and an atomic's old value arrives, up to `late_time` after
    /// the entry's turn.
    pub late: f64,
    /// Longest time that an answer is late.
    pub late_time: Duration,
    /// Atomics that are a load and a store with others' turn between them: those of one NIC exclude each other, but not
    /// those of processors or other NICs.
    pub loose_atomic: f64,
}

impl Faults {
    /// Whether any fault concerns the execution of requests.
    pub(crate) fn affect_execution(&self) -> bool {
        [self.stall, self.split, self.late].iter().any(|rate| *rate > 0.0)
    }
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            seed: 1,
            drop: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            delay: 0.0,
            delay_time: Duration::from_millis(1),
            black_hole: Vec::new(),
            completion_delay: 0.0,
            completion_delay_time: Duration::from_micros(100),
            skip_qp: 0.0,
            stall: 0.0,
            stall_time: Duration::from_micros(100),
            split: 0.0,
            late: 0.0,
            late_time: Duration::from_micros(100),
            loose_atomic: 0.0,
        }
    }
}

/// Settings of one adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of the engine thread, for debuggers and profilers; the system keeps its first 15 bytes.
    pub name: String,
    /// Where the UDP fabric binds.
    pub ip: Ip,
    /// UDP port. Where it is taken the next free one is used, except on 127/8, where another address does better.
    pub port: u16,
    /// What the engine does when it finds no work.
    pub idle: Idle,
    /// Faults to inject.
    pub faults: Faults,
    /// Largest path MTU in bytes that a QP may ask for, 256 to 4096. A QP gets less where the link to its peer carries
    /// less without fragments; QUERY_QP tells.
    pub mtu: u32,
    /// Keys of the partitions that the port is in, as QPs name them by index.
    pub pkeys: Vec<u16>,
    /// First wait before unacknowledged packets are sent again. Later waits double, up to the QP's `ack_timeout`. The
    /// QP fails after `ack_timeout * (retry_count + 1)` without progress, as on hardware, however often it resent.
    pub retransmit: Duration,
    /// Most packets of one QP in flight.
    pub window: u32,
    /// A file that receives every packet in both directions, as a capture that Wireshark reads.
    pub capture: Option<PathBuf>,
    /// A file to which the bytes of executed send entries are added, one of each shape, as text: service, index, bytes.
    pub record: Option<PathBuf>,
}

impl Config {
    /// Checks what cannot be expressed by types.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let setting = |name, value: String, expected| Err(Error::Setting { name, value, expected });
        if !matches!(self.mtu, 256 | 512 | 1024 | 2048 | 4096) {
            return setting("mtu", self.mtu.to_string(), "256, 512, 1024, 2048 or 4096");
        }
        if self.ip == Ip::Addr(Ipv4Addr::UNSPECIFIED) {
            return setting("ip", "0.0.0.0".into(), "one address: it is the adapter's identity");
        }
        if self.name.contains('\0') {
            return setting("name", self.name.escape_debug().to_string(), "a name without NUL");
        }
        if !(2..=4096).contains(&self.window) {
            return setting("window", self.window.to_string(), "2 to 4096 packets");
        }
        if self.retransmit.is_zero() {
            return setting("retransmit", format!("{:?}", self.retransmit), "more than 0");
        }
        let faults = &self.faults;
        let rates = [
            ("faults.drop", faults.drop),
            ("faults.duplicate", faults.duplicate),
            ("faults.reorder", faults.reorder),
            ("faults.corrupt", faults.corrupt),
            ("faults.delay", faults.delay),
            ("faults.completion_delay", faults.completion_delay),
            ("faults.skip_qp", faults.skip_qp),
            ("faults.stall", faults.stall),
            ("faults.split", faults.split),
            ("faults.late", faults.late),
            ("faults.loose_atomic", faults.loose_atomic),
        ];
        match rates.into_iter().find(|(_, rate)| !(0.0..=1.0).contains(rate)) {
            Some((name, rate)) => setting(name, rate.to_string(), "a probability, 0 to 1"),
            None => Ok(()),
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            name: "softnic".into(),
            ip: Ip::LoopbackOnly,
            port: roce::PORT,
            idle: Idle::default(),
            faults: Faults::default(),
            mtu: roce::MAX_MTU as u32,
            pkeys: vec![roce::DEFAULT_PKEY],
            retransmit: Duration::from_millis(20),
            window: 128,
            capture: None,
            record: None,
        }
    }
}
