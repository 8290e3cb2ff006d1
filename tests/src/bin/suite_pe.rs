//! The program that multi-process tests run as a PE.

fn main() -> std::process::ExitCode {
    rushmem_tests::app::main()
}
