#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| rushmem_mlx5_fuzz::cqe(bytes));
