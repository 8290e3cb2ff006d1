//! Tests of mistakes that the type system rules out: the wrong kind of memory, memory used twice, or memory used for
//! the wrong purpose.

#[test]
#[ignore = "slow: runs with --ignored"]
fn memory_misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
