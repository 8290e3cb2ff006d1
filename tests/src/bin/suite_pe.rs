//! A PE of the tests with several processes.

fn main() -> std::process::ExitCode {
    rushmem_tests::app::main()
}
