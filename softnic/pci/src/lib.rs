//! The software ConnectX as a PCI device: the drivers of an operating system bind to it, in a virtual machine.
//!
//! A [`Function`] is what the driver sees: an initialization segment and doorbell pages in BAR 0, a command queue, event
//! queues and MSI-X interrupts. It decodes and executes the commands that concern itself. All others are executed by
//! the [adapter](rushmem_softnic::Nic), whose objects also serve libmlx5. [`vfio_user`] attaches a function to a virtual
//! machine of QEMU.
//!
//! | to | use |
//! |---|---|
//! | serve a virtual machine | [`vfio_user::Server`] |
//! | drive a function without one | [`Function::new`] with a [`GuestMemory`] and [`Interrupts`] |
//!
//! A driver reaches only its own memory and objects, of which it can have a limited number. It shares the threads of the
//! adapter with the adapter's other users, so it can slow them down. The process on the other side of the socket, such as
//! QEMU, is trusted not to truncate the files of its guest's memory.
#![deny(unsafe_code)]

mod command;
mod config_space;
mod eq;
mod events;
mod firmware;
mod function;
mod guest;
mod refuse;
mod segment;
mod users;
pub mod vfio_user;

pub use config_space::Identity;
pub use eq::Interrupts;
pub use function::{Count, Function, Region};
pub use guest::{GuestMemory, MapError};

/// Size of BAR 0, in bytes. Most of it are doorbell pages.
pub const BAR_BYTES: u64 = 32 << 20;

#[cfg(any(test, feature = "fuzz"))]
mod driver;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod tests;
