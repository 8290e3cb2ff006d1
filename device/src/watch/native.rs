//! Hooks that report the calls of a lane to its sanitizer watcher.

use core::panic::Location;

use crate::arch;
use crate::event::{Access, Collective, Event};
use crate::group::Group;
use crate::scope::FenceScope;

pub(crate) use super::off::{kernel_begins, kernel_ends};

/// Whether calls report to the sanitizer.
pub const ENABLED: bool = true;

/// Guard of a call that has been reported to the watcher. Dropping it reports the return of the call.
pub(crate) struct Call(());

impl Drop for Call {
    fn drop(&mut self) {
        arch::watched(|watcher| watcher.end());
    }
}

/// Guard of a call that all threads of a group make together. The threads synchronise before they report its return.
pub(crate) struct Together<G: Group> {
    group: Option<G>,
    /// Whether this thread reports the call for the group. It then reports the return before the others, so they get
    /// the order that the call establishes.
    tells: bool,
}

impl<G: Group> Drop for Together<G> {
    fn drop(&mut self) {
        let Some(group) = self.group else { return };
        // All lanes of a warp must synchronise at the same line.
        if self.tells {
            arch::watched(|watcher| watcher.end());
        }
        group.sync();
        if !self.tells {
            arch::watched(|watcher| watcher.end());
        }
    }
}

/// Identifies operations that have been reported to the watcher, to report their completion later.
#[derive(Clone, Copy)]
pub(crate) struct Ticket(u64);

/// Reports a call and its return, without nested calls.
#[track_caller]
pub(crate) fn note(name: &'static str, event: Event) {
    let site = Location::caller();
    arch::watched(|watcher| {
        watcher.begin(name, event, site);
        watcher.end();
    });
}

/// Reports a plain load to the watcher.
#[track_caller]
pub(crate) fn load(name: &'static str, address: u64, bytes: u64) {
    access(name, Access { is_store: false, address, bytes }, Location::caller());
}

/// Reports a plain store to the watcher.
#[track_caller]
pub(crate) fn store(name: &'static str, address: u64, bytes: u64) {
    access(name, Access { is_store: true, address, bytes }, Location::caller());
}

/// Reports a plain access, and yields to other lanes if the watcher asks for it.
fn access(name: &'static str, access: Access, site: &'static Location<'static>) {
    if arch::watched(|watcher| watcher.access(name, access, site)) == Some(true) {
        arch::pass(site);
    }
}

/// Reports that the lane is still waiting in a call.
pub(crate) fn waits() {
    arch::watched(|watcher| watcher.waits());
}

/// Reports the value of the word that the lane waits for.
pub(crate) fn sees(value: u64) {
    arch::watched(|watcher| watcher.sees(value));
}

/// Reports `count` steps of the call `name`, if there is a watcher.
#[track_caller]
pub(crate) fn each(name: &'static str, count: u64, event: impl Fn(u64) -> Event) {
    if arch::watched(|_| ()).is_some() {
        (0..count).for_each(|i| note(name, event(i)));
    }
}

/// Reports the start of a call. Dropping the guard reports its return.
#[track_caller]
pub(crate) fn call(name: &'static str, event: Event) -> Call {
    let site = Location::caller();
    arch::watched(|watcher| watcher.begin(name, event, site));
    Call(())
}

/// Reports the start of a call that the leader makes for the group. Other threads report nothing.
#[track_caller]
pub(crate) fn lead<G: Group>(group: G, name: &'static str, event: Event) -> Option<Call> {
    if group.leader() { Some(call(name, event)) } else { None }
}

/// Reports the start of an ordering call of the whole group. The leader reports `event`, each other thread its own
/// part.
#[track_caller]
pub(crate) fn lead_own<G: Group>(group: G, name: &'static str, event: Event) -> Call {
    let own = Event::OwnOrder { acquires: false, scope: FenceScope::System };
    call(name, if group.leader() { event } else { own })
}

/// Reports the start of a collective call by all threads of a group.
#[track_caller]
pub(crate) fn collective<G: Group>(group: G, name: &'static str, collective: Collective) -> Together<G> {
    if collective.completes.is_some() {
        note(name, Event::OwnStores);
    }
    together(group, name, Event::Collective(collective))
}

/// Reports the start of a barrier of the grid.
#[track_caller]
pub(crate) fn grid<G: Group>(block: G) -> Together<G> {
    together(block, "sync_grid", Event::Grid)
}

/// Reports the start of a call that a group makes together, once all its threads have arrived. The group's leader
/// reports `event`, or in a call of the whole grid the leader of block 0; the others report their own part.
#[track_caller]
fn together<G: Group>(group: G, name: &'static str, event: Event) -> Together<G> {
    let site = Location::caller();
    if arch::watched(|_| ()).is_none() {
        return Together { group: None, tells: false };
    }
    group.sync();
    let tells = group.leader() && group.channel() == 0;
    let event = match event {
        event if tells => event,
        Event::Collective(collective) => Event::Member(collective),
        _ => Event::OwnOrder { acquires: true, scope: FenceScope::Gpu },
    };
    arch::watched(|watcher| watcher.begin(name, event, site));
    Together { group: Some(group), tells }
}

/// Returns the ticket of the last operation of the group's leader.
pub(crate) fn ticket<G: Group>(group: G) -> Ticket {
    let Some(mine) = arch::watched(|watcher| if group.leader() { watcher.ticket() } else { 0 }) else {
        return Ticket(0);
    };
    Ticket(group.broadcast(mine))
}

impl Ticket {
    /// Returns a ticket for all earlier operations of a context to `pe`.
    pub(crate) fn of(context: u32, pe: u32) -> Self {
        Self(arch::watched(|watcher| watcher.ticket_of(context, pe)).unwrap_or(0))
    }

    /// Reports that the operations of this ticket are complete.
    #[track_caller]
    pub(crate) fn complete(self, name: &'static str) {
        note(name, Event::Complete(self.0));
    }
}
