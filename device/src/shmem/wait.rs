//! OpenSHMEM names of waits and tests.
//!
//! The variants over arrays compare with a single value, or with one value per word (`_vector`). Words whose element of
//! `status` is not 0 are excluded. Each call starts at a word chosen by the clock, because it has no state;
//! [`WaitWords`] is fair by remembering its position.

use crate::amo::Amo;
use crate::{Cmp, Ctx, Group, Result, Sharing, Signal, Sym, SymSlice, View, WaitWords};

names! {
    shmem_signal_wait_until = signal_wait_until [G: Group] (
        group: G, signal: Sym<Signal>, cmp: Cmp, value: u64
    ) -> Result<u64>;
    shmem_wait_until = wait_until [G: Group, T: Amo + PartialOrd] (
        group: G, word: Sym<T>, cmp: Cmp, value: T
    ) -> Result;
    shmem_test = test [T: Amo + PartialOrd] (word: Sym<T>, cmp: Cmp, value: T) -> Result<bool>;
}

/// Defines the variants of a call over an array of words: with a single value to compare, and with one value per word.
macro_rules! sets {
    ($($name:ident, $vector:ident = $method:ident [$($words:tt)*] ($($arg:ident: $t:ty)?) -> $r:ty;)*) => {$(
        #[doc = concat!("Calls [`Ctx::", stringify!($method), "`], and returns its errors.")]
        #[inline(always)]
        #[track_caller]
        #[allow(clippy::too_many_arguments, reason = "the signature of OpenSHMEM")]
        pub fn $name<S: Sharing, G: Group, T: Amo + PartialOrd>(
            ctx: &Ctx<S>, group: G, words: SymSlice<T>, $($arg: $t,)? status: Option<View<i32>>, cmp: Cmp, value: T
        ) -> Result<$r> {
            let words = WaitWords::new(words, cmp, value).excepting(status).starting_anywhere();
            ctx.$method(group, sets!(@ $($words)* words) $(, $arg)?)
        }

        #[doc = concat!("Calls [`Ctx::", stringify!($method), "`] with [`WaitWords::each`], and returns its errors.")]
        #[inline(always)]
        #[track_caller]
        #[allow(clippy::too_many_arguments, reason = "the signature of OpenSHMEM")]
        pub fn $vector<S: Sharing, G: Group, T: Amo + PartialOrd>(
            ctx: &Ctx<S>, group: G, words: SymSlice<T>, $($arg: $t,)? status: Option<View<i32>>, cmp: Cmp, values: View<T>
        ) -> Result<$r> {
            let words = WaitWords::each(words, cmp, values).excepting(status).starting_anywhere();
            ctx.$method(group, sets!(@ $($words)* words) $(, $arg)?)
        }
    )*};
    (@ & $words:ident) => { &$words };
    (@ &mut $words:ident) => { &mut { $words } };
}

sets! {
    shmem_wait_until_all, shmem_wait_until_all_vector = wait_until_all [&] () -> ();
    shmem_wait_until_any, shmem_wait_until_any_vector = wait_until_any [&mut] () -> Option<usize>;
    shmem_wait_until_some, shmem_wait_until_some_vector = wait_until_some [&mut] (indices: View<u64>) -> usize;
    shmem_test_all, shmem_test_all_vector = test_all [&] () -> bool;
    shmem_test_any, shmem_test_any_vector = test_any [&mut] () -> Option<usize>;
    shmem_test_some, shmem_test_some_vector = test_some [&mut] (indices: View<u64>) -> usize;
}
