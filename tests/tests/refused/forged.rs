#![forbid(unsafe_code)]
use rushmem_device::{Local, SymSlice};

fn raw() -> SymSlice<u64> {
    SymSlice::from_raw(64, 8)
}

fn of_fields() -> SymSlice<u64> {
    SymSlice { offset: 64, len: 8 }
}

fn of_a_slice(slice: SymSlice<u64>) -> Local<u64> {
    slice.into()
}

fn main() {}
