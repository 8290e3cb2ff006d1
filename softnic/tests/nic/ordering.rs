//! Tests of the order in which WRITEs reach memory: of one QP on an unordered fabric, of two adapters, and through
//! relaxed keys.

use crate::script::{Pe, Setup, call, pair, pair_of, wire_nic};
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, MkeyContext, key};
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{Flags, Wqe};
use rushmem_softnic::{Config, Faults, Nic};
use std::time::{Duration, Instant};

/// Number of rounds in which an illegal outcome must not occur.
const ROUNDS: u64 = 300;
// Offsets of the data and its flag.
const DATA: u64 = 0;
const FLAG: u64 = 64;

/// Returns the rounds of a test whose outcome must occur: as many as fit into a minute, since an observer may miss most
/// of them on a busy machine.
fn many_rounds() -> impl Iterator<Item = u64> {
    let begin = Instant::now();
    (1..).take_while(move |_| begin.elapsed() < Duration::from_secs(60))
}

fn set(raddr: u64, rkey: u32, value: u64) -> Wqe {
    Wqe::WriteInline { raddr, rkey, data: Inline::from_u64(value) }
}

/// Posts a strong fence: an empty WRITE that waits for all earlier WQEs.
fn strong_fence(a: &mut Pe) {
    a.write(&Wqe::Write { raddr: 0, rkey: 0, laddr: 0, lkey: 0, len: 0 }, Flags::STRONG_ORDER);
}

/// Starts adapters that inject `faults`: one, or two that exchange packets.
fn adapters(wire: bool, faults: &Faults) -> Vec<Nic> {
    let config = || Config { faults: faults.clone(), ..Config::default() };
    if wire { vec![wire_nic(config()), wire_nic(config())] } else { vec![Nic::start(config()).unwrap()] }
}

/// Waits until the flag has the value `round`. Returns whether the data was still missing.
fn flag_first(b: &Pe, round: u64) -> bool {
    while b.heap.load_u64(FLAG as usize) != round {
        std::thread::yield_now();
    }
    b.heap.load_u64(DATA as usize) != round
}

/// How a test orders a flag after its data on one QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Nothing,
    /// Fence mode 2 on the flag, which waits only for READs and atomics.
    Fence,
    StrongFlag,
    StrongFence,
    Atomic,
    /// The QP context forces the order of the InfiniBand specification.
    Forced,
}

fn unordered() -> Faults {
    Faults { unordered: 0.5, late_time: Duration::from_micros(50), ..Faults::default() }
}

/// Returns whether, in any round, the flag is seen before its data.
fn passes(wire: bool, order: Order, mut rounds: impl Iterator<Item = u64>) -> bool {
    let nics = adapters(wire, &unordered());
    let setup = Setup { ibta_order: order == Order::Forced, ..Setup::default() };
    let (mut a, b) = pair(&nics[0], nics.last().unwrap(), setup);
    assert_eq!(a.query().dp_ordering_0, order != Order::Forced);
    let (rkey, lkey) = (b.key, a.key);
    rounds.any(|round| {
        a.write(&set(DATA, rkey, round), Flags::NONE);
        let flag = set(FLAG, rkey, round);
        match order {
            Order::Nothing | Order::Forced => a.write(&flag, Flags::SIGNALED),
            Order::Fence => a.write(&flag, Flags::SIGNALED.or(Flags::FENCE)),
            Order::StrongFlag => a.write(&flag, Flags::SIGNALED.or(Flags::STRONG_ORDER)),
            Order::StrongFence => {
                strong_fence(&mut a);
                a.write(&flag, Flags::SIGNALED)
            }
            Order::Atomic => {
                let add = Wqe::FetchAdd { raddr: FLAG, rkey, laddr: 128, lkey, add: 1 };
                a.write(&add, Flags::SIGNALED)
            }
        };
        a.ring();
        let found = flag_first(&b, round);
        assert!(a.cq.wait().as_error().is_none());
        assert_eq!(b.heap.load_u64(DATA as usize), round, "the completion follows the data");
        found
    })
}

#[test]
fn unordered_writes_pass_each_other() {
    for wire in [false, true] {
        for order in [Order::Nothing, Order::Fence] {
            assert!(passes(wire, order, many_rounds()), "wire {wire}: {order:?}");
        }
    }
}

#[test]
fn unordered_writes_respect_order() {
    for wire in [false, true] {
        for order in [Order::StrongFlag, Order::StrongFence, Order::Atomic, Order::Forced] {
            assert!(!passes(wire, order, 1..=ROUNDS), "wire {wire}: {order:?}");
        }
    }
}

#[test]
fn firmware_may_hide_the_order() {
    for hidden_order in [0.0, 1.0] {
        let nics = adapters(false, &Faults { hidden_order, ..unordered() });
        let (a, _) = pair(&nics[0], &nics[0], Setup::default());
        assert_eq!(a.query().dp_ordering_0, hidden_order == 0.0);
    }
}

#[test]
fn reads_see_earlier_unordered_writes() {
    for wire in [false, true] {
        let nics = adapters(wire, &unordered());
        let (mut a, b) = pair(&nics[0], nics.last().unwrap(), Setup::default());
        let (rkey, lkey) = (b.key, a.key);
        for round in 1..=ROUNDS {
            a.write(&set(DATA, rkey, round), Flags::NONE);
            a.write(&Wqe::Read { raddr: DATA, rkey, laddr: 128, lkey, len: 8 }, Flags::SIGNALED);
            a.ring();
            assert!(a.cq.wait().as_error().is_none());
            assert_eq!(a.heap.load_u64(128), round);
        }
    }
}

fn posted() -> Faults {
    Faults { posted: 0.7, late_time: Duration::from_micros(200), ..Faults::default() }
}

/// Returns whether, in any round, a flag sent over one rail is seen before data sent over another, whose WRITE had
/// completed. With `flush`, a READ follows the data.
fn rails_pass(wire: bool, flush: bool, mut rounds: impl Iterator<Item = u64>) -> bool {
    let (first, second) = (adapters(wire, &posted()), adapters(wire, &posted()));
    let (mut a, b) = pair(&first[0], first.last().unwrap(), Setup::default());
    // Both rails serve the same heap.
    let (mut c, d) = pair_of(
        &second[0],
        second.last().unwrap(),
        Setup::default(),
        Setup { shared_heap: Some(std::sync::Arc::clone(&b.heap)), ..Setup::default() },
    );
    rounds.any(|round| {
        a.write(&set(DATA, b.key, round), if flush { Flags::NONE } else { Flags::SIGNALED });
        if flush {
            let read = Wqe::Read { raddr: DATA, rkey: b.key, laddr: 128, lkey: a.key, len: 8 };
            a.write(&read, Flags::SIGNALED);
        }
        a.ring();
        assert!(a.cq.wait().as_error().is_none());
        c.run(&Wqe::FetchAdd { raddr: FLAG, rkey: d.key, laddr: 128, lkey: c.key, add: 1 });
        flag_first(&b, round)
    })
}

#[test]
fn writes_of_two_rails_pass_after_their_acknowledgement() {
    for wire in [false, true] {
        assert!(rails_pass(wire, false, many_rounds()), "wire {wire}");
        assert!(!rails_pass(wire, true, 1..=ROUNDS), "wire {wire}, with a READ");
    }
}

/// Creates another memory key for the heap of `pe`.
fn another_key(pe: &Pe, relaxed: bool) -> u32 {
    let context = MkeyContext {
        a: true,
        rw: true,
        rr: true,
        lw: true,
        lr: true,
        relaxed_ordering_write: relaxed,
        qpn: MkeyContext::ANY_QP,
        mkey_7_0: 1,
        pd: pe.pd,
        len: pe.setup.heap as u64,
        ..MkeyContext::default()
    };
    let create = CreateMkey {
        umem_valid: true,
        umem_id: pe.heap_umem,
        context: context.with_access_mode(AccessMode::MTT),
        ..CreateMkey::default()
    };
    key(call(&pe.context, &create).unwrap().mkey_index, 1)
}

/// How a flag is written after data that went through a relaxed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlagWrite {
    Write,
    Atomic,
    /// The flag is a WRITE that waits for a READ before it.
    AfterRead,
}

/// Whether the memory keys of the data and of the flag are relaxed.
#[derive(Clone, Copy, Debug)]
struct Relaxed {
    data: bool,
    flag: bool,
}

/// Returns whether, in any round, a flag written through one key is seen before data written through another.
fn relaxed_passes(
    wire: bool,
    faults: &Faults,
    keys: Relaxed,
    flag: FlagWrite,
    mut rounds: impl Iterator<Item = u64>,
) -> bool {
    let nics = adapters(wire, faults);
    let (mut a, b) = pair(&nics[0], nics.last().unwrap(), Setup::default());
    let (of_data, of_flag) = (another_key(&b, keys.data), another_key(&b, keys.flag));
    let lkey = a.key;
    rounds.any(|round| {
        a.write(&set(DATA, of_data, round), Flags::NONE);
        match flag {
            FlagWrite::Write => a.write(&set(FLAG, of_flag, round), Flags::SIGNALED),
            FlagWrite::Atomic => {
                let add = Wqe::FetchAdd { raddr: FLAG, rkey: of_flag, laddr: 128, lkey, add: 1 };
                a.write(&add, Flags::SIGNALED)
            }
            FlagWrite::AfterRead => {
                a.write(&Wqe::Read { raddr: 256, rkey: of_data, laddr: 128, lkey, len: 1 }, Flags::NONE);
                a.write(&set(FLAG, of_flag, round), Flags::SIGNALED.or(Flags::STRONG_ORDER))
            }
        };
        a.ring();
        let found = flag_first(&b, round);
        assert!(a.cq.wait().as_error().is_none());
        found
    })
}

#[test]
fn relaxed_writes_and_atomics_pass_earlier_writes_and_strict_ones_do_not() {
    for wire in [false, true] {
        for flag in [FlagWrite::Write, FlagWrite::Atomic] {
            let passes = |of_flag, rounds: &mut dyn Iterator<Item = u64>| {
                relaxed_passes(wire, &posted(), Relaxed { data: true, flag: of_flag }, flag, rounds)
            };
            assert!(passes(true, &mut many_rounds()), "wire {wire}: {flag:?}");
            assert!(!passes(false, &mut (1..=ROUNDS)), "wire {wire}: strict {flag:?}");
        }
    }
}

#[test]
fn a_read_lands_earlier_relaxed_writes() {
    let keys = Relaxed { data: true, flag: true };
    for wire in [false, true] {
        assert!(!relaxed_passes(wire, &posted(), keys, FlagWrite::AfterRead, 1..=ROUNDS), "wire {wire}");
    }
}

#[test]
fn firmware_may_relax_strict_keys() {
    let faults = Faults { force_relaxed: 1.0, ..posted() };
    let keys = Relaxed { data: false, flag: false };
    for flag in [FlagWrite::Write, FlagWrite::Atomic] {
        assert!(relaxed_passes(false, &faults, keys, flag, many_rounds()), "{flag:?}");
        assert!(!relaxed_passes(false, &posted(), keys, flag, 1..=ROUNDS), "{flag:?}");
    }
}
