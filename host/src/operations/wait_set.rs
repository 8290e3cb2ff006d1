//! Sets of words that hosts and streams wait for, and the host's waits and tests that return indices of such words.

use std::time::Instant;

use rushmem_device::amo::Amo;
use rushmem_device::{Cmp, SymSlice};
use rushmem_error::call_site;
use rushmem_runtime_kernels::code::WaitSetOp;

use super::Issue;
use crate::launch_queue::StagingBuffer;
use crate::{Error, Pe, Result};

/// A set of words on this PE, each with a condition, for waits and tests of `all`, `any` or `some` of them.
///
/// The set remembers the last index found and starts the next search after it, so repeated calls find every word.
///
/// ```no_run
/// # fn main() -> Result<(), rushmem::Error> {
/// # rushmem::Job::new()?.run(|pe| {
/// use rushmem::{Operations, WaitSet};
/// use rushmem_device::Cmp;
///
/// let flags = pe.alloc::<u32>(8)?;
/// // Waits until all eight flags are 1.
/// pe.wait_until_all(&WaitSet::new(flags, Cmp::Eq, 1))
/// # })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WaitSet<T> {
    pub(crate) words: SymSlice<T>,
    pub(crate) cmp: Cmp,
    pub(crate) wanted: WantedValue<T>,
    pub(crate) except: Option<SymSlice<i32>>,
    /// Index at which the next search starts.
    pub(crate) next: usize,
}

/// The values with which the words of a set are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WantedValue<T> {
    /// All words are compared with the same value.
    One(T),
    /// Each word is compared with the element at its index, read at the start of the call.
    Each(SymSlice<T>),
}

impl<T: Amo + PartialOrd> WaitSet<T> {
    /// Creates a set in which each word is compared with `value`.
    pub fn new(words: SymSlice<T>, cmp: Cmp, value: T) -> Self {
        Self { words, cmp, wanted: WantedValue::One(value), except: None, next: 0 }
    }

    /// Creates a set in which each word is compared with the element of `values` at the same index, as in OpenSHMEM's
    /// `_vector` functions.
    ///
    /// `values` is in this PE's part of the heap, and is read at the start of each call.
    pub fn each(words: SymSlice<T>, cmp: Cmp, values: SymSlice<T>) -> Self {
        Self { words, cmp, wanted: WantedValue::Each(values), except: None, next: 0 }
    }

    /// Ignores the words for which the element of `status` at the same index is nonzero. `status` is in this PE's part
    /// of the heap.
    #[must_use]
    pub fn except(self, status: SymSlice<i32>) -> Self {
        Self { except: Some(status), ..self }
    }

    /// Starts the next search after index `i`.
    fn found(&mut self, i: u64) {
        self.next = (i as usize + 1) % self.words.len().max(1);
    }
}

/// # Waits for sets of words
///
/// Waits and tests that return the indices of words that meet their conditions.
impl Pe {
    /// Waits until a word meets its condition, and returns its index. Returns `None` for an empty set. OpenSHMEM 1.6
    /// section 9.10, `shmem_wait_until_any`, `shmem_wait_until_any_vector`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn wait_until_any<T: Amo + PartialOrd>(&self, words: &mut WaitSet<T>) -> Result<Option<usize>> {
        self.any("wait_until_any", WaitSetOp::WaitAny, words)
    }

    /// Waits until at least one word meets its condition, and returns the indices of all words that do. Returns no
    /// index for an empty set. OpenSHMEM 1.6 section 9.10, `shmem_wait_until_some`, `shmem_wait_until_some_vector`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments or more than 8191 words, and the [errors of all
    ///   operations](crate::Operations#errors).
    #[track_caller]
    pub fn wait_until_some<T: Amo + PartialOrd>(&self, words: &mut WaitSet<T>) -> Result<Vec<usize>> {
        self.some("wait_until_some", WaitSetOp::WaitSome, words)
    }

    /// Returns whether all words currently meet their conditions, which is true for an empty set. OpenSHMEM 1.6 section
    /// 9.10, `shmem_test_all`, `shmem_test_all_vector`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn test_all<T: Amo + PartialOrd>(&self, words: &WaitSet<T>) -> Result<bool> {
        let begin = Instant::now();
        let all = self.fetch_result::<u64>(|found| {
            self.op_wait_set("test_all", WaitSetOp::TestAll, found.as_slice(), words)
        })? != 0;
        self.tested("test_all", begin, all)?;
        Ok(all)
    }

    /// Returns the index of a word that currently meets its condition, if there is one. OpenSHMEM 1.6 section 9.10,
    /// `shmem_test_any`, `shmem_test_any_vector`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn test_any<T: Amo + PartialOrd>(&self, words: &mut WaitSet<T>) -> Result<Option<usize>> {
        let begin = Instant::now();
        let found = self.any("test_any", WaitSetOp::TestAny, words)?;
        self.tested("test_any", begin, found.is_some() || words.words.is_empty())?;
        Ok(found)
    }

    /// Returns the indices of all words that currently meet their conditions. OpenSHMEM 1.6 section 9.10,
    /// `shmem_test_some`, `shmem_test_some_vector`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments or more than 8191 words, and the [errors of all
    ///   operations](crate::Operations#errors).
    #[track_caller]
    pub fn test_some<T: Amo + PartialOrd>(&self, words: &mut WaitSet<T>) -> Result<Vec<usize>> {
        let begin = Instant::now();
        let found = self.some("test_some", WaitSetOp::TestSome, words)?;
        self.tested("test_some", begin, !found.is_empty() || words.words.is_empty())?;
        Ok(found)
    }

    #[track_caller]
    fn any<T: Amo + PartialOrd>(
        &self,
        name: &'static str,
        what: WaitSetOp,
        words: &mut WaitSet<T>,
    ) -> Result<Option<usize>> {
        let _site = call_site::enter();
        let found =
            self.fetch_result::<u64>(|found| self.op_wait_set(name, what, found.as_slice(), words))?;
        if found == u64::MAX {
            return Ok(None);
        }
        words.found(found);
        Ok(Some(found as usize))
    }

    #[track_caller]
    fn some<T: Amo + PartialOrd>(
        &self,
        name: &'static str,
        what: WaitSetOp,
        words: &mut WaitSet<T>,
    ) -> Result<Vec<usize>> {
        let _site = call_site::enter();
        let most = StagingBuffer::room::<u64>() - 1;
        if words.words.len() > most {
            let what = format!(
                "{} words: the call returns indices of at most {most} words, so split the set",
                words.words.len()
            );
            return Err(Error::misuse(name, what));
        }
        let buffer = self.launch_queues().scratch.staging_buffer(self.config().timeout)?;
        let found = buffer.slice::<u64>(words.words.len() + 1);
        self.issue(|host| host.op_wait_set(name, what, found, words))?;
        let mut indices = vec![0u64; found.len()];
        self.heap().read(found.offset(), bytemuck::cast_slice_mut(&mut indices))?;
        let (&count, indices) = indices.split_first().unwrap_or((&0, &[]));
        let indices = &indices[..indices.len().min(count as usize)];
        if let Some(&last) = indices.last() {
            words.found(last);
        }
        Ok(indices.iter().map(|&i| i as usize).collect())
    }
}
