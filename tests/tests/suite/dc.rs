//! Tests of the DC transport, which uses a few initiators instead of one QP per peer.

use rushmem::{Error, Operations};
use rushmem_device::PerGpu;
use rushmem_test_kernels::{report_puts, send_to_all};
use rushmem_tests::{Setup, grid};

use super::setups::has_dc;

/// Returns a job with `dcis` DC initiators in each queue set.
fn dc(pes: u32, dcis: u32) -> Setup {
    Setup::new(pes).with("peer_path", "nic").with("dc_above", 0).with("dcis", dcis)
}

#[test]
fn number_of_qps_is_independent_of_the_number_of_pes() {
    if !has_dc() {
        return kernels_without_dc_are_refused();
    }
    const PES: usize = 40;
    let setup = dc(PES as u32, 4).with("nic", "soft").with("heap_bytes", "1MiB").with("native_workers", 1);
    let setup = setup.without_sanitizer("it counts QPs, commands and messages");
    setup.run(|pe| {
        let (dst, src) = (pe.alloc::<u32>(PES)?, pe.alloc::<u32>(1)?);
        pe.write(src, &[pe.my_pe() + 1])?;
        pe.host_sync()?;
        let before = pe.control_costs();
        pe.run(grid(1, 1), send_to_all(dst, src))?;
        pe.host_sync()?;
        assert_eq!(pe.read(dst)?, (1..=PES as u32).collect::<Vec<_>>());
        assert_eq!(pe.connected_qps(), 4);
        let qps = pe.qps()?;
        assert_eq!(qps.iter().map(|qp| qp.peer).collect::<Vec<_>>(), [0, 1, 2, 3], "the first PE of each");
        assert!(qps.iter().all(|qp| qp.state == "RTS"), "{qps:?}");
        // An initiator costs six commands: two to create, three to start and one to query. Peers cost nothing.
        let after = pe.control_costs();
        assert_eq!(after.commands - before.commands, 4 * 6 + 4, "{before:?}, {after:?}");
        assert_eq!(after.bootstrap.messages, before.bootstrap.messages, "{before:?}, {after:?}");
        Ok(())
    });
}

#[test]
fn dc_is_used_only_above_the_configured_job_size() {
    if !has_dc() {
        return kernels_without_dc_are_refused();
    }
    for (above, qps) in [(2, 1), (3, 3)] {
        let setup = Setup::new(3).with("peer_path", "nic").with("connect", "eager").with("dcis", 1);
        let setup = setup.with("dc_above", above).without_sanitizer("it counts QPs");
        assert_eq!(setup.run(|pe| Ok(pe.connected_qps())), [qps; 3]);
    }
}

#[test]
fn dc_error_names_the_peer_of_the_wqe() {
    if !has_dc() {
        return kernels_without_dc_are_refused();
    }
    for (cq, depth) in [("ring", 1024), ("ring", 2), ("collapsed", 8)] {
        // PEs 0, 2 and 4 share an initiator.
        let setup = dc(5, 2).with("cq", cq).with("sq_depth", depth).without_sanitizer("the QP ends");
        setup.run(|pe| {
            let (dst, src) = (pe.alloc::<u64>(4 * 5)?, pe.alloc::<u64>(4)?);
            let codes = pe.alloc::<u32>(3 * 5)?;
            pe.host_sync()?;
            if pe.my_pe() == 1 {
                pe.corrupt_rkey(4)?;
                let told = pe.run(grid(5, 32), report_puts(dst, src, codes)).unwrap_err().to_string();
                // A flushed put of the same initiator may have overwritten the error in a collapsed CQ's only entry.
                let flushed =
                    ["towards PE 0 failed", "towards PE 2 failed"].iter().any(|peer| told.contains(peer));
                let overwritten = cq == "collapsed" && flushed && told.contains("was overwritten");
                assert!(overwritten || told.contains("towards PE 4 failed"), "{setup}: {told}");
            }
            pe.host_sync()?;
            pe.reset_queues()?;
            pe.run(grid(5, 32), report_puts(dst, src, codes))?;
            assert_eq!(pe.read(codes)?, vec![1000; 3 * 5], "{setup}");
            pe.host_sync()
        });
    }
}

#[test]
fn limited_context_uses_no_more_dc_initiators() {
    if !has_dc() {
        return kernels_without_dc_are_refused();
    }
    dc(3, 1).with("context_qps", 1).without_sanitizer("it counts QPs").run(|pe| {
        let context = pe.context_to::<PerGpu>(&[0])?;
        let stream = pe.stream()?.with_context(context)?;
        let (dst, src) = (pe.alloc::<u32>(4)?, pe.alloc::<u32>(4)?);
        stream.put(dst, src, 0)?;
        stream.quiet()?;
        stream.wait()?;
        assert_eq!(pe.connected_qps(), 1);
        drop(stream);
        pe.destroy_context(context)?;
        pe.host_sync()
    });
}

fn kernels_without_dc_are_refused() {
    let error = dc(2, 1).try_run(|_| -> Result<(), Error> { unreachable!("it does not start") }).unwrap_err();
    assert!(error.to_string().contains("build with RUSHMEM_PTX_DC=1"), "{error}");
}
