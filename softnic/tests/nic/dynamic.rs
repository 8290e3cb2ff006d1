//! Tests of dynamic connections between DCIs and DCTs.

use crate::script::{Pe, Setup, TIMEOUT, call, loopback_nic, pattern, until, wire_nic};
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::be::Be32;
use rushmem_mlx5::doorbell::record_word;
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::cq::DestroyCq;
use rushmem_mlx5::prm::dct::{CreateDct, DctContext, DctState, DestroyDct, DrainDct, QueryDct};
use rushmem_mlx5::prm::qp::{AtomicMode, Mtu, QpState, QueryQp, ServiceType, ToRst};
use rushmem_mlx5::prm::rmp::{CreateRmp, DestroyRmp, RmpContext, RmpState, Wq, WqType};
use rushmem_mlx5::seg::DataSeg;
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{Cqe, CqeOpcode, Flags, Segment, Syndrome, Wqe};
use rushmem_softnic::{Config, Event, Faults, HostBuffer, Memory, Nic, Observation, Observer};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const KEY: u64 = 0x1122_3344_5566_7788;
/// log2 of the number of receives that a DCT's SRQ holds.
const LOG_RECEIVES: u8 = 4;
const RECORD: usize = 2048;

/// A DCT with a heap and an SRQ.
pub(crate) struct Target {
    pub(crate) pe: Pe,
    rmpn: u32,
    queue: Arc<HostBuffer>,
    posted: u16,
    context: DctContext,
    dctn: u32,
}

impl Target {
    pub(crate) fn new(nic: &Nic) -> Target {
        Target::with(nic, |_| {})
    }

    /// Creates a DCT whose context `change` has modified.
    fn with(nic: &Nic, change: impl FnOnce(&mut DctContext)) -> Target {
        let pe = Pe::new(nic, Setup::default());
        let queue = Arc::new(HostBuffer::new(4096));
        let umem = pe.context.umem_reg(Arc::clone(&queue) as _, 0, 4096).unwrap();
        let wq = Wq {
            wq_type: WqType::CYCLIC,
            pd: pe.pd,
            dbr_addr: RECORD as u64,
            log_wq_stride: 6,
            log_wq_sz: LOG_RECEIVES,
            dbr_umem_valid: true,
            wq_umem_valid: true,
            dbr_umem_id: umem,
            wq_umem_id: umem,
            ..Wq::default()
        };
        let context = RmpContext { state: RmpState::RDY, basic_cyclic_rcv_wqe: true, wq };
        let rmpn = call(&pe.context, &CreateRmp { context, ..CreateRmp::default() }).unwrap().rmpn;
        let mut context = DctContext {
            user_index: 0x99,
            cqn: pe.recv_cqn,
            atomic_mode: AtomicMode::UP_TO_8B,
            rre: true,
            rwe: true,
            rae: true,
            min_rnr_nak: 1,
            srqn_xrqn: rmpn,
            pd: pe.pd,
            dc_access_key: KEY,
            mtu: Mtu::B1024,
            port: 1,
            hop_limit: 64,
            ..DctContext::default()
        };
        change(&mut context);
        let dctn = call(&pe.context, &CreateDct { context, ..CreateDct::default() }).unwrap().dctn;
        Target { pe, rmpn, queue, posted: 0, context, dctn }
    }

    pub(crate) fn address(&self) -> AvSeg {
        let av = AvSeg {
            grh_gid_fl: Be32::new(AvSeg::GRH),
            rmac: self.pe.mac,
            rgid: self.pe.gid,
            ..AvSeg::default()
        };
        av.to_dct(self.dctn, KEY)
    }

    fn post_receive(&mut self, addr: u64, len: u32) {
        let slot = u64::from(self.posted) % (1 << LOG_RECEIVES);
        let end = DataSeg::new(0, DataSeg::LIST_END_LKEY, 0);
        let entry = [DataSeg::new(addr, self.pe.key, len), end].map(DataSeg::to_segment);
        self.queue.write(slot * 64, Segment::bytes_of(&entry)).unwrap();
        self.posted = self.posted.wrapping_add(1);
        self.queue.store_u32(RECORD, record_word(self.posted));
    }

    fn received(&mut self) -> Cqe {
        let cqe = self.pe.recv_cq.wait();
        assert_eq!((cqe.qpn(), cqe.srqn_uidx.get()), (self.dctn, 0x99));
        cqe
    }

    fn query(&self) -> DctContext {
        call(&self.pe.context, &QueryDct { dctn: self.dctn, ..QueryDct::default() }).unwrap().context
    }

    fn destroy(&self) {
        call(&self.pe.context, &DestroyDct { dctn: self.dctn, ..DestroyDct::default() }).unwrap();
    }
}

fn setup() -> Setup {
    // Tolerates a busy machine: 4.096 us * 2^17, eight times.
    Setup { service: ServiceType::DCI, ack_timeout: 17, ..Setup::default() }
}

/// Returns the setup of a DCI that gives up early: after 67 ms, eight times.
fn impatient() -> Setup {
    Setup { ack_timeout: 14, ..setup() }
}

pub(crate) fn initiator(nic: &Nic, setup: Setup) -> Pe {
    let pe = Pe::new(nic, setup);
    // A DCI ignores the peer in INIT2RTR.
    pe.connect_to_itself();
    pe
}

fn write_to(pe: &mut Pe, to: &AvSeg, wqe: &Wqe, flags: Flags) -> u16 {
    let entry = wqe.emit_to(to, pe.producer, pe.qpn, flags);
    pe.write_segments(entry.segments())
}

fn post_to(pe: &mut Pe, to: &AvSeg, wqe: &Wqe) -> Cqe {
    let index = write_to(pe, to, wqe, Flags::SIGNALED);
    pe.ring();
    let cqe = pe.cq.wait();
    assert_eq!((cqe.wqe_counter(), cqe.qpn()), (index, pe.qpn));
    cqe
}

pub(crate) fn run_to(pe: &mut Pe, to: &AvSeg, wqe: &Wqe) {
    let cqe = post_to(pe, to, wqe);
    assert!(cqe.as_error().is_none(), "{wqe:?}: {cqe}");
}

fn fail_to(pe: &mut Pe, to: &AvSeg, wqe: &Wqe) -> Syndrome {
    let cqe = post_to(pe, to, wqe);
    let syndrome = cqe.as_error().unwrap_or_else(|| panic!("{wqe:?} succeeded")).syndrome;
    assert_eq!(pe.query().state, QpState::ERR);
    syndrome
}

fn put(pe: &Pe, to: &Target, at: u64, len: u32) -> Wqe {
    Wqe::Write { raddr: at, rkey: to.pe.key, laddr: at, lkey: pe.key, len }
}

fn add(pe: &Pe, to: &Target, raddr: u64) -> Wqe {
    Wqe::FetchAdd { raddr, rkey: to.pe.key, laddr: 1 << 19, lkey: pe.key, add: 1 }
}

/// Runs a test body with one adapter, then with two.
fn both(body: impl Fn(&Nic, &Nic)) {
    let nic = loopback_nic();
    body(&nic, &nic);
    assert_eq!(nic.violations(), []);
    let (x, y) = (wire_nic(Config::default()), wire_nic(Config::default()));
    body(&x, &y);
    assert_eq!((x.violations(), y.violations()), (vec![], vec![]));
    assert!(x.stats().packets_sent > 0, "the second run must use packets");
}

#[test]
fn writes_and_reads_reach_the_target() {
    both(|x, y| {
        let (mut a, b) = (initiator(x, setup()), Target::new(y));
        let to = b.address();
        for (i, len) in [1u32, 7, 64, 1023, 1024, 1025, 5000, 100_000].into_iter().enumerate() {
            let data = pattern(len as usize, i as u64);
            a.fill(3, &data);
            let (lkey, rkey) = (a.key, b.pe.key);
            run_to(&mut a, &to, &Wqe::Write { raddr: 9, rkey, laddr: 3, lkey, len });
            assert!(b.pe.bytes(9, len as usize) == data, "{len} bytes");
            run_to(&mut a, &to, &Wqe::Read { raddr: 9, rkey, laddr: 300_000, lkey, len });
            assert!(a.bytes(300_000, len as usize) == data, "{len} bytes");
        }
        let inline = Inline::new(b"twenty-eight bytes of inline").unwrap();
        run_to(&mut a, &to, &Wqe::WriteInline { raddr: 5, rkey: b.pe.key, data: inline });
        assert_eq!(b.pe.bytes(5, 28), inline.bytes());
        let empty = put(&a, &b, 0, 0);
        run_to(&mut a, &to, &empty);
        run_to(&mut a, &to, &Wqe::Nop);
        run_to(&mut a, &to, &Wqe::Dump { laddr: 0, lkey: b.pe.key, len: 0 });
    });
}

#[test]
fn lost_packets_alone_are_sent_again() {
    let config = Config { retransmit: Duration::from_secs(2), ..Config::default() };
    let lossy = |seed| Config { faults: Faults { seed, drop: 0.02, ..Faults::default() }, ..config.clone() };
    let (x, y) = (wire_nic(lossy(1)), wire_nic(lossy(2)));
    let (mut a, b) = (initiator(&x, Setup { ack_timeout: 20, ..setup() }), Target::new(&y));
    // A lost connect packet waits for the timer, because nothing is known about the target yet.
    let to = b.address();
    let first = add(&a, &b, 8);
    run_to(&mut a, &to, &first);
    let (lkey, rkey, len) = (a.key, b.pe.key, 500_000);
    let data = pattern(len as usize, 1);
    a.fill(0, &data);
    for _ in 0..6 {
        write_to(&mut a, &to, &Wqe::Write { raddr: 16, rkey, laddr: 0, lkey, len }, Flags::NONE);
        let read = Wqe::Read { raddr: 16, rkey, laddr: len.into(), lkey, len };
        write_to(&mut a, &to, &read, Flags::NONE);
        let last = add(&a, &b, 8);
        a.fill(u64::from(len) + 9, &[0; 4096]);
        run_to(&mut a, &to, &last);
        assert!(b.pe.bytes(16, len as usize) == data && a.bytes(len.into(), 24_000) == data[..24_000]);
    }
    assert_eq!(b.pe.heap.load_u64(8), 7);
    let (x, y) = (x.stats(), y.stats());
    let faults = x.faults + y.faults;
    assert!(faults > 80 && x.retransmitted > 0 && x.retransmitted < 2 * faults, "{x:?} {y:?}");
}

#[test]
fn atomics_of_all_kinds() {
    both(|x, y| {
        let (mut a, b) = (initiator(x, setup()), Target::new(y));
        let (to, raddr, rkey, laddr, lkey) = (b.address(), 8, b.pe.key, 64, a.key);
        let old = |a: &Pe| a.heap.load_u64(64);
        b.pe.heap.store_u64(8, 5);
        run_to(&mut a, &to, &Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: 2 });
        assert_eq!((old(&a), b.pe.heap.load_u64(8)), (5, 7));
        run_to(&mut a, &to, &Wqe::CompareSwap { raddr, rkey, laddr, lkey, compare: 7, swap: 9 });
        assert_eq!((old(&a), b.pe.heap.load_u64(8)), (7, 9));
        run_to(&mut a, &to, &Wqe::MaskedFetchAdd64 { raddr, rkey, laddr, lkey, add: 1, boundary: u64::MAX });
        assert_eq!((old(&a), b.pe.heap.load_u64(8)), (9, 8));
        let (compare, swap, compare_mask, swap_mask) = (0xff08, 0x1234, 0xff, 0xff00);
        run_to(
            &mut a,
            &to,
            &Wqe::MaskedCompareSwap64 { raddr, rkey, laddr, lkey, compare, swap, compare_mask, swap_mask },
        );
        assert_eq!((old(&a), b.pe.heap.load_u64(8)), (8, 0x1208));
        run_to(&mut a, &to, &Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add: 1, boundary: 0 });
        assert_eq!(b.pe.heap.load_u64(8), 0x1209);
        let (compare, swap, compare_mask, swap_mask) = (0x1209, 3, u32::MAX, u32::MAX);
        run_to(
            &mut a,
            &to,
            &Wqe::MaskedCompareSwap32 { raddr, rkey, laddr, lkey, compare, swap, compare_mask, swap_mask },
        );
        assert_eq!(b.pe.heap.load_u64(8), 3);
    });
}

#[test]
fn messages_take_receives_of_the_shared_queue() {
    both(|x, y| {
        let (mut a, mut b) = (initiator(x, setup()), Target::new(y));
        let (to, lkey, data) = (b.address(), a.key, pattern(3000, 4));
        a.fill(0, &data);
        b.post_receive(20_000, 4000);
        run_to(&mut a, &to, &Wqe::Send { laddr: 0, lkey, len: 3000 });
        let cqe = b.received();
        assert_eq!((cqe.op_own().opcode(), cqe.byte_cnt()), (CqeOpcode::RESP_SEND, 3000));
        assert!(b.pe.bytes(20_000, 3000) == data);
        b.post_receive(0, 0);
        run_to(&mut a, &to, &Wqe::SendImm { laddr: 0, lkey, len: 0, imm: 0xcafe_0001 });
        assert_eq!((b.received().imm(), b.query().state), (0xcafe_0001, DctState::ACTIVE));
        b.post_receive(0, 0);
        let (rkey, imm) = (b.pe.key, 7);
        run_to(&mut a, &to, &Wqe::WriteImm { raddr: 100, rkey, laddr: 0, lkey, len: 2000, imm });
        let cqe = b.received();
        assert_eq!((cqe.op_own().opcode(), cqe.imm(), cqe.byte_cnt()), (CqeOpcode::RESP_WR_IMM, 7, 2000));
        assert!(b.pe.bytes(100, 2000) == data[..2000]);

        // Without a receive, the DCI retries.
        write_to(&mut a, &to, &Wqe::Send { laddr: 0, lkey, len: 64 }, Flags::SIGNALED);
        a.ring();
        std::thread::sleep(Duration::from_millis(2));
        assert!(a.cq.poll().is_none());
        b.post_receive(50_000, 64);
        assert!(a.cq.wait().as_error().is_none());
        assert_eq!(b.received().byte_cnt(), 64);

        // A receive that is too short closes the connection, but not the target.
        b.post_receive(0, 63);
        let long = Wqe::Send { laddr: 0, lkey, len: 64 };
        assert_eq!(fail_to(&mut a, &to, &long), Syndrome::REMOTE_INVAL_REQ_ERR);
        assert_eq!(b.received().as_error().map(|error| error.syndrome), Some(Syndrome::LOCAL_LENGTH_ERR));
        let mut other = initiator(x, setup());
        b.post_receive(0, 64);
        let lkey = other.key;
        run_to(&mut other, &to, &Wqe::Send { laddr: 0, lkey, len: 64 });
        assert_eq!(b.received().byte_cnt(), 64);
    });
}

#[test]
fn one_target_serves_many_initiators_concurrently() {
    let (x, y) = (wire_nic(Config::default()), wire_nic(Config::default()));
    let target = Target::new(&y);
    let mut all: Vec<Pe> = [&x, &y, &x, &y, &x].map(|nic| initiator(nic, setup())).into();
    for _ in 0..10 {
        for pe in &mut all {
            for _ in 0..8 {
                let wqe = add(pe, &target, 8);
                write_to(pe, &target.address(), &wqe, Flags::NONE);
            }
            write_to(pe, &target.address(), &Wqe::Nop, Flags::SIGNALED);
            pe.ring();
        }
        for pe in &mut all {
            assert!(pe.cq.wait().as_error().is_none());
        }
    }
    assert_eq!(target.pe.heap.load_u64(8), 5 * 10 * 8);
}

/// Posts a chain of WQEs with one doorbell. Each WQE sends the data that the previous one has fetched, and goes to
/// another target.
fn chain(a: &mut Pe, targets: &[Target]) {
    let (lkey, first) = (a.key, pattern(3000, 9));
    a.fill(0, &first);
    let mut at = 0;
    let mut expected = Vec::new();
    for target in targets {
        let (rkey, len) = (target.pe.key, 3000);
        expected.push(write_to(
            a,
            &target.address(),
            &Wqe::Write { raddr: 8, rkey, laddr: at, lkey, len },
            Flags::SIGNALED,
        ));
        at += 4096;
        let read = Wqe::Read { raddr: 8, rkey, laddr: at, lkey, len };
        expected.push(write_to(a, &target.address(), &read, Flags::SIGNALED.or(Flags::FENCE)));
    }
    a.ring();
    for index in expected {
        let cqe = a.cq.wait();
        assert!(cqe.as_error().is_none() && cqe.wqe_counter() == index, "{cqe}");
    }
    assert!(a.bytes(at, 3000) == first);
}

#[test]
fn one_initiator_keeps_the_order_over_targets() {
    let (x, y, z) = (wire_nic(Config::default()), wire_nic(Config::default()), wire_nic(Config::default()));
    let targets = [&y, &x, &z, &y, &x, &y].map(Target::new);
    let mut a = initiator(&x, setup());
    for _ in 0..20 {
        chain(&mut a, &targets);
    }
    assert_eq!([&x, &y, &z].map(Nic::violations), [const { vec![] }; 3]);
}

/// An observer that counts connect and disconnect packets.
#[derive(Default)]
struct Handshakes(Mutex<[u32; 2]>);

impl Observer for Handshakes {
    fn observe(&self, _: Instant, observation: Observation) {
        let Observation::PacketSent { opcode, is_retransmission: false, .. } = observation else { return };
        for (count, name) in self.0.lock().unwrap().iter_mut().zip(["DC_CONNECT", "DC_DISCONNECT"]) {
            *count += u32::from(opcode == name);
        }
    }
}

#[test]
fn a_connection_lasts_while_it_is_used() {
    let (x, y) = (wire_nic(Config::default()), wire_nic(Config::default()));
    let seen = Arc::new(Handshakes::default());
    x.observe(Arc::clone(&seen) as _);
    let (b, c) = (Target::new(&y), Target::new(&y));
    let mut a = initiator(&x, setup());
    let mut after = |to: &Target, times: usize| {
        let wqe = put(&a, to, 0, 8);
        (0..times).for_each(|_| run_to(&mut a, &to.address(), &wqe));
        // An observation is delivered after its completion.
        run_to(&mut a, &to.address(), &wqe);
        let [connects, disconnects] = *seen.0.lock().unwrap();
        assert_eq!(connects, disconnects + 1);
        connects
    };
    let start = Instant::now();
    let (one, two) = (after(&b, 5), after(&c, 5));
    // On a slow machine, a connection may have been silent for too long.
    assert!((one, two) == (1, 2) || start.elapsed() >= Duration::from_secs(1), "{one} {two}");
    // The target may have dropped a silent connection.
    std::thread::sleep(Duration::from_millis(1100));
    assert!(after(&c, 5) > two);
    drop(a);
    until("the last disconnect", || {
        let [connects, disconnects] = *seen.0.lock().unwrap();
        connects == disconnects
    });
}

#[test]
fn packets_are_lost_doubled_reordered_and_broken() {
    let faults = |seed| Faults {
        drop: 0.03,
        duplicate: 0.03,
        reorder: 0.03,
        corrupt: 0.02,
        seed,
        ..Faults::default()
    };
    let nic = |seed| wire_nic(Config { faults: faults(seed), ..Config::default() });
    let (x, y, z) = (nic(1), nic(2), nic(3));
    let targets = [&y, &z, &y, &z].map(Target::new);
    let mut a = initiator(&x, setup());
    for _ in 0..10 {
        chain(&mut a, &targets);
    }
    for _ in 0..25 {
        for target in &targets {
            let wqe = add(&a, target, 16 << 10);
            run_to(&mut a, &target.address(), &wqe);
        }
    }
    assert!(targets.iter().all(|target| target.pe.heap.load_u64(16 << 10) == 25));
    assert!(x.stats().retransmitted > 0);
}

#[test]
fn injected_execution_faults_change_nothing() {
    let time = Duration::from_micros(50);
    let faults = Faults {
        stall: 0.1,
        stall_time: time,
        split: 0.3,
        late: 0.3,
        late_time: time,
        skip_qp: 0.1,
        completion_delay: 0.1,
        completion_delay_time: time,
        posted: 0.1,
        ..Faults::default()
    };
    let nic = || wire_nic(Config { faults: faults.clone(), ..Config::default() });
    let (x, y) = (nic(), nic());
    let targets = [&x, &y, &x, &y].map(Target::new);
    let mut a = initiator(&x, setup());
    for _ in 0..20 {
        chain(&mut a, &targets);
    }
}

#[test]
fn a_wrong_key_ends_the_initiator_only() {
    both(|x, y| {
        let (mut a, b) = (initiator(x, setup()), Target::new(y));
        let wrong = b.address().to_dct(b.dctn, KEY ^ 1);
        let wqe = put(&a, &b, 0, 8);
        write_to(&mut a, &wrong, &wqe, Flags::NONE);
        assert_eq!(
            fail_to_second(&mut a, &wrong, &wqe),
            [Syndrome::REMOTE_ACCESS_ERR, Syndrome::WR_FLUSH_ERR]
        );
        assert_eq!((b.query().dc_access_key_violation_count, b.query().state), (1, DctState::ACTIVE));
        let mut other = initiator(x, setup());
        let wqe = put(&other, &b, 0, 8);
        run_to(&mut other, &b.address(), &wqe);
        // After a reset, the DCI works again.
        call(&a.context, &ToRst { qpn: a.qpn, ..ToRst::default() }).unwrap();
        (a.producer, a.setup.psn) = (0, 0x12_3456);
        a.connect_to_itself();
        let wqe = put(&a, &b, 0, 8);
        run_to(&mut a, &b.address(), &wqe);
    });
}

/// Posts a WQE after one that is already written, and returns the errors of both.
fn fail_to_second(pe: &mut Pe, to: &AvSeg, wqe: &Wqe) -> [Syndrome; 2] {
    write_to(pe, to, wqe, Flags::SIGNALED);
    pe.ring();
    [(); 2].map(|()| pe.cq.wait().as_error().expect("an error").syndrome)
}

#[test]
fn a_target_that_is_gone_does_not_answer() {
    both(|x, y| {
        let (mut a, mut idle, b, c) =
            (initiator(x, impatient()), initiator(x, impatient()), Target::new(y), Target::new(y));
        for pe in [&mut a, &mut idle] {
            let wqe = put(pe, &b, 0, 8);
            run_to(pe, &b.address(), &wqe);
        }
        b.destroy();
        let wqe = put(&a, &b, 0, 8);
        assert_eq!(fail_to(&mut a, &b.address(), &wqe), Syndrome::TRANSPORT_RETRY_EXC_ERR);
        // The connection of another DCI disappears just as silently, and the next one works.
        let wqe = put(&idle, &c, 0, 8);
        run_to(&mut idle, &c.address(), &wqe);
        let drain = DrainDct { dctn: c.dctn, ..DrainDct::default() };
        call(&c.pe.context, &drain).unwrap();
        assert_eq!(c.query().state, DctState::DRAINED);
        let mut late = initiator(x, impatient());
        for pe in [&mut idle, &mut late] {
            let wqe = put(pe, &c, 0, 8);
            assert_eq!(fail_to(pe, &c.address(), &wqe), Syndrome::TRANSPORT_RETRY_EXC_ERR);
        }
    });
}

#[test]
fn an_address_without_a_route_is_an_error_of_the_initiator() {
    let nic = loopback_nic();
    let (mut a, b) = (initiator(&nic, setup()), Target::new(&nic));
    let wqe = put(&a, &b, 0, 8);
    let nowhere = AvSeg { rgid: [0xff; 16], ..b.address() };
    assert_eq!(fail_to(&mut a, &nowhere, &wqe), Syndrome::LOCAL_QP_OP_ERR);
}

#[test]
fn the_target_checks_rights() {
    both(|x, y| {
        let fails = |b: &Target, make: &dyn Fn(&Pe) -> Wqe, expected: Syndrome| {
            let mut a = initiator(x, setup());
            let wqe = make(&a);
            assert_eq!(fail_to(&mut a, &b.address(), &wqe), expected, "{wqe:?}");
        };
        let open = Target::new(y);
        let foreign = Target::new(y);
        let access = Syndrome::REMOTE_ACCESS_ERR;
        fails(&open, &|a| Wqe::Write { raddr: 0, rkey: 1, laddr: 0, lkey: a.key, len: 8 }, access);
        // A key of another protection domain.
        fails(&open, &|a| put(a, &foreign, 0, 8), access);
        let outside = (1 << 20) - 7;
        fails(
            &open,
            &|a| Wqe::Write { raddr: outside, rkey: open.pe.key, laddr: 0, lkey: a.key, len: 8 },
            access,
        );
        let invalid = Syndrome::REMOTE_INVAL_REQ_ERR;
        let closed =
            Target::with(y, |context| (context.rre, context.rwe, context.rae) = (false, false, false));
        fails(&closed, &|a| put(a, &closed, 0, 8), invalid);
        let get = |b: &Target, a: &Pe| Wqe::Read { raddr: 0, rkey: b.pe.key, laddr: 0, lkey: a.key, len: 8 };
        fails(&closed, &|a| get(&closed, a), invalid);
        fails(&closed, &|a| add(a, &closed, 8), invalid);
        let plain = Target::with(y, |context| context.atomic_mode = AtomicMode::IB_SPEC);
        let masked = |a: &Pe| {
            let (rkey, lkey) = (plain.pe.key, a.key);
            Wqe::MaskedFetchAdd32 { raddr: 8, rkey, laddr: 0, lkey, add: 1, boundary: 0 }
        };
        fails(&plain, &masked, invalid);
        // A path MTU smaller than that of the DCI.
        let small = Target::with(y, |context| context.mtu = Mtu::B256);
        fails(&small, &|a| put(a, &small, 0, 8), invalid);
        for target in [&open, &plain] {
            let mut a = initiator(x, setup());
            let wqe = add(&a, target, 8);
            run_to(&mut a, &target.address(), &wqe);
        }
    });
}

#[test]
fn commands_of_targets() {
    let nic = loopback_nic();
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&events);
    nic.on_event(move |event| sink.lock().unwrap().push(event));
    let (a, b) = (Target::new(&nic), Target::new(&nic));
    assert_eq!(a.query(), a.context);
    let create = |change: &dyn Fn(&mut DctContext)| {
        let mut context = a.context;
        change(&mut context);
        call(&a.pe.context, &CreateDct { context, ..CreateDct::default() }).map(|out| out.dctn)
    };
    let status = |change: &dyn Fn(&mut DctContext)| create(change).unwrap_err().status;
    assert_eq!(status(&|context| context.pd = b.pe.pd), CmdStatus::BAD_RES);
    assert_eq!(status(&|context| context.cqn = b.pe.recv_cqn), CmdStatus::BAD_RES);
    assert_eq!(status(&|context| context.srqn_xrqn = 0), CmdStatus::BAD_RES);
    assert_eq!(status(&|context| context.counter_set_id = 9), CmdStatus::BAD_RES);
    assert_eq!(status(&|context| context.mtu = Mtu(6)), CmdStatus::BAD_PARAM);
    assert_eq!(status(&|context| context.pkey_index = 500), CmdStatus::BAD_PARAM);
    assert_eq!(status(&|context| context.dp_ordering_1 = true), CmdStatus::BAD_PARAM);

    let destroy = |dctn| DestroyDct { dctn, ..DestroyDct::default() };
    assert_eq!(call(&b.pe.context, &destroy(a.dctn)).unwrap_err().status, CmdStatus::BAD_RES);
    let destroy_rmp = DestroyRmp { rmpn: a.rmpn, ..DestroyRmp::default() };
    assert_eq!(call(&a.pe.context, &destroy_rmp).unwrap_err().status, CmdStatus::RES_BUSY);
    // A connection is not a QP as far as commands are concerned.
    let mut i = initiator(&nic, setup());
    let wqe = put(&i, &a, 0, 8);
    run_to(&mut i, &a.address(), &wqe);
    for qpn in i.qpn + 1..i.qpn + 4 {
        let query = QueryQp { qpn, ..QueryQp::default() };
        assert_eq!(call(&a.pe.context, &query).unwrap_err().status, CmdStatus::BAD_RES);
    }
    call(&a.pe.context, &DrainDct { dctn: a.dctn, ..DrainDct::default() }).unwrap();
    let drained = Event::DctDrained { dctn: a.dctn };
    until("the event", || events.lock().unwrap().contains(&drained));
    call(&a.pe.context, &destroy(a.dctn)).unwrap();
    assert_eq!(call(&a.pe.context, &destroy(a.dctn)).unwrap_err().status, CmdStatus::BAD_RES);
    call(&a.pe.context, &destroy_rmp).unwrap();
    let busy = DestroyCq { cqn: a.pe.recv_cqn, ..DestroyCq::default() };
    // The RC QP of the same user remains.
    assert_eq!(call(&a.pe.context, &busy).map(|_| ()), Ok(()));
    assert_eq!(events.lock().unwrap().as_slice(), [drained], "connections have no events of their own");
}

#[test]
fn a_closed_context_takes_its_connections_along() {
    both(|x, y| {
        let (mut a, b) = (initiator(x, impatient()), Target::new(y));
        let wqe = put(&a, &b, 0, 8);
        run_to(&mut a, &b.address(), &wqe);
        let to = b.address();
        drop(b);
        let start = Instant::now();
        assert_eq!(fail_to(&mut a, &to, &wqe), Syndrome::TRANSPORT_RETRY_EXC_ERR);
        assert!(start.elapsed() < TIMEOUT);
    });
}
