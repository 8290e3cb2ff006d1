//! Tests of errors in kernels: each makes the call fail and is reported in one line that names the cause.

use std::time::{Duration, Instant};

use rushmem::{Error, Operations, Pe};
use rushmem_device::abi::CtxParts;
use rushmem_device::{Error as Code, Signal};
use rushmem_mlx5::Syndrome;
use rushmem_test_kernels::{
    GroupKind, Misuse, barriers, fail_in_one_thread, fill_slots, grid_barriers, misuse, report_puts,
    send_to_all, stray_barrier, stray_block, wait_for_ever,
};
use rushmem_tests::{Setup, grid, skip};

/// The reason why jobs with a wrong memory key run without the sanitizer.
const ENDED: &str = "a wrong key ends QPs";

/// Returns the text of an error without the parts that vary between runs: QP numbers, heap offsets, source lines,
/// folders.
fn line(error: &Error) -> String {
    let mut words: Vec<String> = error.to_string().split(' ').map(str::to_owned).collect();
    for i in 0..words.len() {
        let word = words[i].clone();
        if let Some((path, rest)) = word.split_once(".rs:") {
            let tail = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            words[i] = format!("{}.rs:N{tail}", path.rsplit('/').next().unwrap_or(path));
        } else if word.starts_with("0x") && i > 0 && ["QP", "offset"].contains(&&*words[i - 1]) {
            let tail = word[2..].trim_start_matches(|c: char| c.is_ascii_hexdigit());
            words[i] = format!("0x*{tail}");
        }
    }
    words.join(" ")
}

/// Returns the code of the first error that a kernel recorded.
pub(super) fn code(error: &Error) -> Option<Code> {
    match error {
        Error::Device { first, .. } => first.code(),
        _ => None,
    }
}

/// Commits one misuse in a kernel. Returns the error code that the kernel got and the error that the host got.
fn do_wrong(pe: &Pe, which: Misuse) -> Result<(u32, Error), Error> {
    let (data, seen) = (pe.alloc::<u32>(8)?, pe.alloc_one::<u32>()?);
    let told = pe.run(grid(1, 32), misuse(which as u32, data, pe.alloc_one()?, seen));
    pe.host_sync()?;
    assert_eq!(pe.read(data)?, [0; 8], "{which:?} wrote something");
    let error = told.expect_err("a misuse must fail");
    let seen_there = pe.read_one(seen)?;
    // The error belongs to that launch only: the next one succeeds.
    let signal = pe.alloc_one::<Signal>()?;
    pe.run(grid(1, 32), wait_for_ever(signal, 0, seen))?;
    Ok((seen_there, error))
}

// Longer than 60 lines, because each misuse has its row.
#[test]
fn misuse_errors_name_the_mistake() {
    const SITE: &str = "at errors.rs:N (block 0, thread 0)";
    let outside = |part: &str| {
        format!(
            "the call used {part}, SITE; compare the ranges of `slice`, `at`, `cast` and `first` before the call \
             with `len` of their objects"
        )
    };
    let (put, got) = (
        outside("elements 1..9 of an object of 8 elements"),
        outside("elements 8..9 of an object of 8 elements"),
    );
    let blocks = outside("the first 4 of 3 blocks");
    let cases = [
        (Misuse::PutToMissingPe, Code::BadPe, "there is no PE 2: the job has 2, SITE"),
        (Misuse::AtomicOnMissingPe, Code::BadPe, "there is no PE 1048576: the job has 2, SITE"),
        (Misuse::BeyondTheEnd, Code::OutOfRange, &put),
        (Misuse::GetOutside, Code::OutOfRange, &got),
        (
            Misuse::LengthMismatch,
            Code::LengthMismatch,
            "a transfer with PE 0 has 4 elements here and 8 there, SITE",
        ),
        (Misuse::LoadBeyond, Code::OutOfRange, "index 8 is outside an object of 4 elements, SITE"),
        (Misuse::StoreBeyond, Code::OutOfRange, "index 4 is outside an object of 4 elements, SITE"),
        (
            Misuse::TakeTwice,
            Code::NoQp,
            "the kernel uses context 1 of its kind, but the job has QPs for 0, SITE; raise RUSHMEM_BLOCK_QPS, \
             _EXCLUSIVE_QPS, _CONTEXT_QPS or _QPS_PER_PEER to the number that the kernel uses",
        ),
        (
            Misuse::NoBlockQueues,
            Code::NoQp,
            "the kernel uses context 1 of its kind, but the job has QPs for 0, SITE; raise RUSHMEM_BLOCK_QPS, \
             _EXCLUSIVE_QPS, _CONTEXT_QPS or _QPS_PER_PEER to the number that the kernel uses",
        ),
        (
            Misuse::ZeroStride,
            Code::BadStride,
            "blocks of 1 elements have a stride of 0, SITE; a block has at least one element, and a stride \
             is at least as long as its block",
        ),
        (
            Misuse::ShortStride,
            Code::BadStride,
            "blocks of 3 elements have a stride of 2, SITE; a block has at least one element, and a stride \
             is at least as long as its block",
        ),
        (
            Misuse::UnequalBlocks,
            Code::LengthMismatch,
            "a transfer with PE 0 has 2 elements here and 8 there, SITE",
        ),
        (Misuse::TooManyBlocks, Code::OutOfRange, &blocks),
        (Misuse::FewStatuses, Code::LengthMismatch, "a length is 0, but must be 8, SITE"),
        (Misuse::NoRoom, Code::OutOfRange, "index 0 is outside an object of 0 elements, SITE"),
        (
            Misuse::ClearUnheld,
            Code::BadLock,
            "this PE does not hold the lock at heap offset 0x* (byte 0 of the object allocated at errors.rs:N), SITE; set and clear a lock in turn, from one thread of a \
             PE at a time",
        ),
        (
            Misuse::SetHeld,
            Code::BadLock,
            "this PE already holds the lock at heap offset 0x* (byte 0 of the object allocated at errors.rs:N), SITE; set and clear a lock in turn, from one thread of a \
             PE at a time",
        ),
        (
            Misuse::NoQueue,
            Code::NoQp,
            "the kernel uses context 2 of its kind, but the job has QPs for 1, SITE; raise RUSHMEM_BLOCK_QPS, \
             _EXCLUSIVE_QPS, _CONTEXT_QPS or _QPS_PER_PEER to the number that the kernel uses",
        ),
        (Misuse::QuietMissingPe, Code::BadPe, "there is no PE 2: the job has 2, SITE"),
        (Misuse::MaskedOutside, Code::OutOfRange, &got),
    ];
    for (which, wanted, text) in cases {
        let told = Setup::new(2).run(|pe| {
            let (seen, error) = do_wrong(pe, which)?;
            let views = matches!(which, Misuse::LoadBeyond | Misuse::StoreBeyond);
            if !views {
                assert_eq!(Code::from_code(seen), Some(wanted), "{which:?}");
            }
            assert_eq!(code(&error), Some(wanted), "{which:?}");
            Ok(line(&error))
        });
        assert_eq!(told[1], format!("PE 1: {}", text.replace("SITE", SITE)), "{which:?}");
    }
}

#[test]
fn exclusive_context_has_one_owner() {
    let told = Setup::new(1).with("exclusive_qps", 1).run(|pe| {
        let (data, seen) = (pe.alloc::<u32>(8)?, pe.alloc_one::<u32>()?);
        let lock = pe.alloc_one()?;
        let error = pe.run(grid(1, 32), misuse(Misuse::TakeTwice as u32, data, lock, seen)).unwrap_err();
        assert_eq!(Code::from_code(pe.read_one(seen)?), Some(Code::Busy));
        // The context was released, so the second run fails at the second acquisition again, not at the first.
        let again = pe.run(grid(1, 32), misuse(Misuse::TakeTwice as u32, data, lock, seen)).unwrap_err();
        assert_eq!(line(&again), line(&error));
        Ok(line(&error))
    });
    let wanted = "PE 0: another thread, block or kernel has the context, at errors.rs:N (block 0, thread 0); take an \
                  exclusive context from one thread, and a context of a block from one kernel at a time, and release it";
    assert_eq!(told, [wanted]);
}

#[test]
fn wait_for_a_missing_signal_times_out() {
    let begin = Instant::now();
    let told = Setup::new(2).with("timeout", "300ms").run(|pe| {
        let (signal, seen) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u32>()?);
        pe.write(signal.as_slice(), &[3])?;
        let error = pe.run(grid(1, 64), wait_for_ever(signal, 77, seen)).unwrap_err();
        assert_eq!(Code::from_code(pe.read_one(seen)?), Some(Code::WaitTimeout));
        let Error::Device { first, others } = &error else { panic!("{error}") };
        let r = first.record();
        assert_eq!((r.pe, r.offset, r.found, r.wanted, *others), (pe.my_pe(), signal.offset(), 3, 77, 0));
        Ok(line(&error))
    });
    let wanted = "PE 0: the word at heap offset 0x* (byte 0 of the object allocated at errors.rs:N) was 3 at the \
                  deadline, wanted 77, at errors.rs:N (block 0, thread 0); check that the PE that should signal still runs, or raise RUSHMEM_TIMEOUT";
    assert_eq!(told[0], wanted);
    assert!(begin.elapsed() >= Duration::from_millis(300) && begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn leader_error_reaches_its_group() {
    const DONE: u32 = 1000;
    let setups = ["nic", "p2p"].map(|path| Setup::new(2).with("peer_path", path));
    for setup in setups {
        setup.run(|pe| {
            let (slots, used) = (pe.alloc::<u32>(4 * 32)?, pe.alloc_one::<u64>()?);
            let codes = pe.alloc::<u32>(2 * 64)?;
            let fill = |to| pe.run(grid(2, 64), fill_slots(slots, used, to, codes));
            // Each warp of the other PE has filled one slot.
            fill((pe.my_pe() + 1) % 2)?;
            pe.host_sync()?;
            assert_eq!((pe.read_one(used)?, pe.read(codes)?), (4, vec![DONE; 128]), "{setup}");
            let mut filled = pe.read(slots)?;
            filled.sort_by_key(|number| (number - 1) / 32);
            assert_eq!(filled, (1..=128).collect::<Vec<_>>(), "{setup}");
            // The leaders fail, and no lane hangs in a barrier.
            assert_eq!(code(&fill(2).unwrap_err()), Some(Code::BadPe), "{setup}");
            let wanted = |i| if i % 32 == 0 { Code::BadPe } else { Code::InGroup };
            assert_eq!(pe.read(codes)?, (0..128).map(|i| wanted(i) as u32).collect::<Vec<_>>(), "{setup}");
            assert_eq!(pe.read_one(used)?, 4, "{setup}");
            Ok(())
        });
    }
}

#[test]
fn error_of_any_thread_reaches_its_group() {
    const DONE: u32 = 1000;
    Setup::new(1).run(|pe| {
        let codes = pe.alloc::<u32>(2 * 64)?;
        for failing in [0, 33, 64] {
            pe.run(grid(2, 64), fail_in_one_thread(failing, codes))?;
            let wanted = |i: u32| match i % 64 {
                _ if failing == 64 => DONE,
                rank if rank == failing => Code::Busy as u32,
                _ => Code::InGroup as u32,
            };
            assert_eq!(pe.read(codes)?, (0..128).map(wanted).collect::<Vec<_>>(), "thread {failing}");
        }
        Ok(())
    });
}

#[test]
fn grid_barrier_reports_missing_blocks() {
    let told = Setup::new(1).with("timeout", "300ms").run(|pe| {
        let (seen, bad) = (pe.alloc_one::<u32>()?, pe.alloc_one::<u32>()?);
        let error = pe.run(grid(2, 33), stray_block(seen)).unwrap_err();
        assert_eq!(Code::from_code(pe.read_one(seen)?), Some(Code::Timeout));
        // The barriers of the next launch start from a clean state.
        let cells = pe.alloc::<u32>(66)?;
        pe.run(grid(2, 33), grid_barriers(cells, bad, 5))?;
        assert_eq!(pe.read_one(bad)?, 0);
        Ok(line(&error))
    });
    let wanted = "PE 0: 1 of 2 blocks came to the grid barrier before the deadline, at errors.rs:N (block 1, thread 0); \
                  every block of the grid must call the barrier the same number of times";
    assert_eq!(told, [wanted]);
}

#[test]
fn barrier_reports_the_missing_pe() {
    // With P2P peers each lane waits for one peer, so another thread would report the error.
    let setup = Setup::new(2).with("timeout", "300ms").with("peer_path", "nic");
    let told = setup.without_sanitizer("it names the thread that waits for a NIC").run(|pe| {
        let (cells, bad) = (pe.alloc::<u32>(2)?, pe.alloc_one::<u32>()?);
        let told = match pe.my_pe() {
            0 => line(&pe.run(grid(1, 32), barriers(GroupKind::Block as u32, cells, bad, 1)).unwrap_err()),
            _ => String::new(),
        };
        pe.host_sync()?;
        Ok(told)
    });
    let wanted = "PE 0: PE 1 did not come to a collective call of its team before the deadline, at order.rs:N (kernel \
                  barriers, block 0, thread 0); check that every member makes the same calls and still runs, or raise RUSHMEM_TIMEOUT";
    assert_eq!(told[0], wanted);
}

#[test]
fn reset_queues_recovers_from_an_error() {
    struct Queues {
        cq: &'static str,
        depth: u32,
        connect: &'static str,
        nics: u32,
    }
    for Queues { cq, depth, connect, nics } in [
        Queues { cq: "ring", depth: 1024, connect: "lazy", nics: 1 },
        Queues { cq: "ring", depth: 2, connect: "eager", nics: 2 },
        Queues { cq: "collapsed", depth: 8, connect: "lazy", nics: 2 },
    ] {
        let setup = Setup::new(3).with("peer_path", "nic").with("cq", cq).with("sq_depth", depth);
        let setup = setup.with("connect", connect).with("nics_per_pe", nics).without_sanitizer(ENDED);
        setup.run(|pe| {
            let (n, me) = (pe.n_pes(), pe.my_pe());
            let (dst, src) = (pe.alloc::<u64>(4 * n as usize)?, pe.alloc::<u64>(4)?);
            let codes = pe.alloc::<u32>(3 * n as usize)?;
            for round in 1..4 {
                pe.write(dst, &vec![0; 4 * n as usize])?;
                pe.write(src, &[100 * round + u64::from(me); 4])?;
                pe.host_sync()?;
                pe.run(grid(n, 32), report_puts(dst, src, codes))?;
                pe.host_sync()?;
                let wanted: Vec<u64> = (0..n).flat_map(|from| [100 * round + u64::from(from); 4]).collect();
                assert_eq!((pe.read(codes)?, pe.read(dst)?), (vec![1000; 3 * n as usize], wanted), "{setup}");
                pe.host_sync()?;

                // Each round breaks the QP between two other PEs.
                let (one, other) = (round as u32 % n, (round as u32 + 1) % n);
                if me == one {
                    pe.corrupt_rkey(other)?;
                }
                let told = pe.run(grid(n, 32), report_puts(dst, src, codes));
                assert!(me != one || matches!(told, Err(Error::Device { .. })), "{setup}: {told:?}");
                pe.host_sync()?;
                if me == one {
                    // Through the other NIC, this put may be the first with the wrong key.
                    let still = pe.put(dst.slice(0..4), src, other).unwrap_err().to_string();
                    let ended = format!("towards PE {other} was ended by an earlier error");
                    let named = still.contains(&ended) && still.contains("Pe::reset_queues");
                    assert!(named || nics == 2 && still.contains("REMOTE_ACCESS_ERR"), "{setup}: {still}");
                }
                pe.host_sync()?;
                let stream = pe.stream()?;
                if me == other {
                    stream.fence()?;
                }
                let busy = pe.reset_queues().unwrap_err().to_string();
                assert!(busy.contains(&format!("kernels of PE {other} may be running")), "{setup}: {busy}");
                // The fence may encounter the QP that failed.
                let _ = stream.wait();
                drop(stream);
                pe.reset_queues()?;
                assert!(connect == "eager" || pe.connected_qps() == 0, "{setup}");
            }
            Ok(())
        });
    }
}

#[test]
fn wrong_key_fails_only_one_qp() {
    for (cq, depth) in [("ring", 1024), ("ring", 2), ("collapsed", 8)] {
        let setup = Setup::new(3).with("peer_path", "nic").with("cq", cq).with("sq_depth", depth);
        let setup = setup.without_sanitizer(ENDED);
        let told = setup.run(|pe| {
            let (n, me) = (pe.n_pes(), pe.my_pe());
            let (dst, src) = (pe.alloc::<u64>(4 * n as usize)?, pe.alloc::<u64>(4)?);
            let codes = pe.alloc::<u32>(3 * n as usize)?;
            pe.write(src, &[u64::from(me) + 1; 4])?;
            pe.host_sync()?;
            if me == 0 {
                pe.corrupt_rkey(2)?;
            }
            let told = pe.run(grid(n, 32), report_puts(dst, src, codes));
            pe.host_sync()?;
            let (codes, dst) = (pe.read(codes)?, pe.read(dst)?);
            // All puts with the right key arrived, and no other data. A QP error affects both sides, so PE 2's put to
            // PE 0 may be missing.
            let parts: Vec<&[u64]> = dst.chunks(4).collect();
            for (from, part) in (0..n).zip(parts) {
                let whole = [u64::from(from) + 1; 4];
                match (from, me) {
                    (0, 2) => assert_eq!(part, [0; 4], "{setup}"),
                    (2, 0) => assert!(part == [0; 4] || part == whole, "{setup}"),
                    _ => assert_eq!(part, whole, "{setup}: PE {from} to {me}"),
                }
            }
            if me != 0 {
                let unaffected = if me == 2 { 3.. } else { 0.. };
                assert!(told.is_ok() || me == 2, "PE {me}: {told:?}");
                assert!(codes[unaffected].iter().all(|&code| code == 1000), "PE {me}: {codes:?}");
                return Ok(String::new());
            }
            let (good, bad) = codes.split_at(6);
            assert_eq!(good, [1000; 6]);
            let poisoned = Code::Poisoned as u32;
            assert_eq!(bad, [Code::Completion as u32, poisoned, poisoned]);
            let error = told.expect_err("the put with a wrong key");
            let Error::Device { first, .. } = &error else { panic!("{error}") };
            assert_eq!(first.syndrome(), Some(Syndrome::REMOTE_ACCESS_ERR));
            let r = first.record();
            assert_eq!((r.pe, r.peer, r.block), (0, 2, 2));
            assert_ne!(r.qpn, 0);
            Ok(line(&error))
        });
        let wanted =
            "PE 0: RDMA_WRITE towards PE 2 failed on QP 0x*: REMOTE_ACCESS_ERR (syndrome 0x13, vendor ";
        assert!(told[0].starts_with(wanted), "{setup}: {}", told[0]);
        assert!(told[0].ends_with(", at errors.rs:N (block 2, thread 0)"), "{}", told[0]);
        // A later job in this process must work.
        works(3);
    }
}

#[test]
fn cause_is_reported_before_flushed_operations() {
    let setup = Setup::new(2).with("sq_depth", 64).with("peer_path", "nic").without_sanitizer(ENDED);
    let told = setup.run(|pe| {
        let cells = pe.alloc::<u32>(4)?;
        let mut told = String::new();
        if pe.my_pe() == 0 {
            // Enough puts to bring the CQ to its second lap.
            for _ in 0..80 {
                pe.put(cells, cells, 1)?;
            }
            pe.corrupt_rkey(1)?;
            for _ in 0..40 {
                pe.put_nbi(cells, cells, 1)?;
            }
            told = line(&pe.quiet().unwrap_err());
        }
        pe.host_sync()?;
        Ok(told)
    });
    assert!(
        told[0].contains("RDMA_WRITE towards PE 1") && told[0].contains("REMOTE_ACCESS_ERR"),
        "{}",
        told[0]
    );
}

/// Runs a job that must succeed, to show that earlier errors have no lasting effect.
fn works(pes: u32) {
    let found = Setup::new(pes).run(|pe| {
        let (dst, src) = (pe.alloc::<u32>(64 * pes as usize)?, pe.alloc::<u32>(64)?);
        pe.write(src, &[7; 64])?;
        pe.host_sync()?;
        pe.run(grid(2, 32), send_to_all(dst, src))?;
        pe.host_sync()?;
        pe.read(dst)
    });
    assert_eq!(found, vec![vec![7; 64 * pes as usize]; pes as usize]);
}

#[test]
fn failing_job_does_not_disturb_a_concurrent_job() {
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| {
            let setup = Setup::new(2).with("peer_path", "nic").without_sanitizer(ENDED);
            setup.try_run(|pe| {
                let (dst, src) = (pe.alloc::<u32>(2 * 32)?, pe.alloc::<u32>(32)?);
                pe.corrupt_rkey(1)?;
                pe.run(grid(1, 32), send_to_all(dst, src))
            })
        });
        for _ in 0..3 {
            works(2);
        }
        let error = failing.join().expect("the job does not panic").unwrap_err();
        assert!(error.to_string().contains("REMOTE_ACCESS_ERR"), "{error}");
    });
}

#[test]
fn kernel_rejects_a_different_layout_before_any_access() {
    let told = Setup::new(1).run(|pe| {
        let (data, seen) = (pe.alloc::<u32>(8)?, pe.alloc_one::<u32>()?);
        let parts: CtxParts = pe.ctx_parts();
        let mut forged = parts;
        forged.header.layout ^= 1;
        // A value that a kernel of another build would misinterpret.
        forged.heap = rushmem_device::abi::DevAddr(8);
        let call = misuse(Misuse::PutToMissingPe as u32, data, pe.alloc_one()?, seen);
        // SAFETY: the kernel detects the different layout and accesses only the control page, which is valid.
        let error = unsafe { pe.launch_with(forged, grid(1, 32), call) }?.wait().unwrap_err();
        assert_eq!(code(&error), Some(Code::Layout));
        assert_eq!(pe.read_one(seen)?, 0);
        let text = error.to_string();
        for layout in [parts.header.layout, forged.header.layout] {
            assert!(text.contains(&format!("{layout:#018x}")), "{text}");
        }
        Ok(text)
    });
    assert!(
        told[0].starts_with("kernel and host were built from different layouts (kernel 0x"),
        "{}",
        told[0]
    );
    assert!(
        told[0].ends_with("rebuild the kernels with the version of rushmem that the host uses"),
        "{}",
        told[0]
    );
}

#[test]
fn deadlock_of_native_lanes_is_reported() {
    if Setup::on_gpu() {
        return skip(
            "deadlock_of_native_lanes_is_reported",
            "kernels run on a GPU, which does not detect deadlocks",
        );
    }
    let told = Setup::new(1).run(|pe| {
        let error = pe.run(grid(1, 64), stray_barrier()).unwrap_err();
        assert!(matches!(error, Error::NativeKernel { pe: 0, .. }), "{error}");
        Ok(error.to_string())
    });
    let lines: Vec<&str> = told[0].lines().collect();
    assert_eq!(
        lines[0],
        "PE 0: kernel stray_barrier: kernel deadlock: lanes wait for others that will never arrive"
    );
    assert_eq!(lines.len(), 2, "{}", told[0]);
    assert!(lines[1].starts_with("  block 0: lane 0 exited, lanes 1-63 at "), "{}", lines[1]);
    assert!(lines[1].ends_with("(block barrier)") && lines[1].contains("errors.rs:"), "{}", lines[1]);
}

#[test]
fn wait_timeout_names_the_failed_qp() {
    let setup = Setup::new(2).with("timeout", "300ms").with("peer_path", "nic").without_sanitizer(ENDED);
    let told = setup.run(|pe| {
        let (cells, signal) = (pe.alloc::<u32>(4)?, pe.alloc_one::<Signal>()?);
        let code = pe.alloc_one::<u32>()?;
        let mut told = String::new();
        if pe.my_pe() == 0 {
            pe.put(cells, cells, 1)?;
            pe.corrupt_rkey(1)?;
            // Nothing waits for this put, so no kernel encounters its error.
            pe.put_nbi(cells, cells, 1)?;
            told = line(&pe.run(grid(1, 32), wait_for_ever(signal, 1, code)).unwrap_err());
        }
        pe.host_sync()?;
        Ok(told)
    });
    let wanted = "(block 0, thread 0); QP 0x* of this PE has failed, which may be the cause: check \
                  the network to PE 1";
    assert!(told[0].ends_with(wanted), "{}", told[0]);
}
