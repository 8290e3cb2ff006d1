//! The state machine of a job: which PEs have joined, are in a collective call, or have left.
//!
//! It has no clock and no I/O. [`Threads`](crate::Threads) and [`Server`](crate::Server) drive the same machine, so PEs
//! in threads and PEs in processes behave alike.

use std::time::Duration;

use rushmem_base::Pes;

use crate::error::{Failure, PeerLost};

#[derive(Clone, Debug, PartialEq, Eq)]
enum MemberState {
    Absent,
    Joined { build: String, origin: String },
    Finished,
    Lost,
}

/// Bytes that a PE passed to the collective call it is waiting in, and the name of that call.
struct Contribution {
    call: String,
    bytes: Vec<u8>,
}

/// Outcome of a contribution to a collective call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Other PEs have not contributed yet.
    Waiting,
    /// The call is complete. Contributions are in PE order.
    Done(Vec<Vec<u8>>),
    /// The job has failed, through this contribution or earlier.
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

pub(crate) struct JobState {
    members: Vec<MemberState>,
    round: Vec<Option<Contribution>>,
    failure: Option<Failure>,
}

impl JobState {
    pub(crate) fn new(n_pes: u32) -> JobState {
        JobState {
            members: vec![MemberState::Absent; n_pes as usize],
            round: (0..n_pes).map(|_| None).collect(),
            failure: None,
        }
    }

    pub(crate) fn n_pes(&self) -> u32 {
        self.members.len() as u32
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
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
            Some(MemberState::Finished) if self.failure.is_none() => {
                let others = self.pes_where(|member| *member != MemberState::Finished);
                return Err(Refusal::Reason(format!(
                    "PE {pe} joins the next job of these processes, but {others} did not finish the last one"
                )));
            }
            Some(MemberState::Absent | MemberState::Lost | MemberState::Finished) => {}
        }
        if let Some(failure) = &self.failure {
            return Err(Refusal::Failed(failure.clone()));
        }
        let other = self.members.iter().zip(0..).find_map(|(member, other)| match member {
            MemberState::Joined { build: theirs, .. } if theirs != build => Some((other, theirs.clone())),
            _ => None,
        });
        if let Some((first_pe, first_build)) = other {
            let failure = Failure::Builds { first_pe, first_build, pe, build: build.into() };
            return Err(Refusal::Failed(self.fail(failure)));
        }
        self.members[pe as usize] = MemberState::Joined { build: build.into(), origin: origin.into() };
        Ok(())
    }

    /// Returns whether this PE is in a collective call.
    pub(crate) fn is_waiting(&self, pe: u32) -> bool {
        self.round[pe as usize].is_some()
    }

    /// Returns whether this PE has joined and is neither finished nor lost.
    pub(crate) fn is_joined(&self, pe: u32) -> bool {
        matches!(self.members[pe as usize], MemberState::Joined { .. })
    }

    /// Returns whether this PE has not joined yet and has not been lost.
    pub(crate) fn is_absent(&self, pe: u32) -> bool {
        self.members[pe as usize] == MemberState::Absent
    }

    /// Returns whether this PE has finished the job while others have not. To join the next job, it must wait for them.
    pub(crate) fn is_early(&self, pe: u32) -> bool {
        let finished = self.members.get(pe as usize) == Some(&MemberState::Finished);
        finished && self.failure.is_none() && !self.is_over()
    }

    /// Returns whether all PEs have finished, so the same processes may start another job.
    pub(crate) fn is_over(&self) -> bool {
        self.members.iter().all(|member| *member == MemberState::Finished)
    }

    /// Returns the PEs that still need the job's server: all that are neither finished nor lost. After a failure, PEs
    /// that have not joined are not expected any more.
    pub(crate) fn present(&self) -> Pes {
        let expected = self.failure.is_none();
        self.pes_where(|member| match member {
            MemberState::Joined { .. } => true,
            MemberState::Absent => expected,
            MemberState::Finished | MemberState::Lost => false,
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

    /// Records that a PE has entered a collective call. The PE must not be waiting in another call.
    pub(crate) fn contribute(&mut self, pe: u32, call: &str, bytes: Vec<u8>) -> Progress {
        if let Some(failure) = &self.failure {
            return Progress::Failed(failure.clone());
        }
        self.round[pe as usize] = Some(Contribution { call: call.into(), bytes });

        let left = self.pes_where(|member| *member == MemberState::Finished);
        if !left.0.is_empty() {
            return Progress::Failed(self.fail(Failure::Left { call: call.into(), pes: left }));
        }
        if self.round.iter().flatten().any(|part| part.call != call) {
            let calls = self.calls();
            return Progress::Failed(self.fail(Failure::Mismatch { calls }));
        }
        if self.round.iter().all(Option::is_some) {
            return Progress::Done(
                self.round.iter_mut().filter_map(Option::take).map(|part| part.bytes).collect(),
            );
        }
        Progress::Waiting
    }

    /// Fails the call of a PE whose deadline has passed. Returns `None` if the call has just completed.
    pub(crate) fn give_up(&mut self, pe: u32, waited: Duration) -> Option<Failure> {
        if self.failure.is_some() {
            return self.failure.clone();
        }
        let call = self.round[pe as usize].as_ref()?.call.clone();
        let missing = self.round.iter().zip(0..).filter(|(part, _)| part.is_none()).map(|(_, pe)| pe);
        let failure = Failure::Missing { call, waited, missing: Pes(missing.collect()), n_pes: self.n_pes() };
        Some(self.fail(failure))
    }

    /// Marks a PE as lost, which fails the job. Returns `None` if it has already finished or been lost.
    pub(crate) fn lose(&mut self, pe: u32, reason: &str, exit: Option<u8>) -> Option<PeerLost> {
        let member = &mut self.members[pe as usize];
        if matches!(member, MemberState::Finished | MemberState::Lost) {
            return None;
        }
        *member = MemberState::Lost;
        let lost = PeerLost { pe: Some(pe), reason: reason.into(), exit };
        self.fail(Failure::Lost(lost.clone()));
        Some(lost)
    }

    /// Marks a PE as finished. Returns a failure if another PE is in a call, which can no longer complete.
    pub(crate) fn finish(&mut self, pe: u32) -> Option<Failure> {
        let member = &mut self.members[pe as usize];
        if !matches!(member, MemberState::Joined { .. }) {
            return None;
        }
        *member = MemberState::Finished;
        let call = self.round.iter().flatten().next()?.call.clone();
        Some(self.fail(Failure::Left { call, pes: Pes(vec![pe]) }))
    }

    /// Records the failure of the job, unless it has failed before. Returns the first failure.
    fn fail(&mut self, failure: Failure) -> Failure {
        self.failure.get_or_insert(failure).clone()
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
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(n: u32) -> JobState {
        let mut job = JobState::new(n);
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
        let first = Failure::Lost(PeerLost { pe: Some(1), reason: "killed".into(), exit: None });
        assert_eq!(job.failure(), Some(&first));
    }

    #[test]
    fn finished_pe_can_neither_be_lost_nor_awaited() {
        let mut job = joined(2);
        assert_eq!(job.finish(1), None);
        assert_eq!(job.lose(1, "closed", None), None);
        let Progress::Failed(failure) = job.contribute(0, "a", vec![]) else { panic!("no failure") };
        assert!(failure.to_string().contains("PE 1 called finish() before a"), "{failure}");

        let mut job = joined(2);
        job.contribute(0, "a", vec![]);
        assert!(matches!(job.finish(1), Some(Failure::Left { .. })));
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
        let mut job = JobState::new(2);
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
}
