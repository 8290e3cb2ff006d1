//! Tests of output that kernels print.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

use rushmem::{Error, KernelLine, Operations, Pe};
use rushmem_test_kernels::{print_and_wait, print_numbers, print_values};
use rushmem_tests::{Setup, grid};

/// Runs a job of two PEs and returns the lines that its kernels print.
fn printed(setup: Setup, app: impl Fn(&Pe) -> Result<(), Error> + Send + Sync) -> Vec<KernelLine> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let receiver = Arc::clone(&lines);
    let job = setup.job().kernel_output(move |line| receiver.lock().unwrap().push(line));
    job.run(app).unwrap_or_else(|error| panic!("{setup}: {error}"));
    std::mem::take(&mut *lines.lock().unwrap())
}

#[test]
fn lines_of_a_thread_arrive_in_order_before_the_wait_returns() {
    let lines = printed(Setup::new(2), |pe| pe.run(grid(3, 40), print_numbers(4)));
    let mut threads = BTreeMap::<_, Vec<String>>::new();
    for KernelLine { pe, block, thread, text, .. } in lines {
        threads.entry((pe, block, thread)).or_default().push(text);
    }
    assert_eq!(threads.len(), 2 * 3 * 40);
    let wanted = ["0 of 4", "1 of 4", "2 of 4", "3 of 4"];
    assert!(threads.values().all(|lines| *lines == wanted), "{threads:?}");
}

#[test]
fn values_of_all_kinds_are_formatted() {
    let lines = printed(Setup::new(1), |pe| pe.run(grid(1, 1), print_values(0.1, 2.5e-3)));
    let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    let long = "a line that is longer than one slot of the ring, which has room for twenty-nine words of eight bytes: 0001 \
                0002 0003 0004 0005 0006 0007 0008 0xfeed";
    assert_eq!(texts, ["'r'   true -3 0.100 0.0025 {}", long]);
    assert_eq!(lines[0].to_string(), "PE 0 block 0 thread 0: 'r'   true -3 0.100 0.0025 {}");
}

#[test]
fn lines_arrive_while_the_kernel_runs() {
    let seen = Arc::new((Mutex::new(0), Condvar::new()));
    let sender = Arc::clone(&seen);
    let job = Setup::new(1).job().kernel_output(move |_| {
        *sender.0.lock().unwrap() += 1;
        sender.1.notify_all();
    });
    let ran = job.run(|pe| {
        let word = pe.alloc_one::<u64>()?;
        let launch = pe.launch(grid(1, 32), print_and_wait(word))?;
        drop(seen.1.wait_while(seen.0.lock().unwrap(), |lines| *lines == 0).unwrap());
        pe.atomic_set(word, 1, pe.my_pe())?;
        launch.wait()
    });
    assert!(ran.is_ok(), "{ran:?}");
}

#[test]
fn full_print_ring_drops_lines_without_blocking_kernels() {
    // The ring has 16 slots, so the last lines are lost unless the host reads in time.
    let lines = printed(Setup::new(1).with("print_buffer", "1"), |pe| pe.run(grid(4, 32), print_numbers(8)));
    assert!((16..=4 * 32 * 8).contains(&lines.len()), "{} lines", lines.len());
}

#[test]
fn nothing_is_printed_without_a_buffer() {
    let lines =
        printed(Setup::new(2).with("print_buffer", "none"), |pe| pe.run(grid(1, 32), print_numbers(2)));
    assert_eq!(lines, []);
}
