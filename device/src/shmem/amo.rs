//! OpenSHMEM names of the atomics.

use crate::amo::{Addend, Amo, AmoWord, Fetched};
use crate::{Ctx, Result, Sharing, Sym};

names! {
    shmem_atomic_fetch = atomic_fetch [T: AmoWord] (word: Sym<T>, pe: u32) -> Result<T>;
    shmem_atomic_set = atomic_set [T: AmoWord] (word: Sym<T>, value: T, pe: u32) -> Result;
    shmem_atomic_swap = atomic_swap [T: AmoWord] (word: Sym<T>, value: T, pe: u32) -> Result<T>;
    shmem_atomic_compare_swap = atomic_compare_swap [T: Amo] (word: Sym<T>, compare: T, value: T, pe: u32) -> Result<T>;
    shmem_atomic_inc = atomic_inc [T: Amo] (word: Sym<T>, pe: u32) -> Result;
    shmem_atomic_fetch_inc = atomic_fetch_inc [T: Amo] (word: Sym<T>, pe: u32) -> Result<T>;
    shmem_atomic_add = atomic_add [T: Addend] (word: Sym<T>, value: T, pe: u32) -> Result;
    shmem_atomic_fetch_add = atomic_fetch_add [T: Addend] (word: Sym<T>, value: T, pe: u32) -> Result<T>;
    shmem_atomic_and = atomic_and [T: Amo] (word: Sym<T>, value: T, pe: u32) -> Result;
    shmem_atomic_fetch_and = atomic_fetch_and [T: Amo] (word: Sym<T>, value: T, pe: u32) -> Result<T>;
    shmem_atomic_or = atomic_or [T: Amo] (word: Sym<T>, value: T, pe: u32) -> Result;
    shmem_atomic_fetch_or = atomic_fetch_or [T: Amo] (word: Sym<T>, value: T, pe: u32) -> Result<T>;
    shmem_atomic_xor = atomic_xor [T: Amo] (word: Sym<T>, value: T, pe: u32) -> Result;
    shmem_atomic_fetch_xor = atomic_fetch_xor [T: Amo] (word: Sym<T>, value: T, pe: u32) -> Result<T>;
    shmem_atomic_fetch_nbi = atomic_fetch_nbi [T: AmoWord] (result: Sym<Fetched<T>>, word: Sym<T>, pe: u32) -> Result;
    shmem_atomic_swap_nbi = atomic_swap_nbi [T: AmoWord] (
        result: Sym<Fetched<T>>, word: Sym<T>, value: T, pe: u32
    ) -> Result;
    shmem_atomic_compare_swap_nbi = atomic_compare_swap_nbi [T: Amo] (
        result: Sym<Fetched<T>>, word: Sym<T>, compare: T, value: T, pe: u32
    ) -> Result;
    shmem_atomic_fetch_inc_nbi = atomic_fetch_inc_nbi [T: Amo] (
        result: Sym<Fetched<T>>, word: Sym<T>, pe: u32
    ) -> Result;
    shmem_atomic_fetch_add_nbi = atomic_fetch_add_nbi [T: Amo] (
        result: Sym<Fetched<T>>, word: Sym<T>, value: T, pe: u32
    ) -> Result;
    shmem_atomic_fetch_and_nbi = atomic_fetch_and_nbi [T: Amo] (
        result: Sym<Fetched<T>>, word: Sym<T>, value: T, pe: u32
    ) -> Result;
    shmem_atomic_fetch_or_nbi = atomic_fetch_or_nbi [T: Amo] (
        result: Sym<Fetched<T>>, word: Sym<T>, value: T, pe: u32
    ) -> Result;
    shmem_atomic_fetch_xor_nbi = atomic_fetch_xor_nbi [T: Amo] (
        result: Sym<Fetched<T>>, word: Sym<T>, value: T, pe: u32
    ) -> Result;
}
