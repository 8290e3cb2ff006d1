//! Settings of one adapter.

use crate::address::Ip;
use crate::error::Error;
use crate::health::Change;
use crate::roce;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// A rule for the first QP number and the first key index of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// The operating system draws them, so that nobody can guess them.
    Random,
    /// They are the lowest ones, so that two runs post the same WQEs.
    Lowest,
}

/// The engine's behaviour while it finds no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Never sleeps: lowest latency, one core for itself.
    Dedicated,
    /// Polls, then yields, then sleeps.
    ///
    /// Each sleep lasts an eighth of the idle time so far, so a doorbell is seen at most that much later. Packets end
    /// a sleep at once. Without yields, the engine polls a little longer while work keeps coming.
    Shared {
        /// Time of polling without a pause.
        spin: Duration,
        /// Time of polling with `sched_yield` in between.
        yielding: Duration,
        /// Longest sleep.
        max_sleep: Duration,
    },
    /// Sleeps until a packet, a timer or [`Waker::wake`](crate::Waker::wake).
    ///
    /// Suits engines that outnumber the cores, where polls would keep the cores from programs with work. A doorbell
    /// without [`Waker::wake`](crate::Waker::wake) is seen after the sleep.
    Notified {
        /// Longest sleep.
        max_sleep: Duration,
    },
}

/// Shortest sleep, unless `max_sleep` is shorter.
const FIRST_SLEEP: Duration = Duration::from_micros(5);

impl Idle {
    /// Returns settings that poll for 20 ms before yielding, and sleep at most 50 us.
    ///
    /// They suit programs that leave the cores idle and wait long for kernels on a GPU.
    pub fn patient() -> Idle {
        Idle::Shared {
            spin: Duration::from_millis(20),
            yielding: Duration::from_millis(20),
            max_sleep: Duration::from_micros(50),
        }
    }

    /// Returns whether the engine sleeps without yielding first.
    pub(crate) fn never_yields(self) -> bool {
        matches!(self, Idle::Shared { yielding: Duration::ZERO, .. })
    }

    /// Pauses a polling loop that has been idle for `idle`: spins, yields or calls `sleep` with a duration.
    pub fn rest(self, idle: Duration, sleep: impl FnOnce(Duration)) {
        match self {
            Idle::Shared { spin, yielding, max_sleep } if idle >= spin => {
                if idle < spin + yielding {
                    std::thread::yield_now();
                } else {
                    sleep((idle / 8).max(FIRST_SLEEP).min(max_sleep));
                }
            }
            Idle::Notified { max_sleep } => sleep(max_sleep),
            Idle::Dedicated | Idle::Shared { .. } => std::hint::spin_loop(),
        }
    }
}

impl Default for Idle {
    /// Returns settings that yield after 1 us.
    ///
    /// Where programs and engines outnumber the cores, a spinning poller keeps its own peer from running. Elsewhere a
    /// yield costs less than a microsecond.
    fn default() -> Idle {
        Idle::Shared {
            spin: Duration::from_micros(1),
            yielding: Duration::from_micros(100),
            max_sleep: Duration::from_millis(1),
        }
    }
}

/// Faults that the adapter injects deliberately. Probabilities are per packet or per event, 0 to 1.
///
/// Packet faults (`drop` to `black_hole`) affect only QPs of different adapters. QPs of one adapter exchange no
/// packets. `stall`, `split` and `late` act at the responder. They do nothing that a reliable connection of a ConnectX
/// may not do:
///
/// - WQEs of a QP take effect at the responder in order. The words of one message have no order.
/// - READs and atomics are answered in order, but possibly after later WRITEs that do not request a fence.
///
/// `unordered` and `posted` model what fabric and PCIe may do as well. See their descriptions.
///
/// The same seed and the same order of events give the same faults.
///
/// ```
/// use rushmem_softnic::{Config, Faults};
///
/// let faults = Faults { seed: 7, drop: 0.01, ..Faults::default() };
/// let config = Config { faults, ..Config::default() };
/// assert_eq!(config.faults.seed, 7);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// Seed of all random choices.
    pub seed: u64,
    /// Outgoing packets that are dropped.
    pub drop: f64,
    /// Outgoing packets that are sent twice.
    pub duplicate: f64,
    /// Outgoing packets that are swapped with their successor.
    pub reorder: f64,
    /// Outgoing packets with one bit flipped after the CRC was computed.
    pub corrupt: f64,
    /// Outgoing packets that wait for `delay_time`.
    pub delay: f64,
    /// Delay of a delayed packet.
    pub delay_time: Duration,
    /// Peers with which no packets are exchanged.
    pub black_hole: Vec<Ipv4Addr>,
    /// Completions that are held back for `completion_delay_time`. Later completions of the QP wait too.
    pub completion_delay: f64,
    /// Delay of a held completion.
    pub completion_delay_time: Duration,
    /// Visits of a QP with work that are skipped. This reorders execution between QPs.
    pub skip_qp: f64,
    /// WQEs, and pieces of split ones, before which their QP stalls while other QPs continue.
    pub stall: f64,
    /// Longest stall of a QP.
    pub stall_time: Duration,
    /// WRITEs and READs of at most 1 MiB that are moved in up to 8 pieces, in any order. Other QPs work between the
    /// pieces. Over packets this applies to the payload of each WRITE packet without an immediate value. Aligned words
    /// of 8 bytes stay whole.
    pub split: f64,
    /// READs and atomics with a late answer. A READ reads, and the old value of an atomic arrives, up to `late_time`
    /// later.
    pub late: f64,
    /// WRITEs that land up to `late_time` late, while later WRITEs of their QP pass them, as with adaptive routing. Other
    /// requests, completions and WRITEs with strong ordering wait for them. A QP with `dp_ordering_force` is exempt.
    /// Other QPs report in QUERY_QP that they are unordered (`dp_ordering_0`).
    pub unordered: f64,
    /// Unordered QPs that QUERY_QP reports as ordered: an error of firmware. Tests show with it that drivers depend on
    /// the report.
    pub hidden_order: f64,
    /// WRITEs to another protection domain that land up to `late_time` after their acknowledgement. Every later access of
    /// this adapter to that memory lands them first, except a WRITE or an atomic through a key with relaxed ordering.
    pub posted: f64,
    /// Keys that are relaxed although CREATE_MKEY asks for a strict one. A ConnectX does that if its firmware setting
    /// PCI_WR_ORDERING is `force_relax`. Tests show with it that drivers depend on strict keys.
    pub force_relaxed: f64,
    /// Longest delay of a late answer, of an unordered WRITE and of a posted WRITE.
    pub late_time: Duration,
    /// Atomics executed as a load and a store with a pause between them. Atomics of one NIC still exclude each other,
    /// but not atomics of processors or other NICs.
    pub loose_atomic: f64,
    /// Time from the first connection to another adapter until the port goes down. `None`: never.
    pub port_falls: Option<Duration>,
    /// Time from the first connection to another adapter until the port is up again.
    pub port_returns: Option<Duration>,
    /// Time from the first connection to another adapter until the port loses its address.
    pub address_leaves: Option<Duration>,
    /// Time from the first connection to another adapter until the adapter fails.
    pub device_fails: Option<Duration>,
    /// Time from the first connection to another adapter until the CQs of such connections fail.
    pub cqs_fail: Option<Duration>,
}

impl Faults {
    /// Returns the failures of the port and the adapter, with their times after the first connection to another adapter.
    pub(crate) fn planned_failures(&self) -> Vec<(Duration, Change)> {
        let planned = [
            (self.port_falls, Change::PortFalls),
            (self.port_returns, Change::PortReturns),
            (self.address_leaves, Change::AddressLeaves),
            (self.device_fails, Change::DeviceFails),
            (self.cqs_fail, Change::CqsFail),
        ];
        planned.into_iter().filter_map(|(after, change)| Some((after?, change))).collect()
    }

    /// Returns whether any fault affects the execution of requests.
    pub(crate) fn affect_execution(&self) -> bool {
        [self.stall, self.split, self.late, self.unordered].iter().any(|rate| *rate > 0.0)
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
            unordered: 0.0,
            hidden_order: 0.0,
            posted: 0.0,
            force_relaxed: 0.0,
            late_time: Duration::from_micros(100),
            loose_atomic: 0.0,
            port_falls: None,
            port_returns: None,
            address_leaves: None,
            device_fails: None,
            cqs_fail: None,
        }
    }
}

/// Settings of one adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of the engine thread, for debuggers and profilers. The system keeps its first 15 bytes.
    pub name: String,
    /// The address to which the UDP fabric binds.
    pub ip: Ip,
    /// UDP port. If it is taken, the next free port is used; on 127/8 another address is used instead.
    pub port: u16,
    /// The engine's behaviour while it finds no work.
    pub idle: Idle,
    /// Injected faults.
    pub faults: Faults,
    /// The first QP number and the first key index.
    pub numbers: Numbers,
    /// Largest path MTU in bytes that a QP may request, 256 to 4096. A QP gets less if the link to its peer carries
    /// less without fragments. QUERY_QP returns the result.
    pub mtu: u32,
    /// Whether the port is InfiniBand. Completions of datagrams then hold a service level, and no type of packet.
    pub infiniband: bool,
    /// Number of physical ports behind the port, 1 to 4. Several are a bond (LAG), and share the fabric.
    pub bond: u8,
    /// Partition keys of the port. QPs select one by index.
    pub pkeys: Vec<u16>,
    /// First timeout before unacknowledged packets are sent again. Later timeouts double, up to the QP's
    /// `ack_timeout`. The QP fails after `ack_timeout * (retry_count + 1)` without progress, like hardware.
    pub retransmit: Duration,
    /// Maximum number of packets in flight for one QP.
    pub window: u32,
    /// Whether packets to adapters of this machine go through shared memory, if the peer is in the same network namespace and
    /// has the same user. Other packets go by UDP.
    pub shared_memory: bool,
    /// Whether QPs may have no doorbell record. The adapter polls registers in memory, and a register holds its last value
    /// only. So each such QP needs a UAR page that no other one uses.
    pub no_record: bool,
    /// Capture file of every packet in both directions, readable by Wireshark.
    pub capture: Option<PathBuf>,
    /// File for the WQE log: the bytes of executed send WQEs, one of each shape, as text (service, index, bytes).
    pub record: Option<PathBuf>,
}

impl Config {
    /// Checks the ranges that types do not express.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let setting = |name, value: String, expected| Err(Error::Setting { name, value, expected });
        if !matches!(self.mtu, 256 | 512 | 1024 | 2048 | 4096) {
            return setting("mtu", self.mtu.to_string(), "256, 512, 1024, 2048 or 4096");
        }
        if !(1..=4).contains(&self.bond) {
            return setting("bond", self.bond.to_string(), "1 to 4 ports");
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
            ("faults.unordered", faults.unordered),
            ("faults.hidden_order", faults.hidden_order),
            ("faults.posted", faults.posted),
            ("faults.force_relaxed", faults.force_relaxed),
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
            numbers: Numbers::Random,
            mtu: roce::MAX_MTU as u32,
            infiniband: false,
            bond: 1,
            pkeys: vec![roce::DEFAULT_PKEY],
            retransmit: Duration::from_millis(20),
            window: 128,
            shared_memory: true,
            no_record: false,
            capture: None,
            record: None,
        }
    }
}
