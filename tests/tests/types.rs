//! What the types rule out: memory that is no memory of the job's, used twice, or used as what it is not.

#[test]
fn misuse_of_memory_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
