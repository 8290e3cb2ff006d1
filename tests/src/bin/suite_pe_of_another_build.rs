//! The same program as `suite_pe`, but with another build identity, so the two must not join the same job.

fn main() -> std::process::ExitCode {
    rushmem_tests::app::main()
}
