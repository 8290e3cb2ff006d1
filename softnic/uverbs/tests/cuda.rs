//! GPU memory of unmodified programs that use CUDA. A fake CUDA driver has memory that the CPU cannot access at its
//! device address, and aborts the program on misuse.

mod common;
mod program;

use common::{Running, output_text, softnic};
use std::path::Path;

/// Runs a program with the fake CUDA driver, and asserts that it succeeds.
fn run(test: &str, options: &[&str], program: &Path, words: &[&str]) {
    let all: Vec<&str> = [program.to_str().unwrap()].iter().chain(words).copied().collect();
    let mut command = softnic(options, &all);
    command.env("LD_LIBRARY_PATH", program::cuda_library(test)).env("STANDIN_STRICT", "1");
    let output = Running::start(command).end();
    assert!(output.status.success() && output_text(&output).contains("all good"), "{}", output_text(&output));
}

/// Runs all operations of queue pairs with all data in GPU memory.
fn verbs(test: &str, options: &[&str], peer: &str, kind: &str) {
    if let Some(program) = program::verbs_program(test) {
        run(test, options, &program, &["mlx5_0", peer, kind]);
    }
}

#[test]
fn gpu_memory_by_address_within_one_adapter() {
    verbs("gpu_memory_by_address_within_one_adapter", &[], "mlx5_0", "address");
}

#[test]
fn gpu_memory_by_address_between_adapters() {
    verbs("gpu_memory_by_address_between_adapters", &["--devices", "2"], "mlx5_1", "address");
}

#[test]
fn gpu_memory_without_a_context() {
    verbs("gpu_memory_without_a_context", &["--devices", "2"], "mlx5_1", "mapped");
}

#[test]
fn gpu_memory_by_dma_buf() {
    verbs("gpu_memory_by_dma_buf", &["--devices", "2", "--link", "ib"], "mlx5_1", "dma-buf");
}

#[test]
fn gpu_memory_answers_as_a_kernel_with_nvidia_peermem() {
    let test = "gpu_memory_answers_as_a_kernel_with_nvidia_peermem";
    let Some(program) = program::cuda_program(test) else { return };
    let has_module = Path::new("/sys/module/nvidia_peermem/version").exists();
    run(test, &[], &program, &["mlx5_0", if has_module { "1" } else { "0" }]);
}
