//! Settings of one adapter, and the faults that it injects.

use crate::address::Ip;
use crate::error::Error;
use crate::health::Change;
use crate::limits::LOG_MAX_READS;
use crate::model::Model;
use crate::roce;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// How the first QPN and the first key index of an adapter are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Chosen at random from the operating system's entropy, so remote peers cannot guess them.
    Random,
    /// The lowest possible numbers, so two runs of a program post identical WQEs.
    Lowest,
}

/// What the engine thread does while it finds no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Always polls. This has the lowest latency, but occupies a core.
    Dedicated,
    /// Polls, then yields, then sleeps.
    ///
    /// Each sleep lasts an eighth of the idle time so far, so a doorbell is seen at most that much later. Packets
    /// interrupt a sleep. With `yielding` set to zero, the engine polls a little longer while work keeps arriving.
    Shared {
        /// How long to poll without pausing once there is no work.
        spin: Duration,
        /// How long to poll with a `sched_yield` between polls, before the first sleep.
        yielding: Duration,
        /// Maximum duration of one sleep.
        max_sleep: Duration,
    },
    /// Sleeps until a packet arrives, a timer expires or [`Waker::wake`](crate::Waker::wake) is called.
    ///
    /// Suits machines with more engines than cores, where polling would take the cores from programs with work. Without
    /// [`Waker::wake`](crate::Waker::wake), a doorbell is seen only after the sleep.
    Notified {
        /// Maximum duration of one sleep.
        max_sleep: Duration,
    },
}

/// Minimum duration of one sleep in [`Idle::Shared`], unless `max_sleep` is shorter.
const FIRST_SLEEP: Duration = Duration::from_micros(5);

impl Idle {
    /// Polls for 20 ms before yielding, and sleeps for at most 50 us.
    ///
    /// Suits programs that leave the cores idle while they wait for long kernels on a GPU.
    pub fn patient() -> Idle {
        Idle::Shared {
            spin: Duration::from_millis(20),
            yielding: Duration::from_millis(20),
            max_sleep: Duration::from_micros(50),
        }
    }

    /// Whether an idle engine goes to sleep without a phase of yielding.
    pub(crate) fn never_yields(self) -> bool {
        matches!(self, Idle::Shared { yielding: Duration::ZERO, .. })
    }

    /// Pauses a polling loop that has found no work for `idle`: spins, yields, or calls `sleep` with a duration.
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
    /// Polls for 1 us, yields for 100 us, and then sleeps for at most 1 ms at a time.
    ///
    /// Where programs and engines outnumber the cores, a spinning poller keeps its own peer from running. Elsewhere, a
    /// yield costs less than a microsecond.
    fn default() -> Idle {
        Idle::Shared {
            spin: Duration::from_micros(1),
            yielding: Duration::from_micros(100),
            max_sleep: Duration::from_millis(1),
        }
    }
}

/// Faults that the adapter injects. Probabilities are per packet or per event, from 0 to 1.
///
/// Packet faults (`drop` to `black_hole`) only affect QPs on different adapters, since QPs of one adapter exchange no
/// packets. `stall`, `split` and `late` act at the responder, and stay within what a reliable connection of a ConnectX
/// may do:
///
/// - WQEs of a QP take effect at the responder in order. The words of one message are not ordered.
/// - READs and atomics are answered in order, but possibly after later WRITEs that do not request a fence.
///
/// `unordered` and `posted` also model what the fabric and PCIe may do. See their descriptions.
///
/// The same seed and the same sequence of events produce the same faults.
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
    /// Seed of the random generators that decide on the faults.
    pub seed: u64,
    /// Probability that an outgoing packet is dropped.
    pub drop: f64,
    /// Probability that an outgoing packet is sent twice.
    pub duplicate: f64,
    /// Probability that an outgoing packet is swapped with its successor.
    pub reorder: f64,
    /// Probability that one bit of an outgoing packet is flipped after its CRC was computed.
    pub corrupt: f64,
    /// Probability that an outgoing packet is delayed by `delay_time`.
    pub delay: f64,
    /// By how long a packet selected by `delay` is delayed.
    pub delay_time: Duration,
    /// Addresses of peers from and to which all packets are dropped.
    pub black_hole: Vec<Ipv4Addr>,
    /// Probability that a completion is delayed by `completion_delay_time`. Later completions of the QP wait too.
    pub completion_delay: f64,
    /// By how long a completion selected by `completion_delay` is delayed.
    pub completion_delay_time: Duration,
    /// Probability that a pass of the engine skips a QP that has work. This reorders execution between QPs.
    pub skip_qp: f64,
    /// Probability that a QP stalls before a WQE, or before a piece of a split one, while other QPs continue.
    pub stall: f64,
    /// Maximum duration of a stall of a QP.
    pub stall_time: Duration,
    /// Probability that a WRITE or READ of at most 1 MiB is moved in up to 8 pieces, in any order. Other QPs run
    /// between the pieces. Over packets, this applies to the payload of each WRITE packet without an immediate value.
    /// Aligned 8-byte words are never split.
    pub split: f64,
    /// Probability that a READ or an atomic is answered late: a READ reads memory, and the old value of an atomic
    /// arrives, up to `late_time` later.
    pub late: f64,
    /// Probability that a WRITE reaches memory up to `late_time` late, while later WRITEs of its QP overtake it, as
    /// with adaptive routing. Other requests, completions and WRITEs with strong ordering wait for it. QPs with
    /// `dp_ordering_force` are exempt. All others report in QUERY_QP that they are unordered (`dp_ordering_0`).
    pub unordered: f64,
    /// Probability that QUERY_QP reports an unordered QP as ordered, like faulty firmware. Tests use it to show that
    /// drivers depend on the report.
    pub hidden_order: f64,
    /// Probability that a WRITE to another protection domain reaches memory up to `late_time` after its
    /// acknowledgement. Before every later access of this adapter to that memory, the WRITE takes effect, unless the
    /// access is a WRITE or an atomic through a key with relaxed ordering.
    pub posted: f64,
    /// Probability that a key is relaxed although CREATE_MKEY asks for a strict one. A ConnectX does this if its
    /// firmware setting PCI_WR_ORDERING is `force_relax`. Tests use it to show that drivers depend on strict keys.
    pub force_relaxed: f64,
    /// Maximum delay of late answers, unordered WRITEs and posted WRITEs.
    pub late_time: Duration,
    /// Probability that an atomic is executed as a load and a store with a pause in between. Atomics of the same
    /// adapter still exclude each other, but not those of CPUs and other NICs.
    pub loose_atomic: f64,
    /// When the port goes down, as a time after the first connection to another adapter. `None` means never.
    pub port_falls: Option<Duration>,
    /// When the port comes back up, as a time after the first connection to another adapter. `None` means never.
    pub port_returns: Option<Duration>,
    /// Mean duration of the periods for which the port is alternately up and down, starting with the first connection to
    /// another adapter. Each period is random. `None` means that the port does not flap.
    pub port_flaps: Option<Duration>,
    /// When the port loses its IP address, as a time after the first connection to another adapter. `None` means never.
    pub address_leaves: Option<Duration>,
    /// When the adapter reports a fatal error, as a time after the first connection to another adapter. `None` means
    /// never.
    pub device_fails: Option<Duration>,
    /// When the send CQs of QPs that are connected to other adapters fail, as a time after the first such connection.
    /// `None` means never.
    pub cqs_fail: Option<Duration>,
}

impl Faults {
    /// Returns the scheduled failures, each with its time after the first connection to another adapter.
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

    /// Whether any enabled fault delays, splits or reorders the execution of requests.
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
            port_flaps: None,
            address_leaves: None,
            device_fails: None,
            cqs_fail: None,
        }
    }
}

/// Settings of one adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of the engine thread, for debuggers and profilers. Linux keeps its first 15 bytes.
    pub name: String,
    /// As which model of ConnectX the adapter presents itself.
    pub model: Model,
    /// Address to which the UDP socket is bound.
    pub ip: Ip,
    /// UDP port. If it is taken, the next free one is used, or another address if the address is in 127/8.
    pub port: u16,
    /// What the engine thread does while it finds no work.
    pub idle: Idle,
    /// Faults that the adapter injects. The default injects none.
    pub faults: Faults,
    /// How the first QPN and the first key index are chosen.
    pub numbers: Numbers,
    /// Largest path MTU that a QP may request, in bytes, from 256 to 4096. A QP gets less if packets to its peer would
    /// be fragmented. QUERY_QP returns the result.
    pub mtu: u32,
    /// Whether the port is InfiniBand. Completions of datagrams then have a service level instead of a packet type.
    pub infiniband: bool,
    /// Number of physical ports that the port represents, 1 to 4. More than one is a bond (LAG), and all share the
    /// fabric.
    pub bond: u8,
    /// P_Keys of the port. A QP selects one by its index in this list.
    pub pkeys: Vec<u16>,
    /// Time after which unacknowledged packets are resent. It doubles with each attempt, up to the `ack_timeout` of the
    /// QP. As on hardware, a QP fails after `ack_timeout * (retry_count + 1)` without progress.
    pub retransmit: Duration,
    /// Maximum number of unacknowledged packets per QP, from 2 to 4096.
    pub window: u32,
    /// Whether adapters of the same machine exchange packets through shared memory instead of UDP. This requires the
    /// same network namespace and the same user ID.
    pub shared_memory: bool,
    /// Whether QPs without a doorbell record are allowed. The adapter polls registers in memory, and a register holds
    /// only the last value written, so each such QP needs a separate UAR page.
    pub no_record: bool,
    /// log2 of the maximum number of outstanding READs and atomics of a QP, in either direction, up to 7.
    pub log_max_reads: u8,
    /// Whether the clock that timestamps CQEs is set to real time. QPs then cannot have free-running timestamps.
    pub real_time: bool,
    /// Path of a capture file for all packets in both directions, which Wireshark can read.
    pub capture: Option<PathBuf>,
    /// Path of a text file to which executed commands (opcode, input, output) and one executed send WQE of each shape
    /// (service, index, bytes) are appended.
    pub record: Option<PathBuf>,
}

impl Config {
    /// Checks that the settings are within their ranges.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let setting = |name, value: String, expected| Err(Error::Setting { name, value, expected });
        if !matches!(self.mtu, 256 | 512 | 1024 | 2048 | 4096) {
            return setting("mtu", self.mtu.to_string(), "256, 512, 1024, 2048 or 4096");
        }
        if self.infiniband && !self.model.has_infiniband() {
            return setting(
                "infiniband",
                format!("a port of {}", self.model.name()),
                "Ethernet: it has no InfiniBand ports",
            );
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
        if self.log_max_reads > LOG_MAX_READS {
            return setting("log_max_reads", self.log_max_reads.to_string(), "up to 7, which is 128 READs");
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
            model: Model::default(),
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
            log_max_reads: LOG_MAX_READS,
            real_time: false,
            capture: None,
            record: None,
        }
    }
}
