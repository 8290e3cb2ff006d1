//! Searches every order of steps, messages and losses of small jobs, with the state machine of the server and the
//! replies of each PE. Between them, messages arrive in order. In every order:
//!
//! - PEs that receive an epoch of the same number receive the same list, which contains them.
//! - If one PE receives the contributions to a call, the call fails on no PE. The contributions are those of the PEs
//!   of the epoch.
//! - No PE that is alive waits forever.
//! - After the first epoch, losses alone make no PE fail. A process that replaces a lost PE fails if all others finish or
//!   are lost before they take it in.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use rushmem_base::Pes;

use super::{JobState, Progress};
use crate::epoch::Epoch;
use crate::error::{Error, Failure};
use crate::replies::Replies;
use crate::wire::Message;

/// A call of a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Call {
    Form,
    Gather,
    Finish,
}

use Call::{Finish, Form, Gather};

/// A job to search.
struct Job {
    n: u32,
    /// The calls of each PE. If one fails for a survivable loss, the PE forms an epoch and repeats it.
    calls: &'static [Call],
    /// Most PEs that are lost.
    losses: u32,
    /// Most processes that replace lost PEs.
    replacements: u32,
    /// Most disturbances of each other kind: a PE finishes early, its deadline passes, or it exits the whole job.
    others: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum End {
    Finished,
    Lost,
    Failed,
}

#[derive(Clone, Debug, Default, Hash)]
struct Pe {
    replies: Replies,
    to_server: VecDeque<Message>,
    from_server: VecDeque<Message>,
    /// Index of the next call, or of the one that the PE is in.
    at: usize,
    /// Number of the PE's epoch.
    epoch: u32,
    /// Whether a loss must be repaired by an epoch before the next call.
    repairs: bool,
    /// Whether the PE replaces a lost one, and is in no epoch yet.
    replaces: bool,
    /// The call that the PE waits in.
    waits: Option<Call>,
    end: Option<End>,
}

#[derive(Clone, Debug, Hash)]
struct World {
    server: JobState,
    pes: Vec<Pe>,
    losses: u32,
    replacements: u32,
    others: u32,
    /// The list of PEs that PEs have got for each epoch.
    epochs: BTreeMap<u32, Vec<u32>>,
    /// For each epoch and index of a call, whether PEs have got the contributions or a loss.
    outcomes: BTreeMap<(u32, usize), bool>,
}

impl World {
    fn new(job: &Job) -> World {
        let mut server = JobState::new(job.n, None);
        for pe in 0..job.n {
            server.join(pe, job.n, "", "").unwrap();
        }
        let pes = vec![Pe::default(); job.n as usize];
        let &Job { losses, replacements, others, .. } = job;
        let (epochs, outcomes) = (BTreeMap::new(), BTreeMap::new());
        World { server, pes, losses, replacements, others, epochs, outcomes }
    }

    /// Returns all worlds that one action leads to.
    fn next(&self, job: &Job) -> Vec<World> {
        // These actions concern no other PE, so their order with the actions of others does not matter.
        if let Some(pe) = self.pes.iter().position(Pe::must_hear) {
            return vec![self.after(|world| world.hear(pe as u32))];
        }
        let finishes = |pe: &Pe| pe.end.is_none() && pe.waits.is_none() && pe.next_call(job) == Finish;
        if let Some(pe) = self.pes.iter().position(finishes) {
            return vec![self.after(|world| world.call(pe as u32, Finish))];
        }
        (0..job.n).flat_map(|pe| self.steps(pe, job).into_iter().chain(self.disturbances(pe))).collect()
    }

    /// Returns this world after an action.
    fn after(&self, action: impl FnOnce(&mut World)) -> World {
        let mut world = self.clone();
        action(&mut world);
        world
    }

    /// Returns the worlds after a step of a PE, or of the server for it.
    fn steps(&self, pe: u32, job: &Job) -> Vec<World> {
        let state = &self.pes[pe as usize];
        let mut worlds = Vec::new();
        if !state.to_server.is_empty() {
            worlds.push(self.after(|world| world.serve(pe)));
        }
        if state.end.is_none() && !state.from_server.is_empty() {
            worlds.push(self.after(|world| world.hear(pe)));
        }
        match state.waits {
            _ if state.end.is_some() => {}
            None => worlds.push(self.after(|world| world.call(pe, state.next_call(job)))),
            Some(call) if state.has_answer(call) => worlds.push(self.after(|world| world.answer(pe, call))),
            Some(_) => {}
        }
        worlds
    }

    /// Returns the worlds in which a PE is lost or otherwise disturbs the job.
    fn disturbances(&self, pe: u32) -> Vec<World> {
        let state = &self.pes[pe as usize];
        let mut worlds = Vec::new();
        let may_leave = state.end.is_none() && self.server.is_joined(pe);
        if self.losses > 0 && may_leave {
            worlds.push(self.after(|world| {
                world.losses -= 1;
                world.lose(pe, None);
            }));
        }
        if self.replacements > 0 && state.end == Some(End::Lost) {
            let mut world = self.clone();
            if world.server.join(pe, self.server.n_pes(), "", "").is_ok() {
                world.replacements -= 1;
                world.pes[pe as usize] = Pe { replaces: true, repairs: true, ..Pe::default() };
                worlds.push(world);
            }
        }
        if self.others == 0 || state.end.is_some() || state.replaces {
            return worlds;
        }
        let mut disturb = |action: &dyn Fn(&mut World)| {
            worlds.push(self.after(|world| {
                world.others -= 1;
                action(world);
            }));
        };
        match state.waits {
            None => disturb(&|world| world.call(pe, Finish)),
            Some(Form | Gather) => {
                let late = Message::GiveUp { waited_ms: 0 };
                disturb(&|world| world.pes[pe as usize].to_server.push_back(late.clone()));
            }
            Some(Finish) => {}
        }
        if may_leave {
            disturb(&|world| world.lose(pe, Some(1)));
        }
        worlds
    }

    /// The server handles a message of a PE.
    fn serve(&mut self, pe: u32) {
        let failed_before = self.server.failure().is_some();
        match self.pes[pe as usize].to_server.pop_front().unwrap() {
            Message::Gather { call, bytes } => {
                assert!(!self.server.is_waiting(pe), "{self:?}");
                match self.server.contribute(pe, &call, bytes) {
                    Progress::Failed(failure) if failed_before => self.tell(pe, Message::Failed(failure)),
                    progress => self.tell_progress(progress),
                }
            }
            Message::FormEpoch { .. } => {
                assert!(!self.server.is_waiting(pe), "{self:?}");
                let progress = self.server.form_epoch(pe);
                self.tell_progress(progress);
            }
            Message::GiveUp { .. } => {
                let failure = self.server.give_up(pe, Duration::ZERO);
                failure.into_iter().for_each(|failure| self.tell_all(&Message::Failed(failure)));
            }
            _ => {
                let progress = self.server.finish(pe);
                self.pes[pe as usize].from_server.push_back(Message::Left);
                self.tell_progress(progress);
                self.turn_away();
            }
        }
    }

    fn lose(&mut self, pe: u32, exit: Option<u8>) {
        let state = &mut self.pes[pe as usize];
        // A PE that dies before the server learns of it is one that takes no step in between. The server ignores messages
        // of a lost PE that arrive later.
        *state = Pe { end: Some(End::Lost), ..Pe::default() };
        let Some((lost, progress)) = self.server.lose(pe, "", exit) else { return };
        self.turn_away();
        self.tell_all(&Message::Lost(lost));
        self.tell_progress(progress);
    }

    fn turn_away(&mut self) {
        for pe in self.server.turn_away() {
            let failure = Failure::Left { call: String::new(), pes: Pes(Vec::new()) };
            self.pes[pe as usize].from_server.push_back(Message::Failed(failure));
        }
    }

    fn tell_progress(&mut self, progress: Progress) {
        match progress {
            Progress::Waiting => {}
            Progress::Done(parts) => self.tell_all(&Message::Gathered { parts }),
            Progress::Formed(epoch) => {
                // All members are between the same calls, of which they inform those that join.
                let member = epoch.pes.iter().find(|pe| !epoch.joined.contains(pe));
                let next = member.map(|&pe| &self.pes[pe as usize]);
                let next = next.map_or(0, |pe| pe.at + usize::from(!pe.repairs));
                epoch.joined.iter().for_each(|&pe| self.pes[pe as usize].at = next);
                self.tell_all(&Message::Epoch(epoch));
            }
            Progress::Failed(failure) => self.tell_all(&Message::Failed(failure)),
        }
    }

    fn tell_all(&mut self, message: &Message) {
        let is_final = message.is_final_failure();
        for pe in 0..self.server.n_pes() {
            if is_final || !self.server.is_replacing(pe) {
                self.tell(pe, message.clone());
            }
        }
    }

    fn tell(&mut self, pe: u32, message: Message) {
        let state = &mut self.pes[pe as usize];
        if self.server.is_joined(pe) && state.end.is_none() {
            state.from_server.push_back(message);
        }
    }

    /// A PE handles a message of the server.
    fn hear(&mut self, pe: u32) {
        let state = &mut self.pes[pe as usize];
        let message = state.from_server.pop_front().unwrap();
        state.replies.apply(message).unwrap();
    }

    /// A PE makes a call, or finds that it has failed.
    fn call(&mut self, pe: u32, call: Call) {
        let state = &mut self.pes[pe as usize];
        let failure = match call {
            Form => state.replies.final_failure(),
            Gather => state.replies.failure(),
            Finish => {
                state.replies.leave();
                None
            }
        };
        if let Some(failure) = failure.cloned() {
            return self.fail(pe, call, &failure);
        }
        state.waits = Some(call);
        state.to_server.push_back(match call {
            Form => Message::FormEpoch { admits: true },
            Gather => Message::Gather { call: String::new(), bytes: vec![pe as u8, state.at as u8] },
            Finish => Message::Finish,
        });
    }

    /// A PE takes the outcome of the call that it waits in.
    fn answer(&mut self, pe: u32, call: Call) {
        let state = &mut self.pes[pe as usize];
        state.waits = None;
        match call {
            Form => match state.replies.take_epoch().unwrap() {
                Ok(Epoch { number, pes, joined }) => {
                    assert_eq!(joined.contains(&pe), std::mem::take(&mut state.replaces));
                    assert!(number == state.epoch + 1 || joined.contains(&pe));
                    assert!(pes.contains(&pe), "PE {pe} is not in its epoch: {pes:?}");
                    state.epoch = number;
                    state.at += usize::from(!std::mem::take(&mut state.repairs));
                    assert_eq!(
                        *self.epochs.entry(number).or_insert_with(|| pes.clone()),
                        pes,
                        "epoch {number}"
                    );
                }
                Err(error) => self.fail(pe, call, &failure(error)),
            },
            Gather => match state.replies.take_gathered("").unwrap() {
                Ok(parts) => {
                    let at = state.at;
                    state.at += 1;
                    let epoch = state.epoch;
                    let part = |pe| {
                        if self.epochs[&epoch].contains(&pe) { vec![pe as u8, at as u8] } else { vec![] }
                    };
                    assert_eq!(parts, (0..parts.len() as u32).map(part).collect::<Vec<_>>(), "call {at}");
                    self.conclude(epoch, at, true);
                }
                Err(error) => self.fail(pe, call, &failure(error)),
            },
            Finish => state.end = Some(End::Finished),
        }
    }

    fn fail(&mut self, pe: u32, call: Call, failure: &Failure) {
        let state = &mut self.pes[pe as usize];
        if !failure.is_survivable() {
            state.end = Some(End::Failed);
            return;
        }
        assert_eq!(call, Gather);
        state.repairs = true;
        let (epoch, at) = (state.epoch, state.at);
        self.conclude(epoch, at, false);
    }

    /// Checks that a call has the same outcome on all PEs.
    fn conclude(&mut self, epoch: u32, at: usize, gathered: bool) {
        assert_eq!(
            *self.outcomes.entry((epoch, at)).or_insert(gathered),
            gathered,
            "call {at} of epoch {epoch}"
        );
    }
}

impl Pe {
    fn next_call(&self, job: &Job) -> Call {
        if self.repairs { Form } else { job.calls[self.at] }
    }

    fn must_hear(&self) -> bool {
        let waits = self.waits.is_some_and(|call| !self.has_answer(call));
        waits && self.end.is_none() && !self.from_server.is_empty()
    }

    fn has_answer(&self, call: Call) -> bool {
        let mut replies = self.replies.clone();
        match call {
            Form => replies.take_epoch().is_some(),
            Gather => replies.take_gathered("").is_some(),
            Finish => replies.left().is_some(),
        }
    }
}

fn failure(error: Error) -> Failure {
    let Error::Failed(failure) = error else { panic!("{error}") };
    failure
}

/// Checks each world that the job can reach. In those without a successor, each PE must have an answer to its last
/// call. Returns the largest number of an epoch.
fn search(job: &Job) -> u32 {
    let fingerprint = |world: &World| {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        hasher.finish()
    };
    let first = World::new(job);
    let mut seen = HashSet::from([fingerprint(&first)]);
    let mut open = vec![first];
    let mut last_epoch = 0;
    while let Some(world) = open.pop() {
        let next = world.next(job);
        if next.is_empty() {
            for (pe, state) in world.pes.iter().enumerate() {
                let end = state.end.as_ref().unwrap_or_else(|| panic!("PE {pe} waits forever: {world:?}"));
                let may_fail =
                    state.replaces || world.server.epoch().number == 0 || world.others < job.others;
                assert!(*end != End::Failed || may_fail, "PE {pe} failed: {world:?}");
            }
            last_epoch = last_epoch.max(world.server.epoch().number);
        }
        open.extend(next.into_iter().filter(|world| seen.insert(fingerprint(world))));
    }
    last_epoch
}

const SHORT: &[Call] = &[Form, Gather, Finish];
const LONG: &[Call] = &[Form, Gather, Form, Gather, Finish];

#[test]
fn three_pes_survive_losses() {
    assert_eq!(search(&Job { n: 3, calls: LONG, losses: 2, replacements: 0, others: 0 }), 4);
}

#[test]
fn four_pes_survive_losses() {
    assert_eq!(search(&Job { n: 4, calls: SHORT, losses: 3, replacements: 0, others: 0 }), 4);
}

#[test]
fn lost_pes_are_replaced() {
    assert_eq!(search(&Job { n: 2, calls: LONG, losses: 2, replacements: 2, others: 0 }), 4);
    assert_eq!(search(&Job { n: 3, calls: LONG, losses: 2, replacements: 1, others: 0 }), 4);
    assert_eq!(search(&Job { n: 2, calls: LONG, losses: 1, replacements: 1, others: 1 }), 3);
}

#[test]
fn every_pe_learns_of_every_other_failure() {
    assert_eq!(search(&Job { n: 3, calls: SHORT, losses: 1, replacements: 0, others: 1 }), 2);
    assert_eq!(search(&Job { n: 2, calls: LONG, losses: 1, replacements: 0, others: 2 }), 3);
}
