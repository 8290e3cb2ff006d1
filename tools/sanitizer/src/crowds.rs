//! Compact records for reads of the same bytes by many actors, such as all threads of a grid.

use crate::access::{Access, CallId, Kind};
use crate::epoch::{ActorId, Epoch};
use crate::intervals::Bytes;
use crate::met::{Conflict, Met};

/// Maximum number of runs per page. The threads of a block mostly read in order, so most blocks need one run.
const MAX_RUNS: usize = 4096;

/// What all reads of a run have in common: kind, byte range and call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) kind: Kind,
    /// Offsets in the page of the first byte and past the last byte.
    pub(crate) range: (u8, u8),
    pub(crate) call: CallId,
}

/// The same read by actors with consecutive IDs, at steps with the same count.
#[derive(Clone, Copy, Debug)]
struct Run {
    member: Member,
    first: u64,
    actors: u32,
    count: u32,
}

impl Run {
    fn epochs(&self) -> impl Iterator<Item = Epoch> + use<> {
        let (first, count) = (self.first, self.count);
        (0..u64::from(self.actors)).map(move |i| Epoch { actor: ActorId(first + i), count })
    }
}

/// The reads of a page that have no individual record, because too many actors read the same bytes.
#[derive(Debug, Default)]
pub(crate) struct Crowds(Vec<Run>);

impl Crowds {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a read, which extends a run if the actor with the previous ID has made the same read.
    pub(crate) fn add(&mut self, member: Member, Epoch { actor: ActorId(actor), count }: Epoch) {
        let continues = |run: &&mut Run| {
            run.member == member && run.count == count && run.first + u64::from(run.actors) == actor
        };
        if let Some(run) = self.0.iter_mut().rev().find(continues) {
            run.actors += 1;
            return;
        }
        if self.0.len() == MAX_RUNS {
            self.0.remove(0);
        }
        self.0.push(Run { member, first: actor, actors: 1, count });
    }

    /// Reports to `met` the reads that race with a new access. A run is dropped if the access is ordered after all its
    /// reads.
    pub(crate) fn meet(
        &mut self,
        base: u64,
        (start, end): (u8, u8),
        access: &Access,
        knows: &impl Fn(Epoch) -> bool,
        met: &mut Met,
    ) {
        self.0.retain(|run| {
            let Member { kind, range: (from, to), call } = run.member;
            let common = (from.max(start), to.min(end));
            if common.0 >= common.1 {
                return true;
            }
            let bytes =
                |(from, to): (u8, u8)| Bytes { start: base + u64::from(from), end: base + u64::from(to) };
            let read = |epoch| Access::new(epoch, kind, bytes((from, to)), call);
            let mut epochs = run.epochs();
            let Some(first) = epochs.next() else { return false };
            let old = read(first);
            if !old.conflicts(access) {
                return true;
            }
            let unknown = run.epochs().find(|epoch| !knows(*epoch));
            if let Some(epoch) = unknown {
                met.add_conflict(Conflict { earlier: read(epoch), bytes: bytes(common) });
            }
            unknown.is_some() || !access.absorbs(&old) || common != (from, to)
        });
    }

    /// Drops the reads within a range, but keeps those that are partly outside.
    pub(crate) fn clear(&mut self, (start, end): (u8, u8)) {
        self.0.retain(|run| run.member.range.0 < start || run.member.range.1 > end);
    }

    /// Drops the runs whose reads all live actors know.
    pub(crate) fn settle(&mut self, has_settled: &impl Fn(Epoch) -> bool) {
        self.0.retain(|run| run.epochs().any(|epoch| !has_settled(epoch)));
    }
}
