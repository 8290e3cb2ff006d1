//! Tracks meetings, which are barriers and collective calls, where members learn what others knew on arrival.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::epoch::ActorId;

/// ID of a meeting: the collective calls of a team, the barrier of a grid, or the collective calls of all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub struct MeetingId(pub u64);

/// One collective call, in which each member arrives and leaves once.
#[derive(Debug, Default)]
struct Round {
    arrived: HashMap<u32, (ActorId, Clock)>,
    left: usize,
}

/// The vector clocks that a member needs when it leaves a collective call.
#[derive(Debug, Default)]
pub(crate) struct Departure {
    /// Vector clock of the member at its own arrival.
    pub(crate) own: Clock,
    /// Maximum of the vector clocks of the member and of those that send it data, at their arrivals.
    pub(crate) data: Clock,
    /// Maximum of the vector clocks of all members at their arrivals.
    pub(crate) all: Clock,
}

#[derive(Debug, Default)]
struct Meeting {
    members: Vec<u32>,
    /// For each member, the number of calls at which it has arrived, and the number that it has left.
    calls: HashMap<u32, (u64, u64)>,
    rounds: HashMap<u64, Round>,
}

#[derive(Debug, Default)]
pub(crate) struct Meetings {
    meetings: HashMap<MeetingId, Meeting>,
}

impl Meetings {
    pub(crate) fn define(&mut self, id: MeetingId, members: Vec<u32>) {
        self.meetings.insert(id, Meeting { members, ..Meeting::default() });
    }

    pub(crate) fn remove(&mut self, id: MeetingId) {
        self.meetings.remove(&id);
    }

    /// Records that a member arrives with vector clock `clock`. Returns the actors of all members if this is the last
    /// arrival, and none otherwise.
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

    /// Returns the members that have not arrived at the call in which `member` waits.
    pub(crate) fn missing(&self, id: MeetingId, member: u32) -> Vec<u32> {
        let Some(meeting) = self.meetings.get(&id) else { return Vec::new() };
        let (_, round) = meeting.calls.get(&member).copied().unwrap_or_default();
        let has_arrived = |other: u32| meeting.calls.get(&other).is_some_and(|calls| calls.0 > round);
        meeting.members.iter().copied().filter(|&other| !has_arrived(other)).collect()
    }

    /// Records that a member leaves a call and takes the data of `root`, or of all members. Returns their vector clocks
    /// on arrival.
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
