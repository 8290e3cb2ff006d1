//! Sets of words that the host waits for.

use rushmem_device::amo::Amo;
use rushmem_device::{Cmp, SymSlice};
use rushmem_runtime_kernels::code::Set;

use crate::work::Chunk;
use crate::{Error, Pe, Result};

/// Words of a PE and what each is to be: what the `all`, `any` and `some` forms of the host's waits and tests, and those
/// of streams, look at.
///
/// It remembers where it found something, and looks behind that first: whoever asks again and again gets all indices in
/// time.
#[derive(Clone, Copy, Debug)]
pub struct Words<T> {
    pub(crate) words: SymSlice<T>,
    pub(crate) cmp: Cmp,
    pub(crate) wanted: Wanted<T>,
    pub(crate) except: Option<SymSlice<i32>>,
    /// Where to look first.
    pub(crate) next: usize,
}

/// What words are compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<T> {
    /// All with one value.
    One(T),
    /// Each with its own, read when the call begins.
    Each(SymSlice<T>),
}

impl<T: Amo + PartialOrd> Words<T> {
    /// Words that are to compare so with one value.
    pub fn new(words: SymSlice<T>, cmp: Cmp, value: T) -> Self {
        Self { words, cmp, wanted: Wanted::One(value), except: None, next: 0 }
    }

    /// Words of which each is to compare so with its own of `values`, which lie in the same PE's part of the heap and are
    /// read when the call begins: OpenSHMEM's `_vector` forms.
    pub fn each(words: SymSlice<T>, cmp: Cmp, values: SymSlice<T>) -> Self {
        Self { words, cmp, wanted: Wanted::Each(values), except: None, next: 0 }
    }

    /// Without the words whose element of `status`, in the same PE's part of the heap, is not 0.
    #[must_use]
    pub fn except(self, status: SymSlice<i32>) -> Self {
        Self { except: Some(status), ..self }
    }

    /// The word behind index `i` is looked at first from now on.
    fn found(&mut self, i: u64) {
        self.next = (i as usize + 1) % self.words.len().max(1);
    }
}

/// # Errors
/// Of all of these: as [`Pe::signal_wait_until`].
impl Pe {
    /// Waits until all words have been as wanted, each at some time; returns at once if there are none. OpenSHMEM 1.6
    /// section 9.10, `shmem_wait_until_all`, `shmem_wait_until_all_vector`.
    ///
    /// # Errors
    /// As all of these.
    pub fn wait_until_all<T: Amo + PartialOrd>(&self, words: &Words<T>) -> Result<()> {
        let answer = self.work().scratch.answer(self.config().timeout)?;
        self.initiate(self.op_words("wait_until_all", Set::WaitAll, words, answer.word().as_slice())?)
    }

    /// Waits until some word is as wanted; returns its index, or none if there are no words to wait for. OpenSHMEM 1.6
    /// section 9.10, `shmem_wait_until_any`, `shmem_wait_until_any_vector`.
    ///
    /// # Errors
    /// As all of these.
    pub fn wait_until_any<T: Amo + PartialOrd>(&self, words: &mut Words<T>) -> Result<Option<usize>> {
        self.any("wait_until_any", Set::WaitAny, words)
    }

    /// Waits until at least one word is as wanted; returns the indices of all that are, none if there are no words to
    /// wait for. OpenSHMEM 1.6 section 9.10, `shmem_wait_until_some`, `shmem_wait_until_some_vector`.
    ///
    /// # Errors
    /// As all of these; [`Error::Misuse`] for more than 8191 words.
    pub fn wait_until_some<T: Amo + PartialOrd>(&self, words: &mut Words<T>) -> Result<Vec<usize>> {
        self.some("wait_until_some", Set::WaitSome, words)
    }

    /// True if all words are as wanted now, and if there are none. OpenSHMEM 1.6 section 9.10, `shmem_test_all`,
    /// `shmem_test_all_vector`.
    ///
    /// # Errors
    /// As all of these.
    pub fn test_all<T: Amo + PartialOrd>(&self, words: &Words<T>) -> Result<bool> {
        Ok(self.ask::<u64>(|found| self.op_words("test_all", Set::TestAll, words, found.as_slice()))? != 0)
    }

    /// The index of a word that is as wanted now, none if there is none. OpenSHMEM 1.6 section 9.10, `shmem_test_any`,
    /// `shmem_test_any_vector`.
    ///
    /// # Errors
    /// As all of these.
    pub fn test_any<T: Amo + PartialOrd>(&self, words: &mut Words<T>) -> Result<Option<usize>> {
        self.any("test_any", Set::TestAny, words)
    }

    /// The indices of all words that are as wanted now. OpenSHMEM 1.6 section 9.10, `shmem_test_some`,
    /// `shmem_test_some_vector`.
    ///
    /// # Errors
    /// As all of these; [`Error::Misuse`] for more than 8191 words.
    pub fn test_some<T: Amo + PartialOrd>(&self, words: &mut Words<T>) -> Result<Vec<usize>> {
        self.some("test_some", Set::TestSome, words)
    }

    fn any<T: Amo + PartialOrd>(
        &self,
        name: &'static str,
        what: Set,
        words: &mut Words<T>,
    ) -> Result<Option<usize>> {
        let found = self.ask::<u64>(|found| self.op_words(name, what, words, found.as_slice()))?;
        if found == u64::MAX {
            return Ok(None);
        }
        words.found(found);
        Ok(Some(found as usize))
    }

    fn some<T: Amo + PartialOrd>(
        &self,
        name: &'static str,
        what: Set,
        words: &mut Words<T>,
    ) -> Result<Vec<usize>> {
        let most = Chunk::room::<u64>() - 1;
        if words.words.len() > most {
            let what = format!("{} words, of which indices for {most} can be returned", words.words.len());
            return Err(Error::Misuse { call: name, what });
        }
        let chunk = self.work().scratch.chunk(self.config().timeout)?;
        let found = chunk.slice::<u64>(words.words.len() + 1);
        self.initiate(self.op_words(name, what, words, found)?)?;
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
