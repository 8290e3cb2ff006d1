//! Tests between kernels and the host, on three PEs, with injected faults.

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
fn memory_is_ready_on_all_pes_when_alloc_returns() {
    assert_check("memory is ready on all PEs when alloc returns");
}

#[test]
fn an_early_put_is_not_overwritten_by_zeros() {
    assert_check("an early put is not overwritten by zeros");
}

#[test]
fn memory_that_is_given_out_again_is_zero() {
    assert_check("memory that is given out again is zero");
}

#[test]
fn the_end_of_a_job_completes_puts() {
    for _ in 0..5 {
        on_pes(check::leave_behind);
    }
}

#[test]
fn the_quiet_of_a_kernel_completes_its_puts() {
    assert_check("the quiet of a kernel completes its puts");
}

#[test]
fn barriers_of_host_and_kernels_mix() {
    assert_check("barriers of host and kernels mix");
}

#[test]
fn the_host_that_sees_a_flag_reads_the_data_before_it() {
    assert_check("the host that sees a flag reads the data before it");
}

#[test]
fn an_operation_on_a_stream_publishes_the_stores_of_earlier_kernels() {
    assert_check("an operation on a stream publishes the stores of earlier kernels");
}
