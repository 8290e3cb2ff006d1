//! The input and the answer of a command.

use crate::errno::Errno;
use crate::user;
use bytemuck::{NoUninit, Pod};

/// A command.
pub(super) struct Request<'a> {
    /// Number of the file.
    pub(super) file: u64,
    pub(super) command: u32,
    pub(super) input: &'a [u8],
    /// Bytes for the answer.
    pub(super) room: u16,
}

impl Request<'_> {
    /// Returns the input, which must be complete.
    pub(super) fn input<T: Pod>(&self) -> Result<T, Errno> {
        self.input_without(0)
    }

    /// Returns the input, in which an older program leaves out the last bytes.
    pub(super) fn input_without<T: Pod>(&self, optional: usize) -> Result<T, Errno> {
        if self.input.len() + optional < size_of::<T>() {
            return Err(Errno::EINVAL);
        }
        Ok(user::prefix(self.input))
    }

    /// Writes an answer, which needs all its room.
    pub(super) fn answer<T: NoUninit>(&self, at: u64, answer: &T) -> Result<(), Errno> {
        self.answer_without(0, at, answer)
    }

    /// Writes an answer. An older program has no room for the last bytes.
    pub(super) fn answer_without<T: NoUninit>(
        &self,
        optional: usize,
        at: u64,
        answer: &T,
    ) -> Result<(), Errno> {
        let room = usize::from(self.room);
        if room + optional < size_of::<T>() {
            return Err(Errno::ENOSPC);
        }
        let bytes = bytemuck::bytes_of(answer);
        user::write(at, &bytes[..bytes.len().min(room)])
    }
}
