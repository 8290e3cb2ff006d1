//! Input and response of a command.

use crate::errno::Errno;
use crate::user;
use bytemuck::{NoUninit, Pod};

pub(super) struct Request<'a> {
    /// ID of the event file to which the program has written the command.
    pub(super) file: u64,
    pub(super) command: u32,
    pub(super) input: &'a [u8],
    /// Length of the response buffer, in bytes.
    pub(super) room: u16,
}

impl Request<'_> {
    /// Reads the input, which must be complete.
    pub(super) fn input<T: Pod>(&self) -> Result<T, Errno> {
        self.input_without(0)
    }

    /// Reads the input. Older programs leave out the last `optional` bytes.
    pub(super) fn input_without<T: Pod>(&self, optional: usize) -> Result<T, Errno> {
        if self.input.len() + optional < size_of::<T>() {
            return Err(Errno::EINVAL);
        }
        Ok(user::prefix(self.input))
    }

    /// Writes the response. The buffer must have room for all of it.
    pub(super) fn answer<T: NoUninit>(&self, at: u64, answer: &T) -> Result<(), Errno> {
        self.answer_without(0, at, answer)
    }

    /// Writes the response to the program's buffer at `at`. The last `optional` bytes may not fit, since older programs
    /// do not expect them.
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
