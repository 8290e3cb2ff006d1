//! Verbs that the kernel implements by ioctls or write commands: PD, MR, CQ, QP, SRQ, AH, XRCD.

mod address;
pub(crate) mod ah;
mod attributes;
pub(crate) mod cq;
pub(crate) mod dct;
pub(crate) mod device;
pub(crate) mod dm;
mod mcast;
pub(crate) mod modify;
pub(crate) mod mr;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod srq;
pub(crate) mod xrc;

use crate::attrs::Call;
use crate::errno::Errno;
use bytemuck::{NoUninit, Pod};

/// Attribute IDs of INVOKE_WRITE.
mod write {
    pub(super) const CORE_IN: u16 = 0;
    pub(super) const CORE_OUT: u16 = 1;
    pub(super) const COMMAND: u16 = 2;
}

/// Returns the input of the write command that INVOKE_WRITE carries.
fn core_in<T: Pod>(call: &Call) -> Result<T, Errno> {
    call.input(write::CORE_IN)
}

/// Writes the output of the write command that INVOKE_WRITE carries. Its buffer must have room for all of `value`.
fn core_out<T: NoUninit>(call: &Call, value: &T) -> Result<(), Errno> {
    if call.room(write::CORE_OUT) < size_of::<T>() {
        return Err(Errno::ENOSPC);
    }
    call.output(write::CORE_OUT, value)
}
