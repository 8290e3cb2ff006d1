//! Empty hooks for builds without sanitizer and timeline. See `native.rs` for what they would report.

use crate::abi::CtxParts;
use crate::event::{Collective, Event};
use crate::group::Group;

/// Whether calls report to the sanitizer.
pub const ENABLED: bool = false;

pub(crate) struct Call;

#[derive(Clone, Copy)]
pub(crate) struct Ticket;

#[inline(always)]
pub(crate) fn kernel_begins(_parts: &CtxParts) {}

#[inline(always)]
pub(crate) fn kernel_ends() {}

#[inline(always)]
pub(crate) fn note(_name: &'static str, _event: Event) {}

#[inline(always)]
pub(crate) fn load(_name: &'static str, _address: u64, _bytes: u64) {}

#[inline(always)]
pub(crate) fn store(_name: &'static str, _address: u64, _bytes: u64) {}

#[inline(always)]
pub(crate) fn waits() {}

#[inline(always)]
pub(crate) fn sees(_value: u64) {}

#[inline(always)]
pub(crate) fn each(_name: &'static str, _count: u64, _event: impl Fn(u64) -> Event) {}

#[inline(always)]
pub(crate) fn call(_name: &'static str, _event: Event) -> Call {
    Call
}

#[inline(always)]
pub(crate) fn lead<G: Group>(_group: G, _name: &'static str, _event: Event) -> Call {
    Call
}

#[inline(always)]
pub(crate) fn lead_own<G: Group>(_group: G, _name: &'static str, _event: Event) -> Call {
    Call
}

#[inline(always)]
pub(crate) fn collective<G: Group>(_group: G, _name: &'static str, _collective: Collective) -> Call {
    Call
}

#[inline(always)]
pub(crate) fn grid<G: Group>(_block: G) -> Call {
    Call
}

#[inline(always)]
pub(crate) fn ticket<G: Group>(_group: G) -> Ticket {
    Ticket
}

impl Ticket {
    #[inline(always)]
    pub(crate) fn of(_context: u32, _pe: u32) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn complete(self, _name: &'static str) {}
}
