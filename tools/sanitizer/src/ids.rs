//! Allocates IDs for actors, meetings and tokens without asking the engine.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::epoch::{ACTORS, ActorId};
use crate::meetings::MeetingId;
use crate::request::TokenId;

/// Allocates the IDs that a process uses in requests to the engine: of actors, meetings (barriers and teams) and tokens
/// (snapshots of vector clocks).
///
/// Each process has its own range, so it need not ask the engine. The first range belongs to the engine, which
/// allocates IDs for hosts, teams, fences and stores.
#[derive(Debug)]
pub struct Ids(AtomicU64);

impl Ids {
    /// Returns the allocator for the ID range of process `process` out of `processes`.
    pub fn of_process(process: u32, processes: u32) -> Self {
        let range = ACTORS / (u64::from(processes) + 1);
        Self(AtomicU64::new((u64::from(process) + 1) * range))
    }

    fn next(&self, count: u64) -> u64 {
        self.0.fetch_add(count, Ordering::Relaxed)
    }

    /// Allocates the ID of an operation.
    pub fn operation(&self) -> ActorId {
        ActorId(self.next(1))
    }

    /// Allocates `count` consecutive actor IDs, such as those of a block's threads.
    pub fn actors(&self, count: usize) -> Vec<ActorId> {
        let first = self.next(count as u64);
        (first..).take(count).map(ActorId).collect()
    }

    /// Allocates the ID of a meeting, such as a grid barrier.
    pub fn meeting(&self) -> MeetingId {
        MeetingId(self.next(1))
    }

    /// Allocates the ID of a vector clock snapshot ([`Token`](crate::Token)).
    pub fn token(&self) -> TokenId {
        TokenId(self.next(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_have_ranges_without_common_numbers() {
        let all: Vec<Ids> = (0..3).map(|process| Ids::of_process(process, 3)).collect();
        let firsts: Vec<u64> = all.iter().map(|ids| ids.operation().0).collect();
        assert!(firsts[0] > 1 << 32 && firsts.is_sorted() && firsts[2] + (1 << 32) < ACTORS);
        assert_eq!(all[1].actors(2), [1, 2].map(|i| ActorId(firsts[1] + i)));
        assert_eq!(all[1].meeting(), MeetingId(firsts[1] + 3));
    }
}
