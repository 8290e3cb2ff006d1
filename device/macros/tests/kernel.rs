//! Kernels that the macros accept or reject, and their compile errors.

use rushmem_device::kernel::{KernelArg, kernel};
use rushmem_device::{Ctx, Handle, SymSlice};

/// Adds `a` to a parameter that is declared as `mut`.
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
fn call_carries_name_and_argument_bytes() {
    let call = add(0x0102_0304, 5);
    assert_eq!(call.name(), "add");
    let args: Vec<&[u8]> = call.args().collect();
    assert_eq!(args, [&[4, 3, 2, 1][..], &[5, 0, 0, 0, 0, 0, 0, 0][..]]);
}

/// A struct with padding, and a handle in a nested struct.
#[derive(Clone, Copy, KernelArg)]
#[repr(C)]
struct Outer {
    flag: bool,
    inner: Inner,
    count: usize,
}

#[derive(Clone, Copy, KernelArg)]
#[repr(C)]
struct Inner(SymSlice<u16>, u8);

#[kernel]
fn structured(_ctx: &Ctx, outer: Outer) {
    let _ = outer;
}

#[test]
fn struct_arguments_omit_padding_and_report_handles() {
    // SAFETY: no kernel runs with it.
    let slice = unsafe { SymSlice::<u16>::stamped(64, 3, 9) };
    let call = structured(Outer { flag: true, inner: Inner(slice, 7), count: 5 });
    let words = [1u64, 64, 3, 9, 7, 5].map(u64::to_le_bytes).concat();
    assert_eq!(call.args().collect::<Vec<_>>(), [&words[..]]);
    assert_eq!(call.handles(), [Handle { offset: 64, bytes: 6, stamp: 9 }]);
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
