//! Tests of a job from start to finish: PE numbers, calls from several threads, delivery of puts, status codes.

use std::ffi::CStr;
use std::time::Duration;

use rushmem::{Error, Status, THREAD_LEVEL, ThreadLevel, info};
use rushmem_device::{Cmp, Signal};
use rushmem_test_kernels::{FACTS, count_up, put_and_leave, report_job, wait_for_ever};
use rushmem_tests::{Setup, grid};

#[test]
fn host_and_kernel_agree_on_pes_and_versions() {
    let told = Setup::new(3).run(|pe| {
        let (facts, name) = (pe.alloc::<u32>(FACTS)?, pe.alloc::<u8>(info::MAX_NAME_LEN)?);
        pe.run(grid(1, 32), report_job(facts, name))?;
        assert_eq!(pe.n_pes(), 3);
        Ok((pe.my_pe(), pe.read(facts)?, pe.read(name)?))
    });
    for (i, (me, facts, name)) in told.iter().enumerate() {
        let ((major, minor), version) = (info::SPECIFICATION, info::VERSION);
        assert_eq!(*me, i as u32);
        assert_eq!(facts, &[i as u32, 3, major, minor, version.0, version.1, version.2]);
        assert_eq!(CStr::from_bytes_until_nul(name).unwrap(), info::NAME);
    }
    let (major, minor, patch) = info::VERSION;
    assert_eq!(format!("{major}.{minor}.{patch}"), env!("CARGO_PKG_VERSION"));
}

#[test]
fn pe_can_be_called_from_many_threads() {
    const THREADS: u64 = 8;
    const LAUNCHES: u64 = 5;
    assert_eq!(THREAD_LEVEL, ThreadLevel::Multiple);
    let levels = [ThreadLevel::Single, ThreadLevel::Funneled, ThreadLevel::Serialized, ThreadLevel::Multiple];
    assert!(levels.is_sorted_by(|a, b| a < b));
    let sums = Setup::new(2).run(|pe| {
        let word = pe.alloc_one::<u64>()?;
        pe.host_sync()?;
        std::thread::scope(|scope| {
            let launch = || (0..LAUNCHES).try_for_each(|_| pe.run(grid(1, 4), count_up(word, 3)));
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(launch)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        pe.host_sync()?;
        pe.read_one(word)
    });
    assert_eq!(sums, [THREADS * LAUNCHES * 4 * 3; 2]);
}

#[test]
fn unawaited_puts_arrive_before_the_job_ends() {
    let wanted: Vec<u32> = (0..5000).collect();
    Setup::new(2).run(|pe| {
        let (dst, src) = (pe.alloc::<u32>(wanted.len())?, pe.alloc::<u32>(wanted.len())?);
        let arrived = pe.alloc_one::<Signal>()?;
        pe.write(src, &wanted)?;
        pe.host_sync()?;
        if pe.my_pe() == 0 {
            // The kernel returns without waiting for its put.
            return pe.run(grid(1, 32), put_and_leave(dst, src, arrived));
        }
        pe.signal_wait_until(arrived, Cmp::Eq, 1)?;
        assert_eq!(pe.read(dst)?, wanted);
        Ok(())
    });
}

#[test]
fn accessible_pes_and_addresses_are_reported() {
    Setup::new(2).run(|pe| {
        let object = pe.alloc::<u32>(100)?;
        assert!(pe.pe_accessible(0) && pe.pe_accessible(1) && !pe.pe_accessible(2));
        assert!(pe.addr_accessible(object, 1) && pe.addr_accessible(object.slice(99..100), 0));
        assert!(!pe.addr_accessible(object, 2) && !pe.addr_accessible(object.slice(50..101), 0));
        pe.free(object)?;
        assert!(!pe.addr_accessible(object, 0));
        Ok(())
    });
}

#[test]
fn every_error_has_a_status_code() {
    let status = |result: Result<Vec<()>, Error>| result.unwrap_err().status();
    let full = Setup::new(1).with("heap_bytes", "64KiB").try_run(|pe| pe.alloc::<u8>(1 << 20).map(drop));
    assert_eq!(status(full), Status::OutOfMemory);
    let large = Setup::new(1).with("heap_bytes", "64TiB").try_run(|_| Ok::<_, Error>(()));
    assert_eq!(status(large), Status::OutOfMemory);
    let differing = Setup::new(2).try_run(|pe| pe.alloc::<u8>(1 + pe.my_pe() as usize).map(drop));
    assert_eq!(status(differing), Status::Asymmetric);
    let freed = Setup::new(1).try_run(|pe| {
        let object = pe.alloc::<u8>(1)?;
        pe.free(object)?;
        pe.free(object)
    });
    assert_eq!(status(freed), Status::InvalidValue);
    let own =
        Setup::new(1).try_run(|_| Err::<(), _>(Box::<dyn std::error::Error + Send + Sync>::from("mine")));
    assert_eq!(status(own), Status::Application);
    let panic = Setup::new(1).try_run(|_| -> Result<(), Error> { panic!("mine") });
    assert_eq!(status(panic), Status::Application);
    let waiting = Setup::new(1).with("timeout", "50ms").without_sanitizer("its wait cannot end");
    let waiting = waiting.try_run(|pe| {
        let (signal, seen) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u32>()?);
        pe.run(grid(1, 32), wait_for_ever(signal, 1, seen))
    });
    assert_eq!(status(waiting), Status::Kernel);
    let alone = Setup::new(2).with("bootstrap_timeout", "300ms").try_run(|pe| match pe.my_pe() {
        0 => pe.host_sync(),
        _ => {
            std::thread::sleep(Duration::from_secs(2));
            Ok(())
        }
    });
    assert_eq!(status(alone), Status::Timeout);
    if !Setup::on_gpu() {
        let heap = Setup::new(1).with("heap", "device").try_run(|_| Ok::<_, Error>(()));
        assert_eq!(status(heap), Status::NotSupported);
        let gpu = Setup::new(1).with("device", "gpu").try_run(|_| Ok::<_, Error>(()));
        assert!(matches!(status(gpu), Status::NoGpu | Status::NotSupported));
    }
}
