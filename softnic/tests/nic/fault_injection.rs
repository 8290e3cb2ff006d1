//! Tests of injected execution faults: every legal outcome of a reliable connection occurs, and no other.

use crate::script::{Pe, Setup, call, pair, wire_nic};
use rushmem_mlx5::prm::mkey::DestroyMkey;
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{Flags, Syndrome, Wqe};
use rushmem_softnic::{Config, Faults, Nic};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: u64 = 300;
const NEVER: Duration = Duration::from_secs(3600);

/// Returns the rounds of a test whose outcome must never occur.
fn many() -> impl Iterator<Item = u64> {
    1..=ROUNDS
}

/// Returns the rounds of a test whose outcome must occur: as many as fit into a minute, since an observer may miss most
/// of them on a busy machine.
fn many_rounds() -> impl Iterator<Item = u64> {
    let begin = Instant::now();
    (1..).take_while(move |_| begin.elapsed() < Duration::from_secs(60))
}

fn nic(faults: Faults) -> Nic {
    Nic::start(Config { faults, ..Config::default() }).expect("an adapter without fabric needs nothing")
}

/// Where the two QPs of a connection are.
#[derive(Clone, Copy, Debug)]
enum Placement {
    /// Both QPs are on one adapter.
    Within,
    /// The QPs are on two adapters, which exchange packets.
    Wire,
}

const BOTH: [Placement; 2] = [Placement::Within, Placement::Wire];

impl Placement {
    fn nics(self, faults: &Faults) -> Vec<Nic> {
        let config = || Config { faults: faults.clone(), ..Config::default() };
        match self {
            Placement::Within => vec![nic(faults.clone())],
            Placement::Wire => vec![wire_nic(config()), wire_nic(config())],
        }
    }
}

/// Connects a QP of the first adapter with one of the last, which may be the same.
fn ends(nics: &[Nic], setup: Setup) -> (Pe, Pe) {
    pair(&nics[0], nics.last().expect("an adapter"), setup)
}

fn set(raddr: u64, b: &Pe, value: u64) -> Wqe {
    Wqe::WriteInline { raddr, rkey: b.key, data: Inline::from_u64(value) }
}

fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// Counts in how many of 40 rounds a write of one QP is seen before an earlier write of another.
fn overtaken(way: Placement, faults: Faults) -> usize {
    let nics = way.nics(&faults);
    let (mut a, b) = ends(&nics, Setup::default());
    let (mut c, d) = ends(&nics, Setup::default());
    let rounds = (1..=40).filter(|&round| {
        a.post(&set(0, &b, round));
        c.post(&set(0, &d, round));
        while d.heap.load_u64(0) != round {
            std::thread::yield_now();
        }
        let found = b.heap.load_u64(0) != round;
        assert!(a.cq.wait().as_error().is_none() && c.cq.wait().as_error().is_none());
        found
    });
    rounds.count()
}

#[test]
fn stalled_queue_is_overtaken() {
    for way in BOTH {
        // QPs are not ordered, so this also occurs without faults, but rarely.
        let by_itself = overtaken(way, Faults::default());
        let faults = Faults { stall: 1.0, stall_time: Duration::from_millis(10), ..Faults::default() };
        let found = overtaken(way, faults);
        assert!(found > 4 * by_itself && found > 4, "{way:?}: {found} {by_itself}");
    }
}

#[test]
fn split_message_is_unordered_but_complete_before_the_next() {
    BOTH.into_iter().for_each(split_message);
}

fn split_message(way: Placement) {
    let faults = Faults { split: 1.0, stall: 0.5, stall_time: micros(20), ..Faults::default() };
    let nics = way.nics(&faults);
    let (mut a, b) = ends(&nics, Setup::default());
    let (words, flag, rkey, lkey) = (16usize, 1000u64, b.key, a.key);
    let (mut last_first, mut first_first) = (0, 0);
    let both_ways = many_rounds().any(|round| {
        let value = round << 32 | round;
        for i in 0..words {
            a.heap.store_u64(8 * i, value);
        }
        a.write(&Wqe::Write { raddr: 0, rkey, laddr: 0, lkey, len: 8 * words as u32 }, Flags::NONE);
        a.write(&set(flag, &b, round), Flags::SIGNALED);
        a.ring();
        while b.heap.load_u64(flag as usize) != round {
            let (first, last) = (b.heap.load_u64(0), b.heap.load_u64(8 * (words - 1)));
            for word in [first, last] {
                assert!(word == value || word == value - (1 << 32 | 1), "a torn word: {word:#x}");
            }
            // The first word was read before the last one.
            last_first += u64::from(first != value && last == value);
            first_first += u64::from(first == value && b.heap.load_u64(8 * (words - 1)) != value);
        }
        for i in 0..words {
            assert_eq!(b.heap.load_u64(8 * i), value, "word {i} after the next entry");
        }
        assert!(a.cq.wait().as_error().is_none());
        round >= ROUNDS && last_first > 0 && first_first > 0
    });
    assert!(both_ways, "{way:?}: {last_first} {first_first}");
}

#[test]
fn split_reads_and_writes_move_every_byte() {
    // Over packets, only WRITEs are split.
    for (way, least) in [(Placement::Within, 300), (Placement::Wire, 150)] {
        let nics = way.nics(&Faults { split: 1.0, ..Faults::default() });
        let (mut a, b) = ends(&nics, Setup::default());
        let (rkey, lkey) = (b.key, a.key);
        for len in (1..200).chain([4096, 70_001, 1 << 18]) {
            let (raddr, data) = (300_000 + len % 11, crate::script::pattern(len as usize, len));
            a.fill(3, &data);
            a.run(&Wqe::Write { raddr, rkey, laddr: 3, lkey, len: len as u32 });
            assert!(b.bytes(raddr, len as usize) == data, "{way:?}: WRITE of {len}");
            a.run(&Wqe::Read { raddr, rkey, laddr: 700_001, lkey, len: len as u32 });
            assert!(a.bytes(700_001, len as usize) == data, "{way:?}: READ of {len}");
        }
        let faults: u64 = nics.iter().map(|nic| nic.stats().faults).sum();
        assert!(faults > least, "{way:?}: {faults}");
    }
}

#[test]
fn split_write_with_a_destroyed_key_is_refused() {
    let stall_time = Duration::from_millis(20);
    let nics = Placement::Wire.nics(&Faults { split: 1.0, stall: 1.0, stall_time, ..Faults::default() });
    let (mut a, b) = ends(&nics, Setup { ack_timeout: 22, ..Setup::default() });
    let words = 64usize;
    for i in 0..words {
        a.heap.store_u64(8 * i, 1);
    }
    let len = 8 * words as u32;
    let write = a.write(&Wqe::Write { raddr: 0, rkey: b.key, laddr: 0, lkey: a.key, len }, Flags::SIGNALED);
    a.ring();
    // One piece has been moved. Seven follow at intervals of 10 ms.
    while (0..words).all(|i| b.heap.load_u64(8 * i) == 0) {
        std::thread::yield_now();
    }
    call(&b.context, &DestroyMkey { mkey_index: b.key >> 8, ..DestroyMkey::default() }).unwrap();
    assert_eq!(failed(&mut a), (Syndrome::REMOTE_ACCESS_ERR, write));
    assert!((0..words).any(|i| b.heap.load_u64(8 * i) == 0), "all had been moved before the key went");
}

/// Returns whether, in any round, a READ of a word sees a WRITE that was posted after it with these `flags`.
fn read_too_late(way: Placement, mut rounds: impl Iterator<Item = u64>, flags: Flags) -> bool {
    let nics = way.nics(&Faults { late: 0.7, late_time: micros(20), ..Faults::default() });
    let (mut a, b) = ends(&nics, Setup::default());
    let (rkey, lkey) = (b.key, a.key);
    rounds.any(|round| {
        let read = a.write(&Wqe::Read { raddr: 0, rkey, laddr: 64, lkey, len: 8 }, Flags::SIGNALED);
        let write = a.write(&set(0, &b, round), flags);
        a.ring();
        for index in [read, write] {
            let cqe = a.cq.wait();
            assert!(cqe.as_error().is_none());
            assert_eq!(cqe.tail.wqe_counter.get(), index, "completions are in order");
        }
        let seen = a.heap.load_u64(64);
        assert!(seen == round - 1 || seen == round);
        seen == round
    })
}

#[test]
fn late_read_sees_later_unfenced_writes() {
    for way in BOTH {
        assert!(read_too_late(way, many_rounds(), Flags::SIGNALED), "{way:?}");
        for fence in [Flags::FENCE, Flags::FENCE_AND_SMALL_FENCE] {
            assert!(!read_too_late(way, many(), Flags::SIGNALED.or(fence)), "{way:?} {fence:?}");
        }
    }
}

/// Returns whether, in any round, a WRITE of an atomic's result sends the bytes from before the atomic. It is posted
/// after the atomic, with these `flags`.
fn stale_result(way: Placement, mut rounds: impl Iterator<Item = u64>, flags: Flags) -> bool {
    let nics = way.nics(&Faults { late: 0.7, late_time: micros(20), ..Faults::default() });
    let (mut a, b) = ends(&nics, Setup::default());
    let (rkey, lkey) = (b.key, a.key);
    rounds.any(|round| {
        a.heap.store_u64(64, u64::MAX);
        a.write(&Wqe::FetchAdd { raddr: 0, rkey, laddr: 64, lkey, add: 1 }, Flags::NONE);
        a.write(&Wqe::Write { raddr: 8, rkey, laddr: 64, lkey, len: 8 }, flags);
        a.ring();
        assert!(a.cq.wait().as_error().is_none());
        assert_eq!((b.heap.load_u64(0), a.heap.load_u64(64)), (round, round - 1));
        let sent = b.heap.load_u64(8);
        assert!(sent == round - 1 || sent == u64::MAX);
        sent == u64::MAX
    })
}

#[test]
fn late_atomic_result_needs_a_fence() {
    for way in BOTH {
        assert!(stale_result(way, many_rounds(), Flags::SIGNALED), "{way:?}");
        assert!(!stale_result(way, many(), Flags::SIGNALED.or(Flags::FENCE)), "{way:?}");
    }
}

#[test]
fn reads_and_atomics_are_answered_in_order() {
    BOTH.into_iter().for_each(answered_in_order);
}

fn answered_in_order(way: Placement) {
    let nics = way.nics(&Faults { late: 0.5, late_time: micros(50), split: 0.5, ..Faults::default() });
    let (mut a, b) = ends(&nics, Setup { log_reads: 1, ..Setup::default() });
    let (rkey, lkey) = (b.key, a.key);
    for round in 0..ROUNDS {
        for i in 0..4 {
            a.write(&Wqe::FetchAdd { raddr: 0, rkey, laddr: 64 + 16 * i, lkey, add: 1 }, Flags::NONE);
            let flags = if i == 3 { Flags::SIGNALED } else { Flags::NONE };
            a.write(&Wqe::Read { raddr: 0, rkey, laddr: 72 + 16 * i, lkey, len: 8 }, flags);
        }
        a.ring();
        assert!(a.cq.wait().as_error().is_none());
        let mut last = 4 * round;
        for i in 0..4 {
            let (old, read) = (a.heap.load_u64(64 + 16 * i), a.heap.load_u64(72 + 16 * i));
            assert_eq!(old, 4 * round + i as u64);
            // A READ sees earlier atomics, and may see later ones.
            assert!(read > old && read >= last && read <= 4 * round + 4, "{way:?} {round} {i}: {old} {read}");
            last = read;
        }
    }
}

/// A QP with a READ that has not been answered, a signaled WRITE that was executed, and a WRITE that was not.
struct WaitingRead {
    a: Pe,
    b: Pe,
    /// Indices of the WQEs: the READ and the two WRITEs.
    entries: [u16; 3],
    _nic: Nic,
}

fn waiting_read(faults: Faults) -> WaitingRead {
    let nic = nic(Faults { late: 1.0, ..faults });
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    let (rkey, lkey) = (b.key, a.key);
    let read = a.write(&Wqe::Read { raddr: 0, rkey, laddr: 64, lkey, len: 8 }, Flags::NONE);
    let done = a.write(&set(8, &b, 1), Flags::SIGNALED);
    let fenced = a.write(&set(16, &b, 1), Flags::FENCE);
    a.ring();
    while b.heap.load_u64(8) != 1 {
        std::thread::yield_now();
    }
    assert!(a.cq.poll().is_none(), "the WRITE completes before the READ");
    WaitingRead { a, b, entries: [read, done, fenced], _nic: nic }
}

fn failed(a: &mut Pe) -> (Syndrome, u16) {
    let cqe = a.cq.wait();
    let error = cqe.as_error().expect("an error");
    (error.syndrome, error.tail.wqe_counter.get())
}

#[test]
fn wqes_after_a_late_answer_are_flushed() {
    let WaitingRead { mut a, b, entries, _nic } =
        waiting_read(Faults { late_time: NEVER, ..Faults::default() });
    a.fail_now();
    for index in entries {
        assert_eq!(failed(&mut a), (Syndrome::WR_FLUSH_ERR, index));
    }
    assert_eq!(b.heap.load_u64(16), 0, "a fenced entry went ahead");
    let after = a.write(&Wqe::Nop, Flags::NONE);
    a.ring();
    assert_eq!(failed(&mut a), (Syndrome::WR_FLUSH_ERR, after));
}

#[test]
fn wqes_after_a_failed_late_read_are_flushed() {
    let faults = Faults { late_time: Duration::from_millis(400), seed: 3, ..Faults::default() };
    let WaitingRead { mut a, b, entries: [read, done, fenced], _nic } = waiting_read(faults);
    call(&b.context, &DestroyMkey { mkey_index: b.key >> 8, ..DestroyMkey::default() }).unwrap();
    assert_eq!(failed(&mut a), (Syndrome::REMOTE_ACCESS_ERR, read));
    assert_eq!(failed(&mut a), (Syndrome::WR_FLUSH_ERR, done));
    assert_eq!(failed(&mut a), (Syndrome::WR_FLUSH_ERR, fenced));
}

#[test]
fn refusal_follows_an_earlier_late_answer() {
    let nic = nic(Faults { late: 1.0, late_time: NEVER, ..Faults::default() });
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    b.heap.store_u64(0, 5);
    let read = a.write(&Wqe::Read { raddr: 0, rkey: b.key, laddr: 64, lkey: a.key, len: 8 }, Flags::SIGNALED);
    let bad = a.write(&Wqe::Write { raddr: 0, rkey: 0, laddr: 0, lkey: a.key, len: 8 }, Flags::NONE);
    a.ring();
    let cqe = a.cq.wait();
    assert!(cqe.as_error().is_none() && cqe.tail.wqe_counter.get() == read);
    assert_eq!(a.heap.load_u64(64), 5);
    assert_eq!(failed(&mut a), (Syndrome::REMOTE_ACCESS_ERR, bad));
}

/// Returns whether, in any round, an addition by the adapter or the CPU to the same word is lost.
fn lost(mut rounds: impl Iterator<Item = u64>, loose_atomic: f64) -> bool {
    let nic = nic(Faults { loose_atomic, ..Faults::default() });
    let (mut a, b) = pair(&nic, &nic, Setup::default());
    let (rkey, lkey) = (b.key, a.key);
    // SAFETY: an aligned word of the heap, which lives as long as `b`. All accesses are atomic.
    let word = unsafe { AtomicU64::from_ptr(b.heap.as_ptr().cast()) };
    let mut added = 0;
    rounds.any(|_| {
        let last = (0..8)
            .map(|_| a.write(&Wqe::FetchAdd { raddr: 0, rkey, laddr: 64, lkey, add: 1 }, Flags::SIGNALED));
        let _ = last.count();
        a.ring();
        for _ in 0..8 {
            while a.cq.poll().is_none() {
                word.fetch_add(1, Ordering::Relaxed);
                added += 1;
                std::thread::yield_now();
            }
        }
        added += 8;
        word.load(Ordering::Relaxed) != added
    })
}

#[test]
fn loose_atomics_are_not_atomic_for_processors() {
    assert!(!lost(many(), 0.0));
    assert!(lost(many_rounds(), 1.0));
}

#[test]
fn loose_atomics_exclude_each_other() {
    let nic = nic(Faults { loose_atomic: 1.0, skip_qp: 0.3, ..Faults::default() });
    let mut a = Pe::new(&nic, Setup::default());
    let b = a.sibling(&nic);
    a.connect(&b);
    b.connect(&a);
    let (key, n) = (a.key, 30);
    let of_b = b.key;
    for _ in 0..n {
        a.write(
            &Wqe::MaskedFetchAdd32 { raddr: 0, rkey: of_b, laddr: 64, lkey: key, add: 1, boundary: 0 },
            Flags::SIGNALED,
        );
        a.write(&Wqe::FetchAdd { raddr: 8, rkey: of_b, laddr: 64, lkey: key, add: 1 }, Flags::SIGNALED);
    }
    a.ring();
    for _ in 0..2 * n {
        assert!(a.cq.wait().as_error().is_none());
    }
    assert_eq!((b.heap.load_u32(0), b.heap.load_u64(8)), (n, n.into()));
}

#[test]
fn queue_waiting_for_its_peer_is_resumed() {
    let faults = Faults { completion_delay: 1.0, completion_delay_time: micros(2), ..Faults::default() };
    let nic = nic(faults);
    // The peer is not ready for 0.01 ms each time, and the first completion wakes the QP earlier.
    let (mut a, mut b) = pair(&nic, &nic, Setup { log_rq: Some(4), ..Setup::default() });
    for _ in 0..20 {
        a.write(&Wqe::Nop, Flags::SIGNALED);
        a.write(&Wqe::Send { laddr: 0, lkey: a.key, len: 8 }, Flags::SIGNALED);
        a.ring();
        assert!(a.cq.wait().as_error().is_none());
        std::thread::sleep(micros(300));
        b.post_receive(64, 8);
        assert!(a.cq.wait().as_error().is_none());
        assert_eq!(b.recv_cq.wait().byte_cnt.get(), 8);
    }
}
