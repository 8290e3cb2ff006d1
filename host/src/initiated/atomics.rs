//! Atomics of the host. They are atomic with those of kernels: both go the same way.

use rushmem_device::Sym;
use rushmem_device::amo::Amo;
use rushmem_runtime_kernels::code::Atomic;

use crate::{Pe, Result};

macro_rules! atomics {
    ($($post:ident $fetch:ident $what:ident $does:literal;)*) => {
        /// Atomics on a word of a PE, of 4 or 8 bytes. Those that return nothing are posted; [`Pe::quiet`] completes
        /// them. OpenSHMEM 1.6 section 9.7.
        ///
        /// # Errors
        /// As [`Pe::put`].
        impl Pe {$(
            #[doc = concat!($does, " `shmem_", stringify!($post), "`.")]
            ///
            /// # Errors
            /// As [`Pe::put`].
            pub fn $post<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<()> {
                const NAME: &str = stringify!($post);
                self.initiate(self.op_atomic(NAME, Atomic::$what, word, value, T::zeroed(), None, pe)?)
            }

            #[doc = concat!($does, " Returns the value found. `shmem_", stringify!($fetch), "`.")]
            ///
            /// # Errors
            /// As [`Pe::put`].
            pub fn $fetch<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
                const NAME: &str = stringify!($fetch);
                let zero = T::zeroed();
                self.ask(|old| self.op_atomic(NAME, Atomic::$what, word, value, zero, Some(old), pe))
            }
        )*}
    };
}
atomics! {
    atomic_set atomic_swap Set "Sets the word.";
    atomic_add atomic_fetch_add Add "Adds to the word, wrapping.";
    atomic_and atomic_fetch_and And "Bitwise and.";
    atomic_or atomic_fetch_or Or "Bitwise or.";
    atomic_xor atomic_fetch_xor Xor "Bitwise exclusive or.";
}

impl Pe {
    /// Reads a word of `pe` atomically. `shmem_atomic_fetch`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn atomic_fetch<T: Amo>(&self, word: Sym<T>, pe: u32) -> Result<T> {
        let zero = T::zeroed();
        self.ask(|old| self.op_atomic("atomic_fetch", Atomic::Fetch, word, zero, zero, Some(old), pe))
    }

    /// Sets a word of `pe` to `value` if it holds `compare`; returns the value found. `shmem_atomic_compare_swap`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn atomic_compare_swap<T: Amo>(&self, word: Sym<T>, compare: T, value: T, pe: u32) -> Result<T> {
        let name = "atomic_compare_swap";
        self.ask(|old| self.op_atomic(name, Atomic::CompareSwap, word, value, compare, Some(old), pe))
    }
}
