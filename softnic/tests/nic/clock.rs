//! Tests of the clock register that the adapter maintains in the driver's memory.

use crate::far::FarBuffer;
use crate::script::{Pe, Setup, loopback_nic, until};
use rushmem_mlx5::Wqe;
use rushmem_softnic::{Config, Error, HostBuffer, Idle, Memory, Nic, PAGE};
use std::sync::Arc;
use std::time::Duration;

/// Offset of the clock register in its memory.
const AT: u64 = 8;

/// Memory in which an adapter maintains its clock.
struct Clock(Arc<HostBuffer>);

impl Clock {
    fn of(pe: &Pe) -> Clock {
        let memory = Arc::new(HostBuffer::new(PAGE));
        let seen: Arc<dyn Memory> = match pe.setup.far_queues {
            true => Arc::new(FarBuffer(Arc::clone(&memory))),
            false => Arc::clone(&memory) as _,
        };
        pe.context.show_clock(seen, AT).unwrap();
        Clock(memory)
    }

    fn read(&self) -> u64 {
        u64::from_be(self.0.load_u64(AT as usize))
    }
}

#[test]
fn completions_are_not_before_a_clock_that_was_read() {
    for far_queues in [false, true] {
        let nic = loopback_nic();
        let mut pe = Pe::new(&nic, Setup { far_queues, ..Setup::default() });
        pe.connect_to_itself();
        let (clock, mut last) = (Clock::of(&pe), 0);
        for i in 0..200 {
            let before = clock.read();
            assert!(before >= last && before <= nic.clock(), "{last} {before}");
            pe.post(&Wqe::Write { raddr: 64, rkey: pe.key, laddr: 0, lkey: pe.key, len: 8 });
            last = pe.cq.wait().timestamp();
            assert!(last >= before, "{before} {last}");
            if i % 20 == 0 {
                // Long enough for the adapter to sleep.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

#[test]
fn an_idle_adapter_lags_by_its_longest_sleep() {
    let max_sleep = Duration::from_millis(20);
    let idle = Idle::Notified { max_sleep };
    let nic = Nic::start(Config { idle, ..Config::default() }).unwrap();
    let pe = Pe::new(&nic, Setup::default());
    let clock = Clock::of(&pe);
    let lags = (0..10).map(|_| {
        let now = nic.clock();
        until("the clock goes on", || clock.read() >= now);
        Duration::from_nanos(nic.clock() - now)
    });
    // On a busy machine the engine may oversleep, but not every time.
    assert!(lags.min().unwrap() <= max_sleep);
}

#[test]
fn a_sleep_ends_for_no_clock() {
    let idle = Idle::Notified { max_sleep: Duration::from_secs(3600) };
    let nic = Nic::start(Config { idle, ..Config::default() }).unwrap();
    let pe = Pe::new(&nic, Setup::default());
    let clock = Clock::of(&pe);
    // Long enough for the engine to sleep.
    std::thread::sleep(Duration::from_millis(20));
    let asleep = clock.read();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(clock.read(), asleep);
    pe.context.waker().wake();
    until("the clock goes on", || clock.read() > asleep + 20_000_000);
}

#[test]
fn the_clock_of_a_closed_context_stops() {
    let nic = loopback_nic();
    let pe = Pe::new(&nic, Setup::default());
    let clock = Clock::of(&pe);
    drop(pe);
    let last = clock.read();
    std::thread::sleep(Duration::from_millis(5));
    assert!(clock.read() == last && nic.clock() > last);
}

#[test]
fn memory_without_room_for_a_clock_is_refused() {
    let context = loopback_nic().open();
    for (offset, expected) in
        [(PAGE as u64 - 4, "leave the memory"), (u64::MAX, "leave the memory"), (12, "aligned")]
    {
        match context.show_clock(Arc::new(HostBuffer::new(PAGE)), offset) {
            Err(error @ Error::ClockMemory { .. }) => {
                assert!(error.to_string().contains(expected), "{error}")
            }
            other => panic!("{other:?}"),
        }
    }
}
