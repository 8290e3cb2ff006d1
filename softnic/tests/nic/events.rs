//! Tests of events (armed CQs, overrun CQs, failed QPs) and of UAR pages in the driver's memory.

use crate::script::{Pe, Setup, loopback_nic, pair, until, wire_nic};
use rushmem_mlx5::doorbell::{CqArm, Doorbell, record_word, uar};
use rushmem_mlx5::prm::cq::QueryCq;
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{Flags, Syndrome, Wqe};
use rushmem_softnic::{Config, Error, Event, HostBuffer, Memory, Nic, Rule};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Heard(Arc<Mutex<Vec<Event>>>);

impl Heard {
    fn by(nic: &Nic) -> Heard {
        let heard = Heard(Arc::default());
        let list = Arc::clone(&heard.0);
        nic.on_event(move |event| list.lock().unwrap().push(event));
        heard
    }

    fn list(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until exactly these events have arrived.
    fn wait(&self, expected: &[Event]) {
        until("events", || self.list().len() >= expected.len());
        self.none_but(expected);
    }

    fn none_but(&self, expected: &[Event]) {
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(self.list(), expected);
    }
}

fn arm_recv(pe: &Pe, sequence: u8, solicited_only: bool, consumer: u32) {
    let request = pe.recv_cq.request(sequence, solicited_only, consumer);
    pe.uar.memory().store_u64(uar::CQ_ARM, CqArm::new(request, pe.recv_cqn).0.raw());
}

fn arm_send(pe: &Pe, sequence: u8, consumer: u32) {
    let request = pe.cq.request(sequence, false, consumer);
    pe.uar.memory().store_u64(uar::CQ_ARM, CqArm::new(request, pe.cqn).0.raw());
}

/// Waits until the adapter has taken the request from the arm register.
fn taken(pe: &Pe) {
    until("the arm request to be taken", || pe.uar.memory().load_u64(uar::CQ_ARM) == 0);
}

fn receiver() -> Setup {
    Setup { log_rq: Some(4), ..Setup::default() }
}

#[test]
fn armed_cq_raises_one_event() {
    let nic = loopback_nic();
    let heard = Heard::by(&nic);
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    let event = Event::Completion { cqn: a.cqn };
    a.run(&Wqe::Nop);
    arm_send(&a, 0, 1);
    taken(&a);
    heard.none_but(&[]);
    a.run(&Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(1) });
    heard.wait(&[event]);
    a.run(&Wqe::Nop);
    heard.none_but(&[event]);
    // Three CQEs exist and the consumer has seen one, so the event is immediate.
    arm_send(&a, 1, 1);
    heard.wait(&[event; 2]);
    let context =
        crate::script::call(&a.context, &QueryCq { cqn: a.cqn, ..QueryCq::default() }).unwrap().context;
    // A CQE raises only one event, whatever the consumer counter.
    arm_send(&a, 2, 1);
    taken(&a);
    heard.none_but(&[event; 2]);
    a.run(&Wqe::Nop);
    heard.wait(&[event; 3]);
    assert_eq!(
        (context.last_notified_index, context.last_solicit_index, context.producer_counter),
        (3, 0, 3)
    );
    assert_eq!(nic.violations(), []);
}

#[test]
fn solicited_arm_waits_for_a_solicited_cqe_or_an_error() {
    for (x, y) in [(None, loopback_nic()), (Some(wire_nic(Config::default())), wire_nic(Config::default()))] {
        let heard = Heard::by(&y);
        let (mut a, mut b) = pair(x.as_ref().unwrap_or(&y), &y, receiver());
        let event = Event::Completion { cqn: b.recv_cqn };
        for _ in 0..4 {
            b.post_receive(0, 64);
        }
        let send = Wqe::Send { laddr: 0, lkey: a.key, len: 8 };
        arm_recv(&b, 0, true, 0);
        taken(&b);
        a.run(&send);
        assert!(!b.recv_cq.wait().op_own().is_solicited());
        heard.none_but(&[]);
        a.write(&send, Flags::SIGNALED.or(Flags::SOLICITED));
        a.ring();
        assert!(a.cq.wait().as_error().is_none());
        assert!(b.recv_cq.wait().op_own().is_solicited());
        heard.wait(&[event]);
        // The solicited CQE precedes the consumer counter, and the plain one does not count.
        arm_recv(&b, 1, true, 2);
        a.run(&send);
        heard.none_but(&[event]);
        // An error counts as solicited.
        b.fail_now();
        heard.wait(&[event; 2]);
    }
}

#[test]
fn overwritten_arm_requests_are_not_lost() {
    let nic = loopback_nic();
    let heard = Heard::by(&nic);
    let first = Pe::new(&nic, Setup::default());
    let mut pes: Vec<Pe> = (0..3).map(|_| first.sibling(&nic)).collect();
    pes.push(first);
    for sequence in 0..20 {
        let before = heard.list().len();
        // The register holds only the last request.
        for pe in &pes {
            arm_send(pe, sequence, u32::from(sequence));
        }
        for pe in &mut pes {
            if sequence == 0 {
                pe.connect_to_itself();
            }
            pe.run(&Wqe::Nop);
        }
        until("an event of each CQ", || heard.list().len() == before + pes.len());
    }
    assert_eq!(nic.violations(), []);
}

#[test]
fn arming_through_a_foreign_page_is_a_violation() {
    let nic = loopback_nic();
    let heard = Heard::by(&nic);
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    let request = a.cq.request(0, false, 0);
    b.uar.memory().store_u64(uar::CQ_ARM, CqArm::new(request, a.cqn).0.raw());
    until("violation", || nic.violations().iter().any(|violation| violation.rule == Rule::CqArm));
    a.run(&Wqe::Nop);
    // CQs of the page may get a spurious event, but no other CQ may.
    assert!(!heard.list().contains(&Event::Completion { cqn: a.cqn }));
}

#[test]
fn full_cq_and_refused_request_raise_events() {
    let nic = loopback_nic();
    let heard = Heard::by(&nic);
    let setup = Setup { log_cq: 1, ignore_overrun: false, ..Setup::default() };
    let (mut a, _b) = pair(&nic, &nic, setup);
    a.records.store_u64(64, 0);
    for _ in 0..3 {
        a.write(&Wqe::Nop, Flags::SIGNALED);
    }
    a.ring();
    let (cqn, qpn) = (a.cqn, a.qpn);
    heard.wait(&[Event::QpError { qpn, syndrome: Syndrome::LOCAL_QP_OP_ERR }, Event::CqError { cqn }]);

    let (mut c, d) = pair(&nic, &nic, Setup::default());
    assert_eq!(
        c.fail(&Wqe::Write { raddr: 0, rkey: 0, laddr: 0, lkey: c.key, len: 8 }),
        Syndrome::REMOTE_ACCESS_ERR
    );
    until("third event", || heard.list().len() == 3);
    // The requester's error is reported by its CQE.
    assert_eq!(heard.list()[2], Event::QpError { qpn: d.qpn, syndrome: Syndrome::REMOTE_ACCESS_ERR });
}

#[test]
fn refused_packet_raises_an_event_at_the_responder() {
    let (x, y) = (wire_nic(Config::default()), wire_nic(Config::default()));
    let (heard, silent) = (Heard::by(&y), Heard::by(&x));
    let no_reads = Setup { access: [false, true, true], ..Setup::default() };
    let (mut a, b) = pair(&x, &y, no_reads);
    let read = Wqe::Read { raddr: 0, rkey: b.key, laddr: 0, lkey: a.key, len: 8 };
    assert_eq!(a.fail(&read), Syndrome::REMOTE_INVAL_REQ_ERR);
    heard.wait(&[Event::QpError { qpn: b.qpn, syndrome: Syndrome::REMOTE_INVAL_REQ_ERR }]);
    silent.none_but(&[]);
}

#[test]
fn sink_may_call_the_adapter() {
    let nic = Arc::new(loopback_nic());
    let (mut a, _b) = pair(&nic, &nic, Setup::default());
    let told = Arc::new(Mutex::new(None));
    let (adapter, list) = (Arc::downgrade(&nic), Arc::clone(&told));
    nic.on_event(move |event| {
        let produced = adapter.upgrade().map(|nic| nic.stats().cqes);
        *list.lock().unwrap() = Some((event, produced));
    });
    arm_send(&a, 0, 0);
    a.run(&Wqe::Nop);
    until("event", || told.lock().unwrap().is_some());
    assert_eq!(*told.lock().unwrap(), Some((Event::Completion { cqn: a.cqn }, Some(1))));
}

#[test]
fn doorbells_and_arm_requests_work_in_a_page_of_the_driver() {
    let nic = loopback_nic();
    let heard = Heard::by(&nic);
    let pages = Arc::new(HostBuffer::new(3 * 4096));
    let context = nic.open();
    for (offset, says) in [(64, "aligned"), (3 * 4096, "leave"), (u64::MAX - 4095, "leave")] {
        match context.alloc_uar_in(Arc::clone(&pages) as _, offset) {
            Err(error @ Error::UarMemory { .. }) => assert!(error.to_string().contains(says), "{error}"),
            other => panic!("{other:?}"),
        }
    }
    let page_id = context.alloc_uar_in(Arc::clone(&pages) as _, 4096).unwrap();
    let mut a = Pe::of(&nic, context, Setup { page: Some(page_id), ..Setup::default() });
    assert!(matches!(a.context.free_uar(page_id), Err(Error::InUse { users: 3, .. })));
    a.connect_to_itself();

    let request = a.cq.request(0, false, 0);
    pages.store_u64(4096 + uar::CQ_ARM, CqArm::new(request, a.cqn).0.raw());
    // A whole WQE, as written by BlueFlame. The rest of the register could be mistaken for a doorbell.
    for (i, half) in [0x800u64, 0x900, 0xa00, 0xb00, 0x800, 0x900].into_iter().enumerate() {
        let garbage = Doorbell::producer(a.qpn, a.producer.wrapping_add(20)).raw().to_le_bytes();
        let entry =
            Wqe::WriteInline { raddr: 8 * i as u64, rkey: a.key, data: Inline::from_u64(i as u64 + 1) };
        let emitted = entry.emit(a.producer, a.qpn, Flags::SIGNALED);
        let index = a.write_segments(emitted.segments());
        a.records.store_u32(4, record_word(a.producer));
        let mut register = garbage.repeat(32);
        register[8..64].copy_from_slice(&emitted.blocks[0].to_bytes()[8..]);
        pages.write(4096 + half + 8, &register[8..]).unwrap();
        let first = emitted.blocks[0].to_bytes();
        let doorbell = u64::from_le_bytes(first[..8].try_into().unwrap());
        pages.store_u64(4096 + half as usize, doorbell);
        assert_eq!(a.cq.wait().tail.wqe_counter.get(), index);
        assert_eq!(a.heap.load_u64(8 * i), i as u64 + 1);
    }
    heard.wait(&[Event::Completion { cqn: a.cqn }]);
    assert!(a.cq.poll().is_none());
    assert_eq!((nic.violations(), nic.stats().doorbells), (vec![], 6));
}

#[test]
fn slots_of_128_bytes_hold_the_entry_in_their_second_half() {
    let nic = loopback_nic();
    let (mut a, b) = pair(&nic, &nic, Setup { cqe_sz: 1, log_cq: 2, ..Setup::default() });
    for i in 0..20 {
        a.run(&Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(i) });
    }
    let mut first = [0; 64];
    a.cq.memory.read(0, &mut first).unwrap();
    assert_eq!(first, [0xff; 64], "the first half is not touched");
    let context =
        crate::script::call(&a.context, &QueryCq { cqn: a.cqn, ..QueryCq::default() }).unwrap().context;
    assert_eq!(context.cqe_sz, 1);
}
