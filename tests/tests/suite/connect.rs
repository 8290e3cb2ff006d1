//! Tests of QPs that are connected on demand, and of connection failures.

use std::time::{Duration, Instant};

use rushmem::{ControlCosts, Error, Pe};
use rushmem_test_kernels::{send_to_all, small_puts};
use rushmem_tests::{Setup, grid};

/// Waits until the PE has `wanted` QPs. A peer's last connect message may arrive late.
fn await_qps(pe: &Pe, wanted: usize) {
    let begin = Instant::now();
    while pe.connected_qps() < wanted && begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(pe.connected_qps(), wanted, "PE {}", pe.my_pe());
}

#[test]
fn qps_are_created_on_first_use() {
    for rails in [1, 2] {
        let setup = Setup::new(4).with("peer_path", "nic").with("qps_per_peer", 2);
        let setup = setup.with("nics_per_pe", rails).with("block_qps", 3);
        setup.without_sanitizer("it counts QPs").run(|pe| {
            let (dst, src) = (pe.alloc::<u32>(32)?, pe.alloc::<u32>(32)?);
            assert_eq!(pe.connected_qps(), 0);
            // No PE connects before all have checked that they have no QPs.
            pe.host_sync()?;
            pe.run(grid(1, 32), small_puts(dst, src, 1, 1))?;
            // A block uses one QP to its right neighbour, and the left neighbour has one to this PE.
            await_qps(pe, 2);
            pe.run(grid(1, 32), small_puts(dst, src, 1, 1))?;
            await_qps(pe, 2);
            pe.host_sync()
        });
    }
}

#[test]
fn nic_reports_the_state_of_each_qp() {
    const PUTS: usize = 20;
    for depth in [2u32, 16384] {
        let setup = Setup::new(2).with("sq_depth", depth).with("peer_path", "nic").with("nic", "soft");
        let setup = setup.with("queue_memory", "64MiB").without_sanitizer("it looks at QPs");
        setup.run(|pe| {
            let (dst, src) = (pe.alloc::<u32>(32 * PUTS)?, pe.alloc::<u32>(32)?);
            assert_eq!(pe.qps()?, []);
            // No PE connects before both have checked.
            pe.host_sync()?;
            pe.run(grid(1, 32), small_puts(dst, src, PUTS as u32, 1))?;
            await_qps(pe, 1);
            let qp = &pe.qps()?[0];
            assert_eq!((qp.peer, qp.state.as_str(), qp.depth), (1 - pe.my_pe(), "RTS", depth));
            assert!(qp.executed as usize >= PUTS && qp.mtu >= 1024, "{qp:?}");
            assert_eq!((qp.traffic_class, qp.service_level, qp.retries), (0, 0, 7));
            // Eight attempts take at most half of a kernel's deadline.
            assert!(qp.ack_timeout * 8 <= pe.config().timeout / 2, "{qp:?}");
            pe.host_sync()
        });
    }
}

#[test]
fn qps_report_their_ordering() {
    for (ordering, relaxed) in [("auto", "auto"), ("out_of_order", "off"), ("ibta", "on")] {
        let setup = Setup::new(2).with("peer_path", "nic").with("nic", "soft").with("connect", "eager");
        setup.with("ordering", ordering).with("relaxed_ordering", relaxed).run(|pe| {
            for qp in pe.qps()? {
                assert_eq!(
                    (qp.unordered, qp.relaxed),
                    (ordering == "out_of_order", relaxed == "on"),
                    "{qp:?}"
                );
            }
            pe.host_sync()
        });
    }
}

#[test]
fn deepest_queue_handles_a_flood_of_puts() {
    const TIMES: u32 = 400;
    Setup::new(2).with("sq_depth", 16384).with("peer_path", "nic").with("queue_memory", "64MiB").run(|pe| {
        let (dst, src) = (pe.alloc::<u32>(128 * TIMES as usize)?, pe.alloc::<u32>(128)?);
        let mine: Vec<u32> = (0..128).map(|i| i * 3 + pe.my_pe()).collect();
        pe.write(src, &mine)?;
        pe.host_sync()?;
        // More puts than the queue holds, from every thread.
        pe.run(grid(1, 128), small_puts(dst, src, TIMES, 1))?;
        pe.host_sync()?;
        let theirs: Vec<u32> = (0..128).map(|i| i * 3 + 1 - pe.my_pe()).collect();
        assert_eq!(pe.read(dst)?, theirs.repeat(TIMES as usize));
        Ok(())
    });
}

#[test]
fn eager_connect_creates_all_qps_at_startup() {
    let setup = Setup::new(3).with("peer_path", "nic").with("connect", "eager");
    let setup = setup.with("qps_per_peer", 2).with("exclusive_qps", 1).without_sanitizer("it counts QPs");
    assert_eq!(setup.run(|pe| Ok(pe.connected_qps())), [9; 3]);
}

#[test]
fn startup_rejects_queues_beyond_the_budget() {
    let begin = Instant::now();
    let setup = Setup::new(3).with("peer_path", "nic").with("queue_memory", "20KiB");
    let error = setup
        .without_sanitizer("it does not start")
        .try_run(|_| -> Result<(), Error> { unreachable!("three QPs need 30 KiB") })
        .expect_err("three QPs need 30 KiB");
    assert!(matches!(error, Error::QueueMemory { qps: 3, depth: 64, .. }), "{error}");
    assert!(error.to_string().contains("may take 20480; raise RUSHMEM_QUEUE_MEMORY"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(15));
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn many_pes_connect_with_few_commands_and_messages() {
    const PES: usize = 160;
    let setup =
        Setup::new(PES as u32).with("peer_path", "nic").with("nic", "soft").with("heap_bytes", "1MiB");
    let setup = setup.with("native_workers", 1).without_sanitizer("it counts commands and messages");
    let all = setup.run(|pe| {
        let started = pe.control_costs();
        let (dst, src) = (pe.alloc::<u32>(PES)?, pe.alloc::<u32>(1)?);
        pe.write(src, &[pe.my_pe() + 1])?;
        // No PE launches before all have read their counters.
        let before = pe.control_costs();
        pe.host_sync()?;
        pe.run(grid(1, 1), send_to_all(dst, src))?;
        pe.host_sync()?;
        assert_eq!(pe.read(dst)?, (1..=PES as u32).collect::<Vec<_>>());
        await_qps(pe, PES);
        // No PE returns before all have counted the messages for its QPs.
        pe.host_sync()?;
        Ok((started, before, pe.control_costs()))
    });
    let late_probes = if Setup::on_gpu() { 2 } else { 0 };
    for (started, before, end) in &all {
        // Natively 13. A heap in GPU memory has separate keys, and a late probe is repeated there on a new QP, at most
        // twice.
        assert!(started.commands <= 24 + late_probes * 6, "{started:?}");
        assert!(started.bootstrap.calls <= 6 && started.bootstrap.messages == 0, "{started:?}");
        assert!(started.bootstrap.call_bytes <= 512 * PES as u64, "{started:?}");
        assert!(started.qp_bytes * PES as u64 <= 16 << 20, "{started:?}");
        // CREATE_CQ, CREATE_QP, three transitions and QUERY_QP.
        assert_eq!(end.commands - before.commands, 6 * PES as u64);
    }
    let sum =
        |of: &dyn Fn(&ControlCosts) -> u64| all.iter().map(|(_, before, end)| of(end) - of(before)).sum();
    let messages: u64 = sum(&|costs| costs.bootstrap.messages);
    let bytes: u64 = sum(&|costs| costs.bootstrap.message_bytes);
    let pairs = (PES * (PES - 1) / 2) as u64;
    assert!((3 * pairs..=4 * pairs).contains(&messages), "{messages} messages for {pairs} pairs");
    assert_eq!(bytes, 36 * messages);
}

#[test]
fn kernels_without_failover_are_refused() {
    let setup = Setup::new(2).with("peer_path", "nic").with("failover", "on");
    let has_failover = !Setup::on_gpu() || option_env!("RUSHMEM_PTX_FAILOVER") == Some("1");
    match setup.without_sanitizer("it does not start on GPUs").try_run(|pe| pe.host_sync()) {
        Ok(_) => assert!(has_failover),
        Err(error) => {
            assert!(!has_failover && error.to_string().contains("RUSHMEM_PTX_FAILOVER=1"), "{error}");
        }
    }
}
