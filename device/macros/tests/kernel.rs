//! Accepted and refused kernels, and the compile errors.

use rushmem_device::Ctx;
use rushmem_device::kernel::kernel;

/// Adds up.
#[kernel]
pub fn add(ctx: &Ctx, a: u32, mut b: u64) {
    let _ = ctx;
    b += u64::from(a);
    let _ = b;
}

#[kernel]
fn fallible(_ctx: &Ctx) -> Result<(), u8> {
    Err(3)
}

#[kernel]
fn r#match(_ctx: &Ctx, body: i8) {
    let _ = body;
}

#[test]
fn a_call_has_the_name_and_the_bytes_of_its_arguments() {
    let call = add(0x0102_0304, 5);
    assert_eq!(call.name(), "add");
    let args: Vec<&[u8]> = call.args().collect();
    assert_eq!(args, [&[4, 3, 2, 1][..], &[5, 0, 0, 0, 0, 0, 0, 0][..]]);
}

#[test]
fn a_kernel_may_fail_and_may_have_a_raw_name() {
    assert!(fallible().args().len() == 0);
    let call = r#match(-1);
    assert_eq!((call.name(), call.args().next()), ("match", Some(&[255][..])));
}

#[test]
fn compile_errors_are_as_expected() {
    let t = trybuild::TestCases::new();
    t.pass("tests/pass/*.rs");
    t.compile_fail("tests/fail/*.rs");
}
