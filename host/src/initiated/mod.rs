//! What the host itself initiates: the calls of the device API, made by a kernel of the runtime's that the calling thread
//! waits for.
//!
//! They use the PE's default context, as kernels do by default and as streams do, and run beside all of these. Any number
//! of threads may call at the same time. [`Pe::fence`] and [`Pe::quiet`] cover the default context: what the host
//! initiated before, and what kernels posted there that have ended; contexts that a kernel takes for itself
//! (`per_block`, `exclusive`) are its own affair.
//!
//! The source of a put lies in the symmetric heap; [`Pe::put_from`] and [`Pe::get_into`] move the host's own slices,
//! through memory of the runtime's.

mod atomics;
mod collectives;
mod order;
mod rma;
mod signals;
mod words;

use bytemuck::Pod;
use rushmem_device::Sym;

pub(crate) use words::Wanted;
pub use words::Words;

use crate::work::Op;
use crate::{Pe, Result};

impl Pe {
    /// Does an operation that leaves a value of at most 8 bytes, and returns that.
    fn ask<T: Pod>(&self, op: impl FnOnce(Sym<T>) -> Result<Op>) -> Result<T> {
        let answer = self.work().scratch.answer(self.config().timeout)?;
        let word = answer.word::<T>();
        self.initiate(op(word)?)?;
        let mut value = T::zeroed();
        self.heap().read(word.offset(), bytemuck::bytes_of_mut(&mut value))?;
        Ok(value)
    }
}
