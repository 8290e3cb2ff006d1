//! The state machine of a job: which PEs have joined, are in a collective call, or have left, and which of them form
//! the current epoch.
//!
//! It has no clock and no I/O. [`Threads`](crate::Threads) and [`Server`](crate::Server) drive the same machine, so PEs
//! in threads and PEs in processes behave alike.

use std::collections::BTreeSet;
use std::time::Duration;

use rushmem_base::Pes;

use crate::epoch::Epoch;
use crate::error::{Failure, NONE_LEFT, PeerLost, START};

/// Name of the call that forms an epoch, in failures.
pub(crate) const FORM_EPOCH: &str = "form_epoch";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum MemberState {
    Absent,
    Joined {
        build: String,
        origin: String,
    },
    Finished,
    /// If `survivable`, the job continues without the PE.
    Lost {
        survivable: bool,
    },
}

impl MemberState {
    /// Returns whether the PE has finished, or was lost without making the job fail.
    fn is_done(&self) -> bool {
        matches!(self, MemberState::Finished | MemberState::Lost { survivable: true })
    }
}

/// Bytes that a PE passed to the collective call it is waiting in, and the name of that call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Contribution {
    call: String,
    bytes: Vec<u8>,
}

/// A collective call that is complete, with the contributions of all PEs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PastCall {
    pub(crate) call: String,
    pub(crate) parts: Vec<Vec<u8>>,
}

/// What the step of one PE means for all PEs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing completes or fails.
    Waiting,
    /// The collective call is complete. Contributions are in PE order.
    Done(Vec<Vec<u8>>),
    /// The PEs of this epoch have formed it.
    Formed(Epoch),
    /// The job has failed, through this step or earlier.
    Failed(Failure),
}

/// The reason why a process may not join.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The process that joins is at fault. The job continues without it.
    Reason(String),
    /// The job has failed, through this attempt to join or earlier.
    Failed(Failure),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct JobState {
    /// The PE that runs the job's server, unless the launcher does. The job cannot continue without it.
    host: Option<u32>,
    members: Vec<MemberState>,
    round: Vec<Option<Contribution>>,
    /// PEs that wait for the next epoch.
    forming: BTreeSet<u32>,
    /// PEs whose processes replace lost ones, until they are in an epoch.
    replacing: BTreeSet<u32>,
    /// Those of `replacing` that wait for the next epoch.
    ready: BTreeSet<u32>,
    /// Whether the next epoch has none of `ready`.
    is_barred: bool,
    /// The collective calls of the start, with the contributions to each. `None` once it is known that the job does not
    /// survive losses.
    start: Option<Vec<PastCall>>,
    /// The current epoch. Number 0, with all PEs, stands for the time before the first.
    epoch: Epoch,
    failure: Option<Failure>,
}

impl JobState {
    pub(crate) fn new(n_pes: u32, host: Option<u32>) -> JobState {
        JobState {
            host,
            members: vec![MemberState::Absent; n_pes as usize],
            round: vec![None; n_pes as usize],
            forming: BTreeSet::new(),
            replacing: BTreeSet::new(),
            ready: BTreeSet::new(),
            is_barred: false,
            start: Some(Vec::new()),
            epoch: Epoch { number: 0, pes: (0..n_pes).collect(), joined: Vec::new() },
            failure: None,
        }
    }

    /// Returns the next job of the same processes, which no PE has joined yet.
    pub(crate) fn next(&self) -> JobState {
        JobState::new(self.n_pes(), self.host)
    }

    pub(crate) fn n_pes(&self) -> u32 {
        self.members.len() as u32
    }

    /// Returns the failure of all collective calls, except of those that form an epoch if it is survivable.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Returns the failure if it is final: the next epoch does not clear it.
    pub(crate) fn final_failure(&self) -> Option<&Failure> {
        self.failure.as_ref().filter(|failure| !failure.is_survivable())
    }

    /// Returns the last epoch. Its number is 0 before the first.
    pub(crate) fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Returns whether PEs have formed an epoch, so the job survives losses.
    fn is_live(&self) -> bool {
        self.epoch.number > 0
    }

    /// Returns the PEs of the epoch that may be lost without the job: all that have not left, except for the one that
    /// runs the server. None before the first epoch.
    pub(crate) fn watched(&self) -> Vec<u32> {
        let is_watched = |pe: &u32| self.is_live() && self.is_member(*pe) && self.host != Some(*pe);
        self.epoch.pes.iter().copied().filter(is_watched).collect()
    }

    /// Adds a PE that expects `n_pes` PEs to the job. `origin` describes its process in error messages.
    pub(crate) fn join(&mut self, pe: u32, n_pes: u32, build: &str, origin: &str) -> Result<(), Refusal> {
        if n_pes != self.n_pes() {
            let ours = self.n_pes();
            return Err(Refusal::Reason(format!(
                "this job has {ours} PEs, and the process that joins as PE {pe} expects {n_pes}; it belongs to another \
                 job"
            )));
        }
        match self.members.get(pe as usize) {
            None => {
                let reason = format!("there is no PE {pe}: this job has {n_pes} PEs, numbered from 0");
                return Err(Refusal::Reason(reason));
            }
            Some(MemberState::Joined { origin: other, .. }) => {
                let reason = format!(
                    "two processes join as PE {pe}: first {other}, then {origin}; give each process its own number"
                );
                return Err(Refusal::Reason(reason));
            }
            Some(MemberState::Lost { survivable: true })
                if self.final_failure().is_none() && !self.has_members() =>
            {
                return Err(Refusal::Reason(format!("PE {pe} was lost: {NONE_LEFT}")));
            }
            Some(MemberState::Finished) if self.final_failure().is_none() => {
                let others = self.pes_where(|member| !member.is_done());
                return Err(Refusal::Reason(format!(
                    "PE {pe} joins the next job of these processes, but {others} did not finish the last one"
                )));
            }
            Some(MemberState::Absent | MemberState::Lost { .. } | MemberState::Finished) => {}
        }
        let replaces = self.is_lost(pe);
        if let Some(failure) = if replaces { self.final_failure() } else { self.failure() } {
            return Err(Refusal::Failed(failure.clone()));
        }
        let other = self.members.iter().zip(0..).find_map(|(member, other)| match member {
            MemberState::Joined { build: theirs, .. } if theirs != build => Some((other, theirs.clone())),
            _ => None,
        });
        if let Some((first_pe, first_build)) = other {
            if replaces {
                let reason = format!("PE {first_pe} is build {first_build}, and PE {pe} is build {build}");
                return Err(Refusal::Reason(reason));
            }
            let failure = Failure::Builds { first_pe, first_build, pe, build: build.into() };
            return Err(Refusal::Failed(self.fail(failure)));
        }
        self.members[pe as usize] = MemberState::Joined { build: build.into(), origin: origin.into() };
        if replaces {
            self.replacing.insert(pe);
        }
        Ok(())
    }

    /// Returns the collective calls of the start of the job, which the process of PE `pe` repeats without the others, if it
    /// replaces a lost one.
    pub(crate) fn start_for(&self, pe: u32) -> Option<&[PastCall]> {
        self.start.as_deref().filter(|_| self.is_replacing(pe))
    }

    /// Returns whether the process of this PE replaces a lost one, and is in no epoch yet.
    pub(crate) fn is_replacing(&self, pe: u32) -> bool {
        self.replacing.contains(&pe)
    }

    /// Returns whether this PE takes part in the collective calls of the others: it has joined, has not left, and does not
    /// wait to replace a lost one.
    fn is_member(&self, pe: u32) -> bool {
        self.is_joined(pe) && !self.is_replacing(pe)
    }

    fn has_members(&self) -> bool {
        (0..self.n_pes()).any(|pe| self.is_member(pe))
    }

    /// Removes the PEs that wait to replace lost ones, if no PE is left that could take them in. Returns them.
    pub(crate) fn turn_away(&mut self) -> BTreeSet<u32> {
        if self.replacing.is_empty() || self.has_members() {
            return BTreeSet::new();
        }
        let away = std::mem::take(&mut self.replacing);
        away.iter().for_each(|&pe| self.lose_replacement(pe));
        away
    }

    fn lose_replacement(&mut self, pe: u32) {
        self.members[pe as usize] = MemberState::Lost { survivable: true };
        self.ready.remove(&pe);
    }

    /// Returns whether this PE is in a collective call.
    pub(crate) fn is_waiting(&self, pe: u32) -> bool {
        self.round[pe as usize].is_some() || self.forming.contains(&pe) || self.ready.contains(&pe)
    }

    /// Returns whether this PE has joined and is neither finished nor lost.
    pub(crate) fn is_joined(&self, pe: u32) -> bool {
        matches!(self.members[pe as usize], MemberState::Joined { .. })
    }

    /// Returns whether the job continues without this PE, which was lost. Its process may join the next job of the same
    /// processes, but not start it.
    pub(crate) fn is_lost(&self, pe: u32) -> bool {
        self.members.get(pe as usize) == Some(&MemberState::Lost { survivable: true })
    }

    /// Returns whether this PE has not joined yet and has not been lost.
    pub(crate) fn is_absent(&self, pe: u32) -> bool {
        self.members[pe as usize] == MemberState::Absent
    }

    /// Returns whether this PE has finished the job while others have not. To join the next job, it must wait for them.
    pub(crate) fn is_early(&self, pe: u32) -> bool {
        let finished = self.members.get(pe as usize) == Some(&MemberState::Finished);
        finished && self.final_failure().is_none() && !self.is_over()
    }

    /// Returns whether all PEs have finished, except for those without which the job went on. The same processes may
    /// then start another job.
    pub(crate) fn is_over(&self) -> bool {
        self.members.contains(&MemberState::Finished) && self.members.iter().all(MemberState::is_done)
    }

    /// Returns the PEs that still need the job's server: all that are neither finished nor lost. After a failure, PEs
    /// that have not joined are not expected any more.
    pub(crate) fn present(&self) -> Pes {
        let expected = self.final_failure().is_none();
        self.pes_where(|member| match member {
            MemberState::Joined { .. } => true,
            MemberState::Absent => expected,
            MemberState::Finished | MemberState::Lost { .. } => false,
        })
    }

    /// Returns the PEs that have joined and not left, each with the description of its process that it gave to `join`.
    pub(crate) fn origins(&self) -> Vec<(u32, String)> {
        let origin = |(pe, member): (u32, &MemberState)| match member {
            MemberState::Joined { origin, .. } => Some((pe, origin.clone())),
            _ => None,
        };
        (0..).zip(&self.members).filter_map(origin).collect()
    }

    /// Records that a PE has entered a collective call. The PE must not be waiting in another call. Does nothing if it
    /// has left the job, or is not in an epoch yet.
    pub(crate) fn contribute(&mut self, pe: u32, call: &str, bytes: Vec<u8>) -> Progress {
        if !self.is_member(pe) {
            return Progress::Waiting;
        }
        if let Some(failure) = &self.failure {
            return Progress::Failed(failure.clone());
        }
        self.round[pe as usize] = Some(Contribution { call: call.into(), bytes });

        let finished = |pe: &u32| self.members[*pe as usize] == MemberState::Finished;
        let left = Pes(self.epoch.pes.iter().copied().filter(finished).collect());
        if !left.0.is_empty() {
            return Progress::Failed(self.fail(Failure::Left { call: call.into(), pes: left }));
        }
        if !self.forming.is_empty() || self.round.iter().flatten().any(|part| part.call != call) {
            let calls = self.calls();
            return Progress::Failed(self.fail(Failure::Mismatch { calls }));
        }
        if self.missing().0.is_empty() {
            let bytes =
                |part: &mut Option<Contribution>| part.take().map_or_else(Vec::new, |part| part.bytes);
            let parts: Vec<_> = self.round.iter_mut().map(bytes).collect();
            self.note_start(call, &parts);
            return Progress::Done(parts);
        }
        Progress::Waiting
    }

    /// Keeps the contributions to a call of the start for processes that join later.
    fn note_start(&mut self, call: &str, parts: &[Vec<u8>]) {
        let is_live = self.is_live();
        let Some(start) = self.start.as_mut().filter(|_| !is_live) else { return };
        if start.last().is_some_and(|last| last.call.contains(START)) {
            // The PEs did not form an epoch, so the job has fixed membership.
            self.start = None;
        } else {
            start.push(PastCall { call: call.into(), parts: parts.to_vec() });
        }
    }

    /// Records that a PE waits for the next epoch. The PE must not be waiting in another call. Does nothing if it has
    /// left the job.
    pub(crate) fn form_epoch(&mut self, pe: u32) -> Progress {
        if !self.is_joined(pe) {
            return Progress::Waiting;
        }
        if let Some(failure) = self.final_failure() {
            return Progress::Failed(failure.clone());
        }
        if self.is_replacing(pe) {
            self.ready.insert(pe);
            return Progress::Waiting;
        }
        self.forming.insert(pe);
        // After a loss, no PE is in a call: it has failed, and later ones fail at once.
        if self.round.iter().any(Option::is_some) {
            let calls = self.calls();
            return Progress::Failed(self.fail(Failure::Mismatch { calls }));
        }
        let left = self.pes_where(|member| *member == MemberState::Finished);
        if !self.is_live() && !left.0.is_empty() {
            return Progress::Failed(self.fail(Failure::Left { call: FORM_EPOCH.into(), pes: left }));
        }
        self.complete_epoch()
    }

    /// Keeps processes that replace lost PEs out of the next epoch.
    pub(crate) fn bar(&mut self) {
        self.is_barred = true;
    }

    /// Forms the next epoch if all PEs that live wait for it.
    fn complete_epoch(&mut self) -> Progress {
        if self.forming.is_empty() || self.final_failure().is_some() || !self.not_forming().0.is_empty() {
            return Progress::Waiting;
        }
        // Only after an epoch without the lost PE, so no PE has its successor before it knows of the loss.
        let before = &self.epoch.pes;
        let is_barred = std::mem::take(&mut self.is_barred);
        let may_join = |pe: &u32| !is_barred && before.binary_search(pe).is_err();
        let joined: BTreeSet<u32> = self.ready.iter().copied().filter(may_join).collect();
        self.ready.retain(|pe| !joined.contains(pe));
        self.replacing.retain(|pe| !joined.contains(pe));
        let mut pes = std::mem::take(&mut self.forming);
        pes.extend(&joined);
        let number = self.epoch.number + 1;
        self.epoch = Epoch { number, pes: pes.into_iter().collect(), joined: joined.into_iter().collect() };
        self.failure = None;
        Progress::Formed(self.epoch.clone())
    }

    /// Fails the call of a PE whose deadline has passed. Returns `None` if the call has just completed, or has no deadline
    /// because the PE waits to replace a lost one.
    pub(crate) fn give_up(&mut self, pe: u32, waited: Duration) -> Option<Failure> {
        if self.is_replacing(pe) {
            return None;
        }
        let forms = self.forming.contains(&pe);
        if let Some(failure) = if forms { self.final_failure() } else { self.failure() } {
            return Some(failure.clone());
        }
        let (call, missing) = if forms {
            (FORM_EPOCH.into(), self.not_forming())
        } else {
            (self.round[pe as usize].as_ref()?.call.clone(), self.missing())
        };
        let n_pes = self.n_pes();
        Some(self.fail(Failure::Missing { call, waited, missing, n_pes }))
    }

    /// Marks a PE as lost, which fails the calls of all PEs, and may complete the next epoch. Returns `None` if it has
    /// already finished or been lost, or if its process was to replace a lost one and the others do not know it yet.
    pub(crate) fn lose(&mut self, pe: u32, reason: &str, exit: Option<u8>) -> Option<(PeerLost, Progress)> {
        if matches!(self.members[pe as usize], MemberState::Finished | MemberState::Lost { .. }) {
            return None;
        }
        if self.replacing.remove(&pe) {
            self.lose_replacement(pe);
            return None;
        }
        let survivable =
            self.is_live() && exit.is_none() && self.host != Some(pe) && self.final_failure().is_none();
        self.members[pe as usize] = MemberState::Lost { survivable };
        let lost = PeerLost { pe: Some(pe), reason: reason.into(), exit, survivable };
        self.fail(Failure::Lost(lost.clone()));
        if !survivable {
            return Some((lost, Progress::Waiting));
        }
        self.round.fill(None);
        self.forming.remove(&pe);
        Some((lost, self.complete_epoch()))
    }

    /// Marks a PE as finished. Fails if another PE is in a call that can no longer complete. May complete the next
    /// epoch.
    pub(crate) fn finish(&mut self, pe: u32) -> Progress {
        if !self.is_member(pe) {
            return Progress::Waiting;
        }
        self.members[pe as usize] = MemberState::Finished;
        self.forming.remove(&pe);
        let call = match self.round.iter().flatten().next() {
            Some(part) => part.call.clone(),
            None if !self.is_live() && !self.forming.is_empty() => FORM_EPOCH.into(),
            None => return self.complete_epoch(),
        };
        Progress::Failed(self.fail(Failure::Left { call, pes: Pes(vec![pe]) }))
    }

    /// Records a failure of the job. Returns the one that counts.
    fn fail(&mut self, failure: Failure) -> Failure {
        failure.record(&mut self.failure).clone()
    }

    /// Returns the PEs of the epoch that have not entered the collective call.
    fn missing(&self) -> Pes {
        Pes(self.epoch.pes.iter().copied().filter(|pe| self.round[*pe as usize].is_none()).collect())
    }

    /// Returns the PEs that have to wait for the next epoch and do not.
    fn not_forming(&self) -> Pes {
        let absent = |(member, pe): &(&MemberState, u32)| match member {
            MemberState::Joined { .. } if self.is_replacing(*pe) => false,
            MemberState::Absent | MemberState::Joined { .. } => !self.forming.contains(pe),
            MemberState::Finished | MemberState::Lost { .. } => false,
        };
        Pes(self.members.iter().zip(0..).filter(absent).map(|(_, pe)| pe).collect())
    }

    fn pes_where(&self, test: impl Fn(&MemberState) -> bool) -> Pes {
        Pes(self.members.iter().zip(0..).filter(|(member, _)| test(member)).map(|(_, pe)| pe).collect())
    }

    fn calls(&self) -> Vec<(String, Pes)> {
        let mut calls: Vec<(String, Pes)> = Vec::new();
        for (part, pe) in self.round.iter().zip(0..) {
            let Some(part) = part else { continue };
            match calls.iter_mut().find(|(call, _)| *call == part.call) {
                Some((_, pes)) => pes.0.push(pe),
                None => calls.push((part.call.clone(), Pes(vec![pe]))),
            }
        }
        if !self.forming.is_empty() {
            calls.push((FORM_EPOCH.into(), Pes(self.forming.iter().copied().collect())));
        }
        calls
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(n: u32) -> JobState {
        let mut job = JobState::new(n, None);
        for pe in 0..n {
            job.join(pe, n, "b", "here").unwrap();
        }
        job
    }

    #[test]
    fn last_contribution_completes_the_call() {
        let mut job = joined(3);
        assert_eq!(job.contribute(2, "a", vec![2]), Progress::Waiting);
        assert_eq!(job.contribute(0, "a", vec![0]), Progress::Waiting);
        assert_eq!(job.contribute(1, "a", vec![1]), Progress::Done(vec![vec![0], vec![1], vec![2]]));
        assert!(!job.is_waiting(0));
        assert_eq!(job.contribute(0, "b", vec![]), Progress::Waiting);
    }

    #[test]
    fn different_calls_fail_with_their_pes() {
        let mut job = joined(4);
        job.contribute(0, "a", vec![]);
        job.contribute(3, "a", vec![]);
        let Progress::Failed(failure) = job.contribute(1, "b", vec![]) else { panic!("no failure") };
        assert!(failure.to_string().contains("PEs 0, 3 in a, PE 1 in b"), "{failure}");
        assert_eq!(job.contribute(2, "a", vec![]), Progress::Failed(failure));
    }

    #[test]
    fn passed_deadline_names_the_missing_pes() {
        let mut job = joined(4);
        job.contribute(1, "a", vec![]);
        let failure = job.give_up(1, Duration::from_secs(2)).unwrap();
        assert!(failure.to_string().contains("PEs 0, 2-3 of 4 did not arrive at a within 2s"), "{failure}");
        let mut job = joined(1);
        job.contribute(0, "a", vec![]);
        assert_eq!(job.give_up(0, Duration::ZERO), None);
    }

    #[test]
    fn first_loss_is_the_failure() {
        let mut job = joined(3);
        job.contribute(0, "a", vec![]);
        assert!(job.lose(1, "killed", None).is_some());
        assert!(job.lose(1, "again", None).is_none());
        assert!(job.lose(2, "later", None).is_some());
        let reason = "killed".into();
        let first = Failure::Lost(PeerLost { pe: Some(1), reason, exit: None, survivable: false });
        assert_eq!(job.failure(), Some(&first));
    }

    #[test]
    fn finished_pe_can_neither_be_lost_nor_awaited() {
        let mut job = joined(2);
        assert_eq!(job.finish(1), Progress::Waiting);
        assert_eq!(job.lose(1, "closed", None), None);
        let Progress::Failed(failure) = job.contribute(0, "a", vec![]) else { panic!("no failure") };
        assert!(failure.to_string().contains("PE 1 called finish() before a"), "{failure}");

        let mut job = joined(2);
        job.contribute(0, "a", vec![]);
        assert!(matches!(job.finish(1), Progress::Failed(Failure::Left { .. })));
    }

    #[test]
    fn processes_may_start_another_job_once_all_have_finished() {
        let mut job = joined(2);
        assert_eq!(job.present(), Pes(vec![0, 1]));
        job.finish(1);
        assert!(job.is_early(1) && !job.is_early(0) && !job.is_over());
        let Err(Refusal::Reason(reason)) = job.join(1, 2, "b", "here") else { panic!("joined") };
        assert!(reason.contains("PE 0 did not finish the last one"), "{reason}");
        job.finish(0);
        assert!(job.is_over() && !job.is_early(1));
        assert_eq!(job.present(), Pes(vec![]));

        // After a failure, a PE does not wait for the others.
        let mut job = joined(2);
        job.finish(1);
        job.lose(0, "killed", None);
        assert!(!job.is_early(1));
        assert!(matches!(job.join(1, 2, "b", "here"), Err(Refusal::Failed(_))));
    }

    #[test]
    fn rejects_wrong_numbers_and_builds() {
        let mut job = JobState::new(2, None);
        job.join(0, 2, "b1", "here").unwrap();
        let reason = |refusal| match refusal {
            Err(Refusal::Reason(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert!(reason(job.join(0, 2, "b1", "there")).contains("first here, then there"));
        assert!(reason(job.join(1, 4, "b1", "there")).contains("expects 4"));
        assert!(reason(job.join(2, 2, "b1", "there")).contains("no PE 2"));
        let Err(Refusal::Failed(failure)) = job.join(1, 2, "b2", "there") else { panic!("joined") };
        assert!(failure.to_string().contains("PE 0 is build b1, PE 1 is build b2"), "{failure}");
    }

    fn live(n: u32) -> JobState {
        let mut job = joined(n);
        (0..n).for_each(|pe| drop(job.form_epoch(pe)));
        assert_eq!(job.epoch().number, 1);
        job
    }

    fn formed(number: u32, pes: &[u32]) -> Progress {
        Progress::Formed(Epoch { number, pes: pes.to_vec(), joined: Vec::new() })
    }

    #[test]
    fn first_epoch_needs_all_pes() {
        let mut job = JobState::new(2, None);
        job.join(0, 2, "b", "here").unwrap();
        assert_eq!(job.form_epoch(0), Progress::Waiting);
        assert!(job.is_waiting(0));
        job.join(1, 2, "b", "here").unwrap();
        assert_eq!(job.form_epoch(1), formed(1, &[0, 1]));
        assert!(!job.is_waiting(0));

        let mut job = joined(3);
        job.form_epoch(0);
        let (lost, progress) = job.lose(1, "killed", None).unwrap();
        assert_eq!((lost.survivable, progress), (false, Progress::Waiting));
        assert_eq!(job.form_epoch(2), Progress::Failed(Failure::Lost(lost)));

        let left = |pe| Progress::Failed(Failure::Left { call: FORM_EPOCH.into(), pes: Pes(vec![pe]) });
        let mut job = joined(2);
        job.form_epoch(0);
        assert_eq!(job.finish(1), left(1));
        let mut job = joined(2);
        job.finish(1);
        assert_eq!(job.form_epoch(0), left(1));
    }

    #[test]
    fn living_pes_are_watched_from_the_first_epoch_on() {
        let mut job = JobState::new(4, Some(1));
        (0..4).for_each(|pe| job.join(pe, 4, "b", "here").unwrap());
        assert_eq!(job.watched(), []);
        (0..4).for_each(|pe| drop(job.form_epoch(pe)));
        assert_eq!(job.watched(), [0, 2, 3]);
        job.lose(2, "killed", None);
        job.finish(3);
        assert_eq!(job.watched(), [0]);
    }

    #[test]
    fn loss_fails_calls_until_the_next_epoch() {
        let mut job = live(3);
        job.contribute(0, "a", vec![1]);
        let (lost, progress) = job.lose(1, "killed", None).unwrap();
        assert_eq!((lost.survivable, progress), (true, Progress::Waiting));
        let failure = Failure::Lost(lost);
        assert_eq!(job.contribute(2, "a", vec![]), Progress::Failed(failure.clone()));
        assert_eq!(job.give_up(0, Duration::ZERO), Some(failure.clone()));
        assert_eq!((job.failure(), job.final_failure()), (Some(&failure), None));

        assert_eq!(job.form_epoch(2), Progress::Waiting);
        assert_eq!(job.form_epoch(0), formed(2, &[0, 2]));
        assert_eq!(job.failure(), None);
        // The last message of a lost PE may arrive late.
        assert_eq!(job.contribute(1, "a", vec![2]), Progress::Waiting);
        assert_eq!(job.form_epoch(1), Progress::Waiting);
        assert_eq!(job.finish(1), Progress::Waiting);
        assert_eq!(job.contribute(2, "a", vec![3]), Progress::Waiting);
        assert_eq!(job.contribute(0, "a", vec![1]), Progress::Done(vec![vec![1], vec![], vec![3]]));
    }

    #[test]
    fn loss_and_finish_complete_an_epoch() {
        let mut job = live(4);
        job.form_epoch(0);
        job.lose(0, "killed", None);
        job.form_epoch(1);
        assert_eq!(job.finish(3), Progress::Waiting);
        assert_eq!(job.lose(2, "killed", None).unwrap().1, formed(2, &[1]));
        assert_eq!(job.contribute(1, "a", vec![]), Progress::Done(vec![vec![]; 4]));
        let mut job = live(2);
        job.form_epoch(0);
        assert_eq!(job.finish(1), formed(2, &[0]));
    }

    #[test]
    fn epoch_and_call_are_a_mismatch() {
        for epoch_first in [false, true] {
            let mut job = live(3);
            let failed = if epoch_first {
                job.form_epoch(1);
                job.contribute(2, "a", vec![])
            } else {
                job.contribute(2, "a", vec![]);
                job.form_epoch(1)
            };
            let calls = vec![("a".into(), Pes(vec![2])), (FORM_EPOCH.into(), Pes(vec![1]))];
            assert_eq!(failed, Progress::Failed(Failure::Mismatch { calls }));
            assert_eq!(job.form_epoch(0), failed);
            // A loss of a job that has failed for good is not survivable.
            assert!(!job.lose(0, "killed", None).unwrap().0.survivable);
        }
    }

    #[test]
    fn passed_deadline_of_an_epoch_is_final() {
        let mut job = live(4);
        job.lose(2, "killed", None);
        job.form_epoch(0);
        let failure = job.give_up(0, Duration::from_secs(1)).unwrap();
        let missing = Pes(vec![1, 3]);
        let waited = Duration::from_secs(1);
        assert_eq!(failure, Failure::Missing { call: FORM_EPOCH.into(), waited, missing, n_pes: 4 });
        assert_eq!(job.form_epoch(1), Progress::Failed(failure));
    }

    #[test]
    fn exit_and_loss_of_the_server_are_final() {
        let mut job = live(2);
        job.lose(0, "killed", None);
        assert!(!job.lose(1, "ended the job", Some(3)).unwrap().0.survivable);
        assert!(matches!(job.final_failure(), Some(Failure::Lost(PeerLost { exit: Some(3), .. }))));

        let mut job = live(3);
        job.form_epoch(0);
        job.lose(1, "ended the job", Some(3));
        assert_eq!(job.finish(2), Progress::Waiting);

        let mut job = JobState::new(2, Some(0));
        (0..2).for_each(|pe| job.join(pe, 2, "b", "here").unwrap());
        (0..2).for_each(|pe| drop(job.form_epoch(pe)));
        assert!(!job.lose(0, "killed", None).unwrap().0.survivable);
    }

    #[test]
    fn lost_pes_do_not_delay_the_end_of_a_job() {
        let mut job = live(3);
        job.finish(1);
        job.lose(2, "killed", None);
        assert!(job.is_early(1) && !job.is_over());
        let Err(Refusal::Reason(reason)) = job.join(1, 3, "b", "here") else { panic!("joined") };
        assert!(reason.contains("PE 0 did not finish"), "{reason}");
        assert_eq!(job.present(), Pes(vec![0]));
        job.finish(0);
        assert!(job.is_over() && !job.is_early(1));
        assert_eq!(job.present(), Pes(vec![]));
        assert_eq!(job.next(), JobState::new(3, None));
    }

    #[test]
    fn replacement_disturbs_no_one_until_an_epoch_takes_it_in() {
        let mut job = live(3);
        job.lose(1, "killed", None);
        job.join(1, 3, "b", "there").unwrap();
        assert!(job.is_replacing(1) && job.start_for(1).is_some() && job.start_for(0).is_none());
        assert_eq!(job.form_epoch(1), Progress::Waiting);
        assert!(job.is_waiting(1) && job.give_up(1, Duration::ZERO).is_none());
        // Lost before the others know it, and replaced again.
        assert_eq!(job.lose(1, "killed", None), None);
        job.join(1, 3, "b", "there").unwrap();
        job.form_epoch(0);
        assert_eq!(job.form_epoch(2), formed(2, &[0, 2]));
        job.form_epoch(1);
        job.contribute(2, "a", vec![]);
        assert_eq!(job.contribute(0, "a", vec![]), Progress::Done(vec![vec![]; 3]));
        job.bar();
        job.form_epoch(2);
        assert_eq!(job.form_epoch(0), formed(3, &[0, 2]));
        job.form_epoch(2);
        let taken_in = Epoch { number: 4, pes: vec![0, 1, 2], joined: vec![1] };
        assert_eq!(job.form_epoch(0), Progress::Formed(taken_in));
        assert!(!job.is_replacing(1) && job.lose(1, "killed", None).is_some());

        job.join(1, 3, "b", "there").unwrap();
        job.finish(0);
        assert!(job.turn_away().is_empty());
        job.finish(2);
        assert_eq!(job.turn_away(), BTreeSet::from([1]));
        assert!(job.is_over());
    }
}
