//! Tests of errors of host calls, and of jobs that PEs leave early.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rushmem::{Error, Pe};
use rushmem_device::Signal;
use rushmem_test_kernels::wait_for_ever;
use rushmem_tests::{Setup, grid, without_line};

/// Time limit for a prompt reaction, far below the deadline of a wait.
const PROMPT_LIMIT: Duration = Duration::from_secs(30);

/// Waits in a kernel for a signal that never arrives.
fn wait(pe: &Pe) -> Result<(), Error> {
    let (signal, seen) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u32>()?);
    pe.host_sync()?;
    pe.run(grid(2, 32), wait_for_ever(signal, 1, seen))
}

/// Runs a job in which PE 1 returns the error of `leave` while the other PEs wait in a kernel. Returns that error and
/// the errors of the other PEs.
fn left_by(leave: impl Fn() -> Error + Sync) -> (Error, Vec<String>) {
    let begin = Instant::now();
    let told = Mutex::new(Vec::new());
    let error = Setup::new(3)
        .try_run(|pe| {
            if pe.my_pe() == 1 {
                pe.alloc_one::<Signal>()?;
                pe.alloc_one::<u32>()?;
                pe.host_sync()?;
                // Give the other PEs time to reach their waits.
                std::thread::sleep(Duration::from_millis(50));
                return Err(leave());
            }
            let error = wait(pe).expect_err("nobody signals");
            told.lock().unwrap().push(error.to_string());
            Err(error)
        })
        .map(|_: Vec<()>| ())
        .expect_err("a PE left");
    assert!(begin.elapsed() < PROMPT_LIMIT, "the others waited for their deadline");
    (error, told.into_inner().unwrap())
}

#[test]
fn error_of_one_pe_aborts_all_waits() {
    let (error, told) = left_by(|| Error::misuse("the solver", "does not converge"));
    assert_eq!(error.to_string(), "the solver: does not converge");
    assert_eq!(told, ["PE 1 was lost: aborted: the solver: does not converge"; 2]);
}

#[test]
fn panic_of_one_pe_aborts_all_waits() {
    let (error, told) = left_by(|| panic!("out of ideas"));
    assert!(matches!(&error, Error::Panic(text) if text == "out of ideas"), "{error}");
    assert_eq!(told, ["PE 1 was lost: aborted: panic: out of ideas"; 2]);
}

#[test]
fn heap_full_error_states_the_free_space() {
    let told = Setup::new(2).with("heap_bytes", "64KiB").run(|pe| {
        let kept = pe.alloc::<u8>(16 << 10)?;
        let error = pe.alloc::<u64>(10_000).unwrap_err();
        // The failed allocation left the heap unchanged.
        let rest = pe.alloc::<u8>(48 << 10)?;
        pe.free(kept)?;
        pe.free(rest)?;
        pe.alloc::<u8>(64 << 10)?;
        Ok(without_line(&error))
    });
    let wanted = "the symmetric heap has no room for 80000 bytes: 49152 of 65536 bytes are free, 49152 of them in one \
                  piece; raise RUSHMEM_HEAP_BYTES on all PEs, or let the heap grow with RUSHMEM_HEAP_MAX";
    assert_eq!(told, [wanted; 2]);
}

#[test]
fn rejects_a_heap_larger_than_memory() {
    let error = Setup::new(2).with("heap_bytes", "64TiB").try_run(|_| Ok::<_, Error>(())).unwrap_err();
    let text = error.to_string();
    let Error::HeapTooLarge { wanted, pes, .. } = error else { panic!("{text}") };
    assert_eq!(wanted >> 40, 64);
    // Native PEs share the memory of the machine; a GPU has its own.
    assert!(pes == 2 || Setup::on_gpu() && pes == 1, "{text}");
    assert!(text.ends_with("lower RUSHMEM_HEAP_BYTES or RUSHMEM_SQ_DEPTH, or run fewer PEs"), "{text}");
}

#[test]
fn error_names_mismatched_collective_calls() {
    let told = Mutex::new(vec![String::new(); 3]);
    let result = Setup::new(3).try_run(|pe| {
        let error = pe.alloc::<u32>(if pe.my_pe() == 2 { 20 } else { 10 }).unwrap_err();
        told.lock().unwrap()[pe.my_pe() as usize] = without_line(&error);
        Err::<(), _>(error)
    });
    assert!(matches!(result, Err(Error::Mismatch { .. })), "{result:?}");
    let told = told.into_inner().unwrap();
    let end = "all PEs must make the same collective calls in the same order";
    let words = "PE 2 called alloc with alloc(20 x 4 bytes), this PE with alloc(10 x 4 bytes): ";
    assert_eq!(told[0], format!("{words}{end}"));
    assert_eq!(told[1], told[0]);
    assert!(told[2].starts_with("PE 0 called alloc with alloc(10 x 4 bytes), this PE with"), "{}", told[2]);
}

#[test]
fn rejects_double_free_and_use_after_free() {
    let told = Setup::new(2).run(|pe| {
        let object = pe.alloc::<u16>(100)?;
        let size = pe.write(object, &[1; 99]).unwrap_err();
        pe.free(object)?;
        let twice = pe.free(object).unwrap_err();
        let read = pe.read(object).unwrap_err();
        let write = pe.write(object, &[1; 100]).unwrap_err();
        let outside = pe.read(object.slice(50..101)).unwrap_err();
        Ok([size, twice, read, write, outside].map(|error| {
            let text = without_line(&error);
            let (before, after) = text.split_once("(+0x").unwrap_or((&text, ""));
            format!("{before}{}", after.split_once(' ').map_or("", |(_, rest)| rest))
        }))
    });
    let wanted = [
        "write: 99 elements for an object of 100",
        "free: SymSlice100 elements) is not an object, or has been freed",
        "read: SymSlice100 elements) is not an object, or has been freed",
        "write: SymSlice100 elements) is not an object, or has been freed",
        "read: SymSlice(elements 50..101 of an object of 100 elements) is not inside its object",
    ];
    assert_eq!(told, [wanted.map(String::from), wanted.map(String::from)]);
}

#[test]
fn rejects_a_grid_that_cannot_run() {
    Setup::new(1).run(|pe| {
        let (signal, seen) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u32>()?);
        for bad in [grid(0, 32), grid(1, 0), grid(1, 1025)] {
            let error = pe.run(bad, wait_for_ever(signal, 0, seen)).expect_err("no GPU launches that");
            assert!(!matches!(error, Error::Device { .. }), "{error}");
        }
        pe.run(grid(1, 512), wait_for_ever(signal, 0, seen))
    });
}

#[test]
fn many_consecutive_jobs() {
    for pes in [1, 2, 3, 4, 5].into_iter().cycle().take(20) {
        let sums = Setup::new(pes).run(|pe| {
            let all = pe.allgather(&[pe.my_pe() as u8])?;
            Ok(all.iter().map(|part| u32::from(part[0])).sum::<u32>())
        });
        assert_eq!(sums, vec![pes * (pes - 1) / 2; pes as usize]);
    }
}

#[test]
fn error_names_a_pe_that_returned_early() {
    let run = |call: fn(&Pe) -> Result<(), Error>| {
        let error = Setup::new(2).try_run(|pe| if pe.my_pe() == 0 { call(pe) } else { Ok(()) });
        error.unwrap_err().to_string()
    };
    for (text, call) in [(run(Pe::host_sync), "host_sync"), (run(|pe| pe.alloc::<u32>(1).map(drop)), "alloc")]
    {
        let wanted = format!("PE 0 in {call}, PE 1 has already ended; ");
        let other_order = format!("PE 1 has already ended, PE 0 in {call}; ");
        assert!(text.contains(&wanted) || text.contains(&other_order), "{text}");
    }
}
