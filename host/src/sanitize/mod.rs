//! The communication sanitizer of a job: it turns what PEs, streams and lanes tell into calls of the engine.
//!
//! One engine watches all PEs of a job, which are threads of this process. So the addresses of their memory are known to it,
//! and one lock gives their steps an order.
//!
//! | module | holds |
//! |---|---|
//! | `addresses` | the memory behind an address or an offset |
//! | `pe` | the steps of the host of a PE |
//! | `stream` | the order of launches on a stream |
//! | `launch` | the lanes of a launch, and their barriers |
//! | `lane` | the steps of a lane |
//! | `deadlock` | the search for waits that cannot end |
//! | `report` | the findings of a job, at its end |

mod addresses;
mod deadlock;
mod lane;
mod launch;
mod pe;
mod report;
mod stream;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use rushmem_base::lock;
use rushmem_device::Team;
use rushmem_sanitizer::{Actor, ActorId, Deadlock, Engine, MeetingId};

pub(crate) use self::addresses::Addresses;
pub(crate) use self::launch::{LaunchObserver, LaunchWatch};
pub(crate) use self::pe::{PeWatch, Seen};
pub(crate) use self::report::{check_supported, report};
pub(crate) use self::stream::StreamWatch;

/// The meeting of all hosts.
const HOSTS: MeetingId = MeetingId(0);

/// The sanitizer of a job.
#[derive(Debug)]
pub(crate) struct Sanitizer {
    /// The host of each PE.
    hosts: Vec<ActorId>,
    state: Mutex<State>,
}

/// The engine, and the meetings that it knows.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) engine: Engine,
    /// The teams of each PE, by slot.
    teams: HashMap<(u32, u32), TeamMeetings>,
    /// The meetings of each team, by generation, slot and first member.
    defined: HashMap<(u32, u32, Option<u32>), (MeetingId, MeetingId)>,
    /// The number of meetings so far.
    meetings: u64,
    /// Whether the job has failed for another reason.
    has_failed: bool,
    deadlock: Option<Deadlock>,
    /// A deadlock that counts if the deadline of a wait ends the job.
    suspected: Option<Deadlock>,
    ends: Vec<JobEnd>,
}

/// A function that ends the waits of a PE.
struct JobEnd(Box<dyn Fn(&str) + Send>);

impl fmt::Debug for JobEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobEnd")
    }
}

/// The meetings of a team.
#[derive(Clone, Debug)]
struct TeamMeetings {
    generation: u32,
    whole: MeetingId,
    split: MeetingId,
    members: Vec<u32>,
}

impl Sanitizer {
    /// Creates the sanitizer of a job of `n_pes` PEs.
    pub(crate) fn new(n_pes: u32) -> Arc<Self> {
        let mut engine = Engine::new();
        let hosts = (0..n_pes).map(|pe| engine.start(Actor::Host { pe, thread: 0 })).collect();
        engine.define_meeting(HOSTS, (0..n_pes).collect());
        let state = State {
            engine,
            teams: HashMap::new(),
            defined: HashMap::new(),
            meetings: 0,
            has_failed: false,
            deadlock: None,
            suspected: None,
            ends: Vec::new(),
        };
        Arc::new(Self { hosts, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Defines a meeting of `members`.
    fn define(&mut self, members: Vec<u32>) -> MeetingId {
        self.meetings += 1;
        let id = MeetingId(self.meetings);
        self.engine.define_meeting(id, members);
        id
    }

    /// Adds a team of `pe`. Its members add it one after the other.
    fn add_team(&mut self, pe: u32, team: Team, members: &[u32]) {
        let (slot, generation) = (team.slot(), team.generation());
        let key = (generation, slot, members.first().copied());
        let (whole, split) = match self.defined.get(&key) {
            Some(known) => *known,
            None => (self.define(members.to_vec()), self.define(members.to_vec())),
        };
        self.defined.insert(key, (whole, split));
        self.teams.insert((pe, slot), TeamMeetings { generation, whole, split, members: members.to_vec() });
    }

    /// Removes a team of `pe`.
    fn remove_team(&mut self, pe: u32, team: Team) {
        self.teams.remove(&(pe, team.slot()));
    }

    /// Returns the meetings of a team of `pe`, if it exists.
    fn team(&self, pe: u32, (slot, generation): (u32, u32)) -> Option<&TeamMeetings> {
        self.teams.get(&(pe, slot)).filter(|known| known.generation == generation)
    }
}
