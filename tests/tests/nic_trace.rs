//! Tests that the timeline of a job shows the work of the software ConnectX.

use std::fs::File;
use std::path::Path;
use std::sync::Barrier;

use rushmem::{Error, Pages};
use rushmem_device::Signal;
use rushmem_test_kernels::ping_pong;
use rushmem_tests::launch::{all, clean, launcher};
use rushmem_tests::{Setup, grid, skip};
use rushmem_trace::{Arrow, Category, Span, Summary, Trace, Track, Traffic, arrows};

const PE: &str = env!("CARGO_BIN_EXE_suite_pe");

fn read(path: &Path) -> Trace {
    Trace::read(File::open(path).unwrap()).unwrap()
}

fn is_queue(span: &Span) -> bool {
    matches!(span.track, Track::Queue { .. })
}

/// Whether the span is that of a WQE that writes to the peer's memory.
fn writes(span: &Span) -> bool {
    is_queue(span) && span.detail.index.is_some() && (span.name == "RDMA_WRITE" || is_atomic(span))
}

fn is_atomic(span: &Span) -> bool {
    span.name.starts_with("ATOMIC")
}

/// Checks that all WQEs from one PE to another that write to memory have arrived, and returns their number.
fn check_arrivals(trace: &Trace, from: u32, to: u32) -> usize {
    let place = |span: &&Span| (span.name.clone(), span.detail.remote, span.detail.bytes.unwrap_or(0));
    let wqes =
        trace.spans.iter().filter(|span| (span.pe, span.detail.peer) == (from, Some(to)) && writes(span));
    let arrivals = trace
        .spans
        .iter()
        .filter(|span| span.track == Track::Arrivals && (span.pe, span.detail.peer) == (to, Some(from)));
    let (mut sent, mut arrived): (Vec<_>, Vec<_>) = (wqes.clone().collect(), arrivals.collect());
    assert!(wqes.clone().all(|wqe| wqe.end.is_some() && wqe.detail.qpn.is_some()));
    // WQEs of different QPs arrive in any order.
    sent.sort_by_key(|span| (place(span), span.begin));
    arrived.sort_by_key(|span| (place(span), span.begin));
    let places = |spans: &[&Span]| spans.iter().map(place).collect::<Vec<_>>();
    assert_eq!(places(&sent), places(&arrived));
    for (wqe, arrival) in sent.iter().zip(&arrived) {
        assert!(wqe.begin <= arrival.begin && Some(arrival.begin) <= wqe.end, "{wqe:?} {arrival:?}");
    }
    sent.len()
}

/// Checks that the tables of the trace agree with its spans.
fn check_tables(trace: &Trace) {
    let summary = Summary::new(trace);
    let is_remote = |traffic: &&Traffic| traffic.pe != traffic.peer;
    assert_eq!(summary.traffic.iter().filter(is_remote).count(), 2);
    for traffic in summary.traffic.iter().filter(is_remote) {
        let mine = |span: &&Span| (span.pe, span.detail.peer) == (traffic.pe, Some(traffic.peer));
        let count =
            |is: &dyn Fn(&Span) -> bool| trace.spans.iter().filter(mine).filter(|s| is(s)).count() as u64;
        assert_eq!(traffic.doorbells, count(&|span| span.name == "doorbell"));
        assert_eq!(traffic.wqes, count(&|span| is_queue(span) && span.detail.index.is_some()));
        assert_eq!(traffic.retransmissions, count(&|span| span.name == "retransmission"));
        assert!(traffic.doorbells > 0 && traffic.doorbells <= traffic.wqes, "{traffic:?}");
    }
    assert_eq!(summary.dropped, 0);
}

fn spans<'a>(trace: &'a Trace, arrow: &Arrow) -> Vec<&'a Span> {
    arrow.points.iter().map(|(i, _)| &trace.spans[*i]).collect()
}

/// Checks the spans along a put with signal to another PE, from the call to the wait.
fn check_way(trace: &Trace, arrow: &Arrow) {
    assert!(arrow.points.is_sorted_by_key(|(_, ns)| *ns), "{arrow:?}");
    let way = spans(trace, arrow);
    let [call, doorbell, .., wait] = &way[..] else { panic!("{way:?}") };
    assert_eq!((&*call.name, call.category), ("put_signal", Category::Call));
    assert_eq!((&*doorbell.name, doorbell.pe), ("doorbell", call.pe));
    assert!(doorbell.detail.note.as_deref().is_some_and(|note| note.starts_with("basic blocks: ")));
    assert_eq!((wait.category, wait.detail.awaits), (Category::Wait, call.detail.changes));
    let peer = call.detail.peer.unwrap();
    assert!(peer == wait.pe && peer != call.pe);
    // Both the data and the signal have a WQE and an arrival.
    for remote in [call.detail.remote, call.detail.changes.map(|word| word.offset)] {
        let of = |queue: bool| {
            way.iter().find(|span| {
                span.category == Category::Nic && is_queue(span) == queue && span.detail.remote == remote
            })
        };
        let (wqe, arrival) =
            (of(true).unwrap_or_else(|| panic!("{way:?}")), of(false).unwrap_or_else(|| panic!("{way:?}")));
        assert_eq!((wqe.pe, wqe.detail.peer), (call.pe, Some(peer)));
        assert_eq!((arrival.pe, arrival.detail.peer), (peer, Some(call.pe)));
        assert!(call.begin <= doorbell.begin && doorbell.begin <= wqe.begin, "{way:?}");
        assert!(wqe.begin <= arrival.begin && Some(arrival.begin) <= wait.end, "{way:?}");
        assert!(wqe.detail.note.as_deref().is_some_and(|note| note.ends_with(" ns after its doorbell")));
    }
}

/// Puts to the heap, then to a window, which has a different address on the wire.
#[test]
fn put_signal_is_traced_through_the_nic_to_the_wait() {
    const ROUNDS: u32 = 5;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let setup = Setup::new(2).with("device", "native").with("peer_path", "nic").with("trace", file.display());
    let offsets = setup.run(|pe| {
        let (inbox, outbox) = (pe.alloc::<u64>(100)?, pe.alloc::<u64>(100)?);
        let (signals, bad) = ([pe.alloc_one::<Signal>()?, pe.alloc_one::<Signal>()?], pe.alloc_one::<u64>()?);
        let window = pe.register_symmetric(Pages::<u64>::zeroed(100))?;
        for (inbox, signal) in [inbox, window.handle()].into_iter().zip(signals) {
            pe.run(grid(1, 1), ping_pong(inbox, outbox, signal, bad, ROUNDS, 1, 0))?;
        }
        pe.host_sync()?;
        let offsets = [inbox.offset(), window.handle().offset()];
        pe.unregister_symmetric(window)?;
        assert_eq!(pe.read_one(bad)?, 0);
        Ok(offsets)
    });
    let trace = read(&file);
    check_tables(&trace);
    for (from, to) in [(0, 1), (1, 0)] {
        assert!(check_arrivals(&trace, from, to) >= 4 * ROUNDS as usize);
    }
    let signals: Vec<Arrow> = arrows(&trace).into_iter().filter(|arrow| arrow.name == "signal").collect();
    for offset in offsets[0] {
        let begins_there = |arrow: &&Arrow| spans(&trace, arrow)[0].detail.remote == Some(offset);
        let ways = signals.iter().filter(begins_there).inspect(|arrow| check_way(&trace, arrow)).count();
        assert_eq!(ways, 2 * ROUNDS as usize, "{offset:#x}");
    }
    // QPs of the same NIC exchange no packets.
    assert!(!trace.spans.iter().any(|span| span.category == Category::Packet));
}

/// Runs two concurrent jobs in this process. A signal is set by a WRITE on QPs that keep WRITEs in order, and on other
/// QPs by an atomic, which is ordered after WRITEs.
#[test]
fn concurrent_jobs_trace_their_own_signal_sets() {
    const ROUNDS: usize = 5;
    let folder = tempfile::tempdir().unwrap();
    let all_run = Barrier::new(4);
    let traced = |ordering: &str| {
        let file = folder.path().join(format!("{ordering}.json"));
        let setup =
            Setup::new(2).with("device", "native").with("peer_path", "nic").with("ordering", ordering);
        let offsets = setup.with("trace", file.display()).run(|pe| {
            let (inbox, outbox) = (pe.alloc::<u64>(100)?, pe.alloc::<u64>(100)?);
            let [first, signal] = [pe.alloc_one::<Signal>()?, pe.alloc_one::<Signal>()?];
            let bad = pe.alloc_one::<u64>()?;
            all_run.wait();
            // A QP has no ordering before it is connected, so connect it first.
            for (signal, rounds) in [(first, 1), (signal, ROUNDS as u32)] {
                pe.run(grid(1, 1), ping_pong(inbox, outbox, signal, bad, rounds, 1, 1))?;
            }
            pe.host_sync()?;
            assert_eq!(pe.read_one(bad)?, 0);
            Ok(signal.offset())
        });
        (read(&file), offsets[0])
    };
    let (ibta, out_of_order) = std::thread::scope(|scope| {
        let ibta = scope.spawn(|| traced("ibta"));
        let out_of_order = traced("out_of_order");
        (ibta.join().unwrap(), out_of_order)
    });
    for ((trace, offset), atomics) in [(ibta, 0), (out_of_order, ROUNDS)] {
        for pe in [0, 1] {
            let launches = |span: &&Span| span.pe == pe && span.category == Category::Launch;
            assert_eq!(trace.spans.iter().filter(launches).filter(|s| s.name == "ping_pong").count(), 2);
            let sets: Vec<&Span> = trace
                .spans
                .iter()
                .filter(|span| span.pe == pe && writes(span) && span.detail.remote == Some(offset))
                .collect();
            assert_eq!(sets.len(), ROUNDS);
            assert_eq!(sets.iter().filter(|span| is_atomic(span)).count(), atomics);
        }
    }
}

/// Starts another job inside a running one, with the same trace file.
#[test]
fn trace_file_is_exclusive_to_one_job_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let setup = Setup::new(1).with("device", "native").with("trace", file.display());
    let errors = setup.run(|_| match setup.try_run(|_| Ok::<_, Error>(())) {
        Err(Error::Unavailable { why, .. }) => Ok(why),
        other => panic!("{other:?}"),
    });
    assert!(errors[0].contains("another running job of this process writes it"), "{errors:?}");
    let calls = || read(&file).spans.iter().filter(|span| span.name == "host_sync").count();
    assert_eq!(calls(), 0);
    // Each further job is appended after the previous one.
    (1..3).for_each(|jobs| {
        setup.run(|pe| pe.host_sync());
        assert_eq!(calls(), jobs);
    });
}

#[test]
fn timeline_shows_lost_packets_between_processes() {
    let Some(launcher) = launcher(PE) else {
        return skip("timeline_shows_lost_packets_between_processes", "the launcher is not built");
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let mut command = clean(&launcher);
    command.args(["run", "-n", "2", "--set", "softnic_fault=drop=0.1,seed=5", PE, "ping_pong"]);
    let output = command.env("RUSHMEM_TRACE", &file).env("RUSHMEM_STATS", "1").output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    let trace = read(&file);
    check_tables(&trace);
    assert!(check_arrivals(&trace, 0, 1) > 0 && check_arrivals(&trace, 1, 0) > 0);
    let packets = |name: &str| {
        trace.spans.iter().filter(|span| span.category == Category::Packet && span.name == name).count()
    };
    assert!(packets("retransmission") > 0 && packets("ACKNOWLEDGE") > 0);
    let drops =
        trace.spans.iter().filter(|span| span.name == "fault" && span.detail.note.as_deref() == Some("drop"));
    assert!(drops.count() > 0);
    let again = Summary::new(&trace).traffic.iter().map(|traffic| traffic.retransmissions).sum::<u64>();
    assert_eq!(again, packets("retransmission") as u64);
    let signals = arrows(&trace).into_iter().filter(|arrow| arrow.name == "signal");
    assert_eq!(signals.inspect(|arrow| check_way(&trace, arrow)).count(), 40);
}
