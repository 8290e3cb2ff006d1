//! Errors that the types prevent: memory of another kind, used twice, or used for the wrong purpose.

#[test]
fn misuse_of_memory_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
