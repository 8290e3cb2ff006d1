//! Errors that the types prevent: memory of another kind, used twice, or used for the wrong purpose.

#[test]
fn memory_misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
