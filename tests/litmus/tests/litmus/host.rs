//! Runs the checks of kernels together with the host on three PEs, with injected faults.

use rushmem::{Error, Job, Pe};
use rushmem_litmus::check;
use rushmem_litmus::path::PATHS;

fn on_pes<R: Send>(app: impl Fn(&Pe) -> Result<R, Error> + Send + Sync) -> Vec<R> {
    let config = PATHS[3].with_adversary().config(5);
    let job = Job::with_config(config).kernels(rushmem::ptx!("rushmem_litmus_kernels"));
    job.run(app).unwrap_or_else(|error| panic!("{error}"))
}

fn assert_check(name: &str) {
    let check = check::named(name);
    assert_eq!(on_pes(|pe| check.run(pe)), vec![Vec::<String>::new(); 3]);
}

#[test]
fn alloc_returns_after_memory_is_ready_on_all_pes() {
    assert_check("memory is ready on all PEs when alloc returns");
}

#[test]
fn zeroing_does_not_overwrite_an_early_put() {
    assert_check("an early put is not overwritten by zeros");
}

#[test]
fn reallocated_memory_is_zeroed() {
    assert_check("reallocated memory is zero");
}

#[test]
fn job_shutdown_completes_puts() {
    for _ in 0..5 {
        on_pes(check::leave_behind);
    }
}

#[test]
fn kernel_quiet_completes_its_puts() {
    assert_check("the quiet of a kernel completes its puts");
}

#[test]
fn host_and_kernel_barriers_match() {
    assert_check("barriers of host and kernels mix");
}

#[test]
fn host_that_sees_a_flag_reads_the_data_written_before_it() {
    assert_check("a host that sees a flag sees the data before it");
}

#[test]
fn stream_operation_publishes_stores_of_earlier_kernels() {
    assert_check("an operation on a stream publishes the stores of earlier kernels");
}
