//! The program `suite_pe` as another build: no PE of the one may be in a job with PEs of the other.

fn main() -> std::process::ExitCode {
    rushmem_tests::app::main()
}
