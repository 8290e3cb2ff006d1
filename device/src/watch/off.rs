//! Empty hooks.

use crate::abi::CtxParts;
use crate::event::{Collective, Event};
use crate::group::Group;

/// Whether calls tell the sanitizer what they do.
pub const ENABLED: bool = false;

/// A call of the program.
pub(crate) struct Call;

/// The operations that a handle stands for.
#[derive(Clone, Copy)]
pub(crate) struct Ticket;

/// Begins the kernel in this thread.
#[inline(always)]
pub(crate) fn kernel_begins(_parts: &CtxParts) {}

/// Ends the kernel in this thread.
#[inline(always)]
pub(crate) fn kernel_ends() {}

/// Notes a call without calls inside.
#[inline(always)]
pub(crate) fn note(_name: &'static str, _event: Event) {}

/// Notes a plain load.
#[inline(always)]
pub(crate) fn load(_name: &'static str, _address: u64, _bytes: u64) {}

/// Notes a plain store.
#[inline(always)]
pub(crate) fn store(_name: &'static str, _address: u64, _bytes: u64) {}

/// Notes that the lane still waits in a call.
#[inline(always)]
pub(crate) fn waits() {}

/// Records the value of the word that the lane waits for.
#[inline(always)]
pub(crate) fn sees(_value: u64) {}

/// Notes `count` steps of a call.
#[inline(always)]
pub(crate) fn each(_name: &'static str, _count: u64, _event: impl Fn(u64) -> Event) {}

/// Begins a call.
#[inline(always)]
pub(crate) fn call(_name: &'static str, _event: Event) -> Call {
    Call
}

/// Begins a call that the leader of the group makes.
#[inline(always)]
pub(crate) fn lead<G: Group>(_group: G, _name: &'static str, _event: Event) -> Call {
    Call
}

/// Begins a call of the whole group. The leader tells of the context, the others of their own stores.
#[inline(always)]
pub(crate) fn lead_own<G: Group>(_group: G, _name: &'static str, _event: Event) -> Call {
    Call
}

/// Begins a collective call.
#[inline(always)]
pub(crate) fn collective<G: Group>(_group: G, _name: &'static str, _collective: Collective) -> Call {
    Call
}

/// Begins a barrier of the grid.
#[inline(always)]
pub(crate) fn grid<G: Group>(_block: G) -> Call {
    Call
}

/// Returns the ticket of the group's last operation.
#[inline(always)]
pub(crate) fn ticket<G: Group>(_group: G) -> Ticket {
    Ticket
}

impl Ticket {
    /// Returns a ticket for all earlier operations of a context to a PE.
    #[inline(always)]
    pub(crate) fn of(_context: u32, _pe: u32) -> Self {
        Self
    }

    /// Notes that the operations are complete.
    #[inline(always)]
    pub(crate) fn complete(self, _name: &'static str) {}
}
