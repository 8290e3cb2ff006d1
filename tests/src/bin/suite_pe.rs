//! A PE of the multi-process tests.

fn main() -> std::process::ExitCode {
    rushmem_tests::app::main()
}
