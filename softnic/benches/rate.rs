//! Benchmarks the software ConnectX with its engine thread on one core: WQEs and payload per second, latency from
//! doorbell to completion, and CPU use while idle.
//!
//! Run `cargo bench -p rushmem-softnic --bench rate`. Over loopback, it should reach at least a million WQEs and 2 GB
//! per second, and a latency of at most 2 microseconds.

use rushmem_mlx5::doorbell::{Doorbell, record_word};
use rushmem_mlx5::prm::cq::{CqContext, CreateCq};
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, MkeyContext, key};
use rushmem_mlx5::prm::pd::AllocPd;
use rushmem_mlx5::prm::qp::{
    AddressPath, AtomicMode, CreateQp, Init2Rtr, Mtu, QpContext, QueryQp, RqType, Rst2Init, Rtr2Rts,
};
use rushmem_mlx5::prm::{Command, Response};
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{Flags, Segment, Wqe};
use rushmem_softnic::{Config, Context, Faults, HostBuffer, Ip, Memory, Nic, Uar};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// log2 of the send queue depth, in 64-byte blocks.
const LOG_DEPTH: u8 = 14;
const DEPTH: u16 = 1 << LOG_DEPTH;
const HEAP: usize = 64 << 20;
/// Minimum duration of one measurement.
const TIME: Duration = Duration::from_millis(500);

struct End {
    context: Context,
    key: u32,
    uar: Uar,
    qpn: u32,
    queue: Arc<HostBuffer>,
    cq: Arc<HostBuffer>,
    record: Arc<HostBuffer>,
    gid: [u8; 16],
    mac: [u8; 6],
}

fn call<C: Command>(context: &Context, command: &C) -> C::Output {
    let mut output = <C::Output as Response>::EMPTY;
    context.command(command.encode().as_ref(), output.as_mut());
    <C::Output as Response>::decode(output.as_ref()).unwrap_or_else(|error| panic!("{error}"))
}

impl End {
    fn new(nic: &Nic) -> End {
        let context = nic.open();
        let pd = call(&context, &AllocPd::default()).pd;
        let buffer = |len: usize| {
            let memory = Arc::new(HostBuffer::new(len));
            let umem = context.umem_reg(Arc::clone(&memory) as _, 0, len as u64).expect("numbers are left");
            (memory, umem)
        };
        let (_, heap) = buffer(HEAP);
        let mkc = MkeyContext {
            a: true,
            rw: true,
            rr: true,
            lw: true,
            lr: true,
            qpn: MkeyContext::ANY_QP,
            pd,
            len: HEAP as u64,
            ..MkeyContext::default()
        };
        let create = CreateMkey {
            umem_valid: true,
            umem_id: heap,
            context: mkc.with_access_mode(AccessMode::MTT),
            ..CreateMkey::default()
        };
        let key = key(call(&context, &create).mkey_index, 0);
        let uar = context.alloc_uar().expect("numbers are left");
        let (record, record_umem) = buffer(4096);
        let (cq, cq_umem) = buffer(64 << LOG_DEPTH);
        let (queue, wq_umem_id) = buffer(64 << LOG_DEPTH);
        cq.write(0, &[0xff; 64]).expect("in range");
        let cqc = CqContext {
            dbr_umem_valid: true,
            dbr_umem_id: record_umem,
            dbr_addr: 64,
            cc: true,
            oi: true,
            log_cq_size: LOG_DEPTH,
            uar_page: uar.page_id,
            ..CqContext::default()
        };
        let create = CreateCq { umem_id: cq_umem, umem_valid: true, context: cqc, ..CreateCq::default() };
        let cqn_snd = call(&context, &create).cqn;
        let qpc = QpContext {
            pd,
            uar_page: uar.page_id,
            cqn_snd,
            log_sq_size: LOG_DEPTH,
            rq_type: RqType::ZERO_SIZE,
            dbr_umem_valid: true,
            dbr_umem_id: record_umem,
            ..QpContext::default()
        };
        let create = CreateQp { wq_umem_id, wq_umem_valid: true, context: qpc, ..CreateQp::default() };
        let qpn = call(&context, &create).qpn;
        End { context, key, uar, qpn, queue, cq, record, gid: nic.gid(), mac: nic.mac() }
    }

    fn connect(&self, peer: &End) {
        let qpn = self.qpn;
        let context = QpContext {
            rre: true,
            rwe: true,
            rae: true,
            atomic_mode: AtomicMode::UP_TO_8B,
            ..QpContext::default()
        };
        call(&self.context, &Rst2Init { qpn, context, ..Rst2Init::default() });
        let path = AddressPath { rgid_rip: peer.gid, rmac: peer.mac, ..AddressPath::default() };
        let context = QpContext {
            mtu: Mtu::B4096,
            log_msg_max: 30,
            remote_qpn: peer.qpn,
            log_rra_max: 4,
            primary_address_path: path,
            ..QpContext::default()
        };
        call(&self.context, &Init2Rtr { qpn, context, ..Init2Rtr::default() });
        let path = AddressPath { ack_timeout: 18, ..AddressPath::default() };
        let context = QpContext {
            log_sra_max: 4,
            retry_count: 7,
            rnr_retry: 7,
            primary_address_path: path,
            ..QpContext::default()
        };
        call(&self.context, &Rtr2Rts { qpn, context, ..Rtr2Rts::default() });
    }

    /// Posts `wqe` repeatedly in batches, with at most two batches in flight and one CQE per batch. Returns the number
    /// of WQEs per second.
    fn rate(&self, wqe: &Wqe, batch: u16) -> f64 {
        let mut producer = self.producer();
        let start = Instant::now();
        let (mut posted, mut previous) = (0u64, None);
        loop {
            producer = self.post(wqe, producer, batch);
            posted += u64::from(batch);
            let last = producer.wrapping_sub(1);
            if let Some(previous) = previous.replace(last) {
                self.wait(previous);
            }
            if start.elapsed() > TIME {
                self.wait(last);
                return posted as f64 / start.elapsed().as_secs_f64();
            }
        }
    }

    /// Returns the median time from the doorbell of a `wqe` to its completion, with a `pause` between measurements.
    fn latency(&self, wqe: &Wqe, pause: Duration) -> Duration {
        let mut producer = self.producer();
        let begin = Instant::now();
        let mut times = Vec::new();
        while begin.elapsed() < TIME {
            std::thread::sleep(pause);
            let start = Instant::now();
            producer = self.post(wqe, producer, 1);
            self.wait(producer.wrapping_sub(1));
            times.push(start.elapsed());
        }
        times.sort_unstable();
        times[times.len() / 2]
    }

    /// Returns the index of the next WQE.
    fn producer(&self) -> u16 {
        call(&self.context, &QueryQp { qpn: self.qpn, ..QueryQp::default() }).context.sw_sq_wqebb_counter
    }

    /// Posts `wqe` `batch` times from index `producer` on, the last one signaled, and rings the doorbell. Returns the
    /// next index.
    fn post(&self, wqe: &Wqe, mut producer: u16, batch: u16) -> u16 {
        for i in 0..batch {
            let flags = if i + 1 == batch { Flags::SIGNALED } else { Flags::NONE };
            let entry = wqe.emit(producer, self.qpn, flags);
            let at = u64::from(producer % DEPTH) * 64;
            self.queue.write(at, Segment::bytes_of(entry.segments())).expect("in range");
            producer = producer.wrapping_add(1);
        }
        self.record.store_u32(4, record_word(producer));
        self.uar.memory().store_u64(0x800, Doorbell::producer(self.qpn, producer).raw());
        producer
    }

    /// Polls the collapsed CQ until it reports WQE `index` or a later one.
    fn wait(&self, index: u16) {
        loop {
            let word = self.cq.load_u64(0x38);
            let done = ((word >> 32) as u16).swap_bytes();
            let opcode = (word >> 60) as u8;
            assert!(opcode == 0 || opcode == 15, "error, syndrome {:#x}", self.cq.load_u64(0x30) >> 56);
            if opcode == 0 && done.wrapping_sub(index) < 0x8000 {
                return;
            }
            std::thread::yield_now();
        }
    }
}

fn main() {
    let nic = Nic::start(Config::default()).expect("an adapter");
    let (a, b) = (End::new(&nic), End::new(&nic));
    a.connect(&b);
    b.connect(&a);
    println!("loopback");
    report(&a, &b);
    let (start, before) = (Instant::now(), processor_time());
    std::thread::sleep(TIME);
    let took = (processor_time() - before).as_secs_f64() / start.elapsed().as_secs_f64();
    println!("  idle {:24.1} % of a core", 100.0 * took);

    for (carrier, shared_memory) in [("shared memory", true), ("UDP", false)] {
        println!("RoCEv2 by {carrier}, both ends on this machine");
        between(&Faults::default(), shared_memory, report);
        report_losses(shared_memory);
    }
}

/// Packet loss rates to measure. The second one loses practically nothing, and shows the cost of fault injection alone.
const LOSSES: [f64; 4] = [0.0, 1e-9, 0.01, 0.1];
/// Number of measurements per loss rate, of which the best result counts.
const TURNS: usize = 5;

/// Measures the throughput at all [`LOSSES`], interleaved, and prints the best results relative to those without loss.
fn report_losses(shared_memory: bool) {
    for len in [65_536u32, 1 << 20] {
        let mut rates = LOSSES.map(|_| [const { Vec::new() }; 2]);
        for _ in 0..TURNS {
            for (rates, drop) in rates.iter_mut().zip(LOSSES) {
                between(&Faults { drop, ..Faults::default() }, shared_memory, |a, b| {
                    for (rates, rate) in rates.iter_mut().zip(large(a, b, len)) {
                        rates.push(rate);
                    }
                });
            }
        }
        // Takes the maximum, since other programs on the machine only reduce a rate.
        let best = rates.map(|both| both.map(|rates| rates.into_iter().fold(0.0, f64::max)));
        for (drop, [write, read]) in LOSSES.into_iter().zip(best).skip(1) {
            let [all_writes, all_reads] = best[0];
            println!(
                "  {:2.0} % of the packets of {len:>7} B lost: WRITE {write:5.2} GB/s ({:3.0} %)   READ {read:5.2} GB/s ({:3.0} %)",
                drop * 100.0,
                100.0 * write / all_writes,
                100.0 * read / all_reads
            );
        }
    }
}

/// Connects two adapters that inject `faults`, over shared memory or UDP, and calls `measure` with both of them.
fn between(faults: &Faults, shared_memory: bool, measure: impl FnOnce(&End, &End)) {
    let faults = |seed| Faults { seed, ..faults.clone() };
    let config =
        |seed| Config { ip: Ip::AnyLoopback, shared_memory, faults: faults(seed), ..Config::default() };
    let [x, y] = [1, 2].map(|seed| Nic::start(config(seed)).expect("an adapter"));
    let (a, b) = (End::new(&x), End::new(&y));
    a.connect(&b);
    b.connect(&a);
    measure(&a, &b);
}

/// Returns the CPU time that this process has used.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes only to the local variable.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(rc, 0, "every process has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn report(a: &End, b: &End) {
    let (rkey, lkey) = (b.key, a.key);
    let (raddr, laddr) = (1 << 20, 2 << 20);
    let small: [(&str, Wqe); 5] = [
        ("NOP", Wqe::Nop),
        ("WRITE inline 8 B", Wqe::WriteInline { raddr, rkey, data: Inline::from_u64(7) }),
        ("WRITE 64 B", Wqe::Write { raddr, rkey, laddr, lkey, len: 64 }),
        ("READ 8 B", Wqe::Read { raddr, rkey, laddr, lkey, len: 8 }),
        ("FETCH_ADD", Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: 1 }),
    ];
    for (name, wqe) in small {
        let rate = a.rate(&wqe, 4096) / 1e6;
        let [busy, idle] = [Duration::ZERO, Duration::from_millis(2)]
            .map(|pause| a.latency(&wqe, pause).as_secs_f64() * 1e6);
        println!(
            "  {name:18} {rate:8.2} M entries/s    one {busy:6.2} us, after 2 ms of nothing {idle:6.2} us"
        );
    }
    report_large(a, b);
}

fn report_large(a: &End, b: &End) {
    for len in [4096u32, 65_536, 1 << 20, 16 << 20] {
        let [write, read] = large(a, b, len);
        println!("  WRITE {len:>9} B    {write:8.2} GB/s    READ {read:8.2} GB/s");
    }
}

/// Measures WRITEs and READs of `len` bytes. Returns the throughput of each, in GB/s.
fn large(a: &End, b: &End, len: u32) -> [f64; 2] {
    let (rkey, lkey) = (b.key, a.key);
    let (raddr, laddr) = (1 << 20, 2 << 20);
    // Enough WQEs in flight to hide the doorbell latency.
    let batch = ((8 << 20) / len).clamp(2, 1024) as u16;
    [Wqe::Write { raddr, rkey, laddr, lkey, len }, Wqe::Read { raddr, rkey, laddr, lkey, len }]
        .map(|wqe| a.rate(&wqe, batch) * f64::from(len) / 1e9)
}
