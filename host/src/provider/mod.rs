//! The seam between bring-up and NIC: PRM (DevX) commands, memory registration, doorbell pages.
//!
//! Everything above this trait is the same on hardware and in software.

mod soft;

use std::sync::Arc;

use rushmem_mlx5::prm::qp::Mtu;
use rushmem_mlx5::prm::{CmdError, CmdOpcode, Command, DecodeError, Response};
use rushmem_softnic::Memory;

pub(crate) use soft::Soft;

/// Why a NIC did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The NIC refused a command.
    #[error("{nic} refused {command}: {error}")]
    Refused {
        /// The NIC.
        nic: String,
        /// The command.
        command: CmdOpcode,
        /// Status and syndrome.
        error: CmdError,
    },
    /// The NIC answered with a mailbox that makes no sense.
    #[error("{nic} answered {command} with a malformed mailbox: {error}")]
    Malformed {
        /// The NIC.
        nic: String,
        /// The command.
        command: CmdOpcode,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// A call other than a command failed.
    #[error("{nic}: {call} failed: {source}")]
    Call {
        /// The NIC.
        nic: String,
        /// The call.
        call: &'static str,
        /// Why.
        source: rushmem_softnic::Error,
    },
}

/// How a port is addressed by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct PortAddress {
    pub(crate) gid: [u8; 16],
    pub(crate) mac: [u8; 6],
}

/// A NIC, as one PE uses it.
pub(crate) trait Provider: Send + Sync {
    /// A name for messages.
    fn name(&self) -> String;
    /// The address of its port.
    fn port(&self) -> PortAddress;
    /// The largest path MTU towards that port; the smallest there is if there is no way to it, which INIT2RTR refuses.
    fn path_mtu(&self, peer: PortAddress) -> Mtu;
    /// Executes a command that makes an object; dropping the object destroys it.
    fn create(&self, input: &[u8], output: &mut [u8]) -> Box<dyn Object>;
    /// Registers memory for queues and keys.
    fn umem_reg(&self, memory: Arc<dyn Memory>) -> Result<Box<dyn Umem>, Error>;
    /// A doorbell page.
    fn alloc_uar(&self) -> Result<Box<dyn Uar>, Error>;
}

/// An object that a command made. Destroyed on drop.
pub(crate) trait Object: Send + Sync {
    /// Executes a command on it.
    fn execute(&self, input: &[u8], output: &mut [u8]);
}

/// Registered memory. Forgotten on drop.
pub(crate) trait Umem: Send + Sync {
    /// Its number.
    fn id(&self) -> u32;
}

/// A doorbell page. Given back on drop.
pub(crate) trait Uar: Send + Sync {
    /// Its number.
    fn page_id(&self) -> u32;
    /// First byte of the page.
    fn page(&self) -> *mut u8;
    /// Where in the page the doorbell register lies.
    fn register_offset(&self) -> usize;
}

/// Executes a command that makes an object.
///
/// # Errors
/// [`Error::Refused`], [`Error::Malformed`].
pub(crate) fn create<C: Command>(
    nic: &dyn Provider,
    command: &C,
) -> Result<(Box<dyn Object>, C::Output), Error> {
    let mut answer = <C::Output as Response>::EMPTY;
    let object = nic.create(command.encode().as_ref(), answer.as_mut());
    Ok((object, read::<C>(nic, answer.as_ref())?))
}

/// Executes a command on an object.
///
/// # Errors
/// [`Error::Refused`], [`Error::Malformed`].
pub(crate) fn execute<C: Command>(
    nic: &dyn Provider,
    object: &dyn Object,
    command: &C,
) -> Result<C::Output, Error> {
    let mut answer = <C::Output as Response>::EMPTY;
    object.execute(command.encode().as_ref(), answer.as_mut());
    read::<C>(nic, answer.as_ref())
}

fn read<C: Command>(nic: &dyn Provider, answer: &[u8]) -> Result<C::Output, Error> {
    let (nic, command) = (nic.name(), C::OPCODE);
    <C::Output as Response>::decode(answer).map_err(|error| match error {
        DecodeError::Refused(error) => Error::Refused { nic, command, error },
        error => Error::Malformed { nic, command, error },
    })
}
