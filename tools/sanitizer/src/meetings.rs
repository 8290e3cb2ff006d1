//! Meetings: barriers and collective calls, where all members learn what the others knew on arrival.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::epoch::ActorId;

/// The ID of a meeting: a team, a grid, or the hosts of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub struct MeetingId(pub u64);

/// One call of all members.
#[derive(Debug, Default)]
struct Round {
    arrived: HashMap<u32, (ActorId, Clock)>,
    left: usize,
}

/// What a member knows when it leaves a call.
#[derive(Debug, Default)]
pub(crate) struct Departure {
    /// What it knew at its own arrival.
    pub(crate) own: Clock,
    /// What was known at its own arrival, and at those of the members that send it data.
    pub(crate) data: Clock,
    /// What was known at all arrivals.
    pub(crate) all: Clock,
}

#[derive(Debug, Default)]
struct Meeting {
    members: Vec<u32>,
    /// For each member, how many times it has arrived and departed.
    calls: HashMap<u32, (u64, u64)>,
    rounds: HashMap<u64, Round>,
}

#[derive(Debug, Default)]
pub(crate) struct Meetings {
    meetings: HashMap<MeetingId, Meeting>,
}

impl Meetings {
    /// Adds a meeting of `members`.
    pub(crate) fn define(&mut self, id: MeetingId, members: Vec<u32>) {
        self.meetings.insert(id, Meeting { members, ..Meeting::default() });
    }

    pub(crate) fn remove(&mut self, id: MeetingId) {
        self.meetings.remove(&id);
    }

    /// Records the arrival of a member that knows `clock`. Returns the actors of all members if this was the last
    /// arrival.
    pub(crate) fn arrive(
        &mut self,
        id: MeetingId,
        member: u32,
        (actor, clock): (ActorId, Clock),
    ) -> Vec<ActorId> {
        let Some(meeting) = self.meetings.get_mut(&id) else { return Vec::new() };
        let calls = meeting.calls.entry(member).or_default();
        let round = meeting.rounds.entry(calls.0).or_default();
        round.arrived.insert(member, (actor, clock));
        calls.0 += 1;
        let is_complete = round.arrived.len() == meeting.members.len();
        if is_complete { round.arrived.values().map(|(actor, _)| *actor).collect() } else { Vec::new() }
    }

    /// Returns the members that have not arrived in the current call of `member`.
    pub(crate) fn missing(&self, id: MeetingId, member: u32) -> Vec<u32> {
        let Some(meeting) = self.meetings.get(&id) else { return Vec::new() };
        let (_, round) = meeting.calls.get(&member).copied().unwrap_or_default();
        let has_arrived = |other: u32| meeting.calls.get(&other).is_some_and(|calls| calls.0 > round);
        meeting.members.iter().copied().filter(|&other| !has_arrived(other)).collect()
    }

    /// Records that a member leaves a call, which gives it the data of `root` or of all. Returns what was known at the
    /// arrivals.
    pub(crate) fn leave(&mut self, id: MeetingId, member: u32, root: Option<u32>) -> Departure {
        let Some(meeting) = self.meetings.get_mut(&id) else { return Departure::default() };
        let calls = meeting.calls.entry(member).or_default();
        let number = calls.1;
        calls.1 += 1;
        let Some(round) = meeting.rounds.get_mut(&number) else { return Departure::default() };
        let arrived =
            |other: u32| round.arrived.get(&other).map(|(_, clock)| clock.clone()).unwrap_or_default();
        let own = arrived(member);
        let all = Clock::union(round.arrived.values().map(|(_, clock)| clock));
        let data = root.map_or_else(|| all.clone(), |root| Clock::union([&own, &arrived(root)]));
        round.left += 1;
        if round.left == meeting.members.len() {
            meeting.rounds.remove(&number);
        }
        Departure { own, data, all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;

    const TEAM: MeetingId = MeetingId(3);

    fn arrive(meetings: &mut Meetings, member: u32, count: u32) -> usize {
        let actor = ActorId(member.into());
        let mut clock = Clock::default();
        clock.raise(Epoch { actor, count });
        meetings.arrive(TEAM, member, (actor, clock)).len()
    }

    #[test]
    fn members_learn_of_all_arrivals_of_their_own_call() {
        let mut meetings = Meetings::default();
        meetings.define(TEAM, vec![0, 1]);
        assert_eq!(arrive(&mut meetings, 0, 5), 0);
        assert_eq!(meetings.missing(TEAM, 0), [1]);
        assert_eq!(arrive(&mut meetings, 1, 7), 2);
        assert!(meetings.missing(TEAM, 0).is_empty());
        assert_eq!(meetings.leave(TEAM, 0, None).all.get(ActorId(1)), 7);
        assert_eq!(arrive(&mut meetings, 0, 6), 0);
        assert_eq!(meetings.missing(TEAM, 0), [1]);
        let late = meetings.leave(TEAM, 1, None).all;
        assert_eq!(late.get(ActorId(0)), 5, "the second call of member 0 is another meeting");
        meetings.remove(TEAM);
        assert_eq!(meetings.leave(TEAM, 0, None).all.get(ActorId(0)), 0);
    }
}
