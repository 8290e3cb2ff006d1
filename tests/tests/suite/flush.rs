//! Tests that completed puts are visible to the host: a NIC's ACK does not prove that the data is in memory.

use std::sync::Barrier;

use rushmem::{Error, Operations, Pages, Pe};
use rushmem_device::SymSlice;
use rushmem_device::prelude::PerGpu;
use rushmem_tests::Setup;

/// Number of elements of an object. The last one is delivered last.
const LEN: usize = 8;

/// Returns a job in which WRITEs are acknowledged long before they reach memory, unless something flushes them.
fn late(pes: u32) -> Setup {
    let faults = "posted=1 late_us=60000000";
    Setup::new(pes).with("nic", "soft").with("peer_path", "nic").with("softnic_fault", faults)
}

/// Puts `value` to all elements on PE 1, one by one, and completes the puts. Called on PE 0.
fn put(pe: &Pe, data: SymSlice<u64>, value: u64) -> Result<(), Error> {
    for i in 0..data.len() {
        pe.p(data.at(i), value, 1)?;
    }
    pe.quiet()
}

#[test]
fn completed_puts_are_visible_after_host_collectives() {
    type Meet = fn(&Pe) -> Result<(), Error>;
    let calls: [(&str, Meet); 4] = [
        ("host_sync", Pe::host_sync),
        ("allgather", |pe| pe.allgather(&[1]).map(drop)),
        ("alloc", |pe| pe.alloc::<u8>(1).map(drop)),
        ("free", |pe| pe.free(pe.alloc::<u8>(0)?)),
    ];
    for (cq, rails) in [("ring", 1), ("collapsed", 1), ("ring", 2)] {
        let setup = late(2).with("cq", cq).with("nics_per_pe", rails);
        setup.run(|pe| {
            let data = pe.alloc::<u64>(LEN)?;
            for round in 1..=3 {
                for (i, (name, meet)) in (0..).zip(calls) {
                    let value = round * 10 + i;
                    if pe.my_pe() == 0 {
                        put(pe, data, value)?;
                    }
                    meet(pe)?;
                    if pe.my_pe() == 1 {
                        assert_eq!(pe.read(data)?, [value; LEN], "{name}, {setup}");
                    }
                    pe.host_sync()?;
                }
            }
            Ok(())
        });
    }
}

#[test]
fn completed_puts_to_segments_are_visible() {
    let setup = late(2).with("heap_bytes", "32KiB").with("heap_max", "24MiB");
    setup.run(|pe| {
        let window = pe.register_symmetric(Pages::<u64>::zeroed(LEN))?;
        let grown = pe.alloc::<u64>(1 << 16)?;
        let parts = [window.handle(), grown.slice(0..LEN)];
        if pe.my_pe() == 0 {
            parts.iter().try_for_each(|&part| put(pe, part, 7))?;
        }
        pe.host_sync()?;
        if pe.my_pe() == 1 {
            assert_eq!(parts.map(|part| pe.read(part).unwrap()), [[7; LEN]; 2]);
        }
        pe.host_sync()?;
        let pages = pe.unregister_symmetric(window)?;
        assert_eq!(pages[LEN - 1], if pe.my_pe() == 1 { 7 } else { 0 });
        Ok(())
    });
}

#[test]
fn resets_keep_completed_puts_visible() {
    late(2).run(|pe| {
        let data = pe.alloc::<u64>(LEN)?;
        for value in 1..=2 {
            if pe.my_pe() == 0 {
                put(pe, data, value)?;
            }
            pe.reset_queues()?;
            if pe.my_pe() == 1 {
                assert_eq!(pe.read(data)?, [value; LEN]);
            }
            pe.host_sync()?;
        }
        Ok(())
    });
}

/// A target may learn in several ways that a context was destroyed. The context's data must have been delivered by
/// then.
#[test]
fn destroying_a_context_delivers_its_puts() {
    for (depth, cq) in [(2, "ring"), (8, "collapsed")] {
        let setup = late(2).with("context_qps", 1).with("sq_depth", depth).with("cq", cq);
        let setup = setup.without_sanitizer("its PEs meet at a barrier of the process, without the runtime");
        let turn = Barrier::new(2);
        let found = setup.run(|pe| {
            let (data, window) = (pe.alloc::<u64>(LEN)?, pe.register_symmetric(Pages::<u64>::zeroed(LEN))?);
            let mut found = Vec::new();
            // The context's queues are kept and serve the next one.
            for value in 1..=3 {
                if pe.my_pe() == 0 {
                    let context = pe.context::<PerGpu>()?;
                    let stream = pe.stream()?.with_context(context)?;
                    for part in [data, window.handle()] {
                        (0..LEN).try_for_each(|i| stream.p(part.at(i), value, 1))?;
                    }
                    stream.wait()?;
                    drop(stream);
                    pe.destroy_context(context)?;
                }
                turn.wait();
                found.extend([pe.read(data)?, pe.read(window.handle())?]);
                turn.wait();
            }
            pe.unregister_symmetric(window)?;
            Ok(found)
        });
        let wanted: Vec<_> = [1, 1, 2, 2, 3, 3].map(|value| vec![value; LEN]).into();
        assert_eq!(found[1], wanted, "{setup}");
    }
}
