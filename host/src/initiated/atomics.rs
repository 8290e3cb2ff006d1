//! Atomics of the host. They are atomic with those of kernels: both go the same way.

use rushmem_device::Sym;
use rushmem_device::amo::{Addend, Amo, AmoWord};
use rushmem_runtime_kernels::code::Atomic;

use crate::{Pe, Result};

macro_rules! atomics {
    ($($of:ident $what:ident $post:ident $fetch:ident $nbi:ident $does:literal;)*) => {
        /// Atomics on a word of a PE, of 4 or 8 bytes. Those that return nothing are posted; [`Pe::quiet`] completes
        /// them. Those with `old` store the value found to this PE's `old`, where it is after [`Pe::quiet`]. OpenSHMEM
        /// 1.6 sections 9.7 and 9.8.
        ///
        /// # Errors
        /// As [`Pe::put`].
        impl Pe {$(
            #[doc = concat!($does, " `shmem_", stringify!($post), "`.")]
            ///
            /// # Errors
            /// As [`Pe::put`].
            pub fn $post<T: $of>(&self, word: Sym<T>, value: T, pe: u32) -> Result<()> {
                const NAME: &str = stringify!($post);
                self.initiate(self.op_atomic(NAME, Atomic::$what, word, value, T::zeroed(), None, pe)?)
            }

            #[doc = concat!($does, " Returns the value found. `shmem_", stringify!($fetch), "`.")]
            ///
            /// # Errors
            /// As [`Pe::put`].
            pub fn $fetch<T: $of>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
                const NAME: &str = stringify!($fetch);
                let zero = T::zeroed();
                self.ask(|old| self.op_atomic(NAME, Atomic::$what, word, value, zero, Some(old), pe))
            }

            #[doc = concat!($does, " The value found goes to `old`. `shmem_", stringify!($nbi), "`.")]
            ///
            /// # Errors
            /// As [`Pe::put`].
            pub fn $nbi<T: $of>(&self, old: Sym<T>, word: Sym<T>, value: T, pe: u32) -> Result<()> {
                const NAME: &str = stringify!($nbi);
                self.initiate(self.op_atomic(NAME, Atomic::$what, word, value, T::zeroed(), Some(old), pe)?)
            }
        )*}
    };
}
atomics! {
    AmoWord Set atomic_set atomic_swap atomic_swap_nbi "Sets the word.";
    Addend Add atomic_add atomic_fetch_add atomic_fetch_add_nbi "Adds to the word, wrapping or rounding.";
    Amo And atomic_and atomic_fetch_and atomic_fetch_and_nbi "Bitwise and.";
    Amo Or atomic_or atomic_fetch_or atomic_fetch_or_nbi "Bitwise or.";
    Amo Xor atomic_xor atomic_fetch_xor atomic_fetch_xor_nbi "Bitwise exclusive or.";
}

/// The number 1.
pub(crate) fn one<T: Amo>() -> T {
    let mut one = T::zeroed();
    // Integers, little-endian, as on everything that this crate runs on.
    bytemuck::bytes_of_mut(&mut one)[0] = 1;
    one
}

impl Pe {
    /// Reads a word of `pe` atomically. `shmem_atomic_fetch`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn atomic_fetch<T: AmoWord>(&self, word: Sym<T>, pe: u32) -> Result<T> {
        self.ask(|old| self.op_fetch("atomic_fetch", word, old, pe))
    }

    /// Reads a word of `pe` atomically into `old`, where it is after [`Pe::quiet`]. `shmem_atomic_fetch_nbi`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn atomic_fetch_nbi<T: AmoWord>(&self, old: Sym<T>, word: Sym<T>, pe: u32) -> Result<()> {
        self.initiate(self.op_fetch("atomic_fetch_nbi", word, old, pe)?)
    }

    /// Sets a word of `pe` to `value` if it holds `compare`; returns the value found. `shmem_atomic_compare_swap`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn atomic_compare_swap<T: Amo>(&self, word: Sym<T>, compare: T, value: T, pe: u32) -> Result<T> {
        let name = "atomic_compare_swap";
        self.ask(|old| self.op_atomic(name, Atomic::CompareSwap, word, value, compare, Some(old), pe))
    }

    /// As [`Pe::atomic_compare_swap`]; the value found is in `old` after [`Pe::quiet`].
    /// `shmem_atomic_compare_swap_nbi`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn atomic_compare_swap_nbi<T: Amo>(
        &self,
        old: Sym<T>,
        word: Sym<T>,
        compare: T,
        value: T,
        pe: u32,
    ) -> Result<()> {
        let name = "atomic_compare_swap_nbi";
        self.initiate(self.op_atomic(name, Atomic::CompareSwap, word, value, compare, Some(old), pe)?)
    }

    /// Adds 1 to a word of `pe`, wrapping. `shmem_atomic_inc`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn atomic_inc<T: Amo>(&self, word: Sym<T>, pe: u32) -> Result<()> {
        self.initiate(self.op_atomic("atomic_inc", Atomic::Add, word, one(), T::zeroed(), None, pe)?)
    }

    /// Adds 1 to a word of `pe`, wrapping; returns the value found. `shmem_atomic_fetch_inc`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn atomic_fetch_inc<T: Amo>(&self, word: Sym<T>, pe: u32) -> Result<T> {
        let name = "atomic_fetch_inc";
        self.ask(|old| self.op_atomic(name, Atomic::Add, word, one(), T::zeroed(), Some(old), pe))
    }

    /// As [`Pe::atomic_fetch_inc`]; the value found is in `old` after [`Pe::quiet`]. `shmem_atomic_fetch_inc_nbi`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn atomic_fetch_inc_nbi<T: Amo>(&self, old: Sym<T>, word: Sym<T>, pe: u32) -> Result<()> {
        let name = "atomic_fetch_inc_nbi";
        self.initiate(self.op_atomic(name, Atomic::Add, word, one(), T::zeroed(), Some(old), pe)?)
    }
}
