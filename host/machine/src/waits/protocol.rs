//! The messages by which PE 0 learns the waits of all PEs.
//!
//! The state machine has no clock and no I/O, and each PE drives its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rushmem_trace::{JobWaits, PeWaits};
use serde::{Deserialize, Serialize};

/// The time after a print in which another request gets no print of its own. All PEs of a job get a signal together.
const TOGETHER: Duration = Duration::from_millis(300);

/// The reason for which the waits are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Cause {
    /// The user has asked.
    Signal,
    /// A deadline has passed. The job prints its waits once for this reason.
    Deadline,
}

/// A message between two PEs.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Message {
    /// To PE 0: print the waits.
    Ask(Cause),
    /// From PE 0: tell your waits.
    Tell(Cause),
    /// To PE 0: the waits of the sender.
    Waits(PeWaits),
    /// From PE 0: the waits are printed.
    Printed,
}

/// A step of a PE.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// Send a message to a PE.
    Send(u32, Message),
    /// Print the waits.
    Print(JobWaits),
}

/// The answers of the PEs to PE 0.
struct Collecting {
    cause: Cause,
    askers: BTreeSet<u32>,
    answers: BTreeMap<u32, PeWaits>,
    until: Instant,
}

/// The state of a PE.
pub(super) struct Protocol {
    pe: u32,
    n_pes: u32,
    /// The time that PE 0 waits for answers.
    patience: Duration,
    /// The request to PE 0 that it has not taken up.
    asked: Option<Instant>,
    /// The request of PE 0 that this PE has not answered.
    told: Option<(Instant, Cause)>,
    collecting: Option<Collecting>,
    printed: Option<Instant>,
    /// Whether the waits were printed after a passed deadline.
    has_printed_deadline: bool,
    /// The number of own requests that have ended.
    pub(super) ended: u64,
}

impl Protocol {
    pub(super) fn new(pe: u32, n_pes: u32, patience: Duration) -> Self {
        Self {
            pe,
            n_pes,
            patience,
            asked: None,
            told: None,
            collecting: None,
            printed: None,
            has_printed_deadline: false,
            ended: 0,
        }
    }

    /// Asks for a print.
    pub(super) fn ask(&mut self, cause: Cause, now: Instant) -> Vec<Action> {
        if self.pe == 0 {
            return self.begin(cause, 0, now);
        }
        self.asked = Some(now);
        vec![Action::Send(0, Message::Ask(cause))]
    }

    /// Takes a message of `from`.
    pub(super) fn receive(&mut self, from: u32, message: Message, now: Instant) -> Vec<Action> {
        match message {
            Message::Ask(cause) if self.pe == 0 => return self.begin(cause, from, now),
            Message::Waits(waits) if waits.pe == from => {
                if let Some(collecting) = &mut self.collecting {
                    collecting.answers.insert(from, waits);
                }
            }
            Message::Tell(cause) if from == 0 => {
                // The print follows, or PE 0 is lost.
                self.asked = None;
                self.told = Some((now, cause));
            }
            Message::Printed if from == 0 => {
                self.asked = None;
                self.ended += 1;
            }
            Message::Ask(_) | Message::Tell(_) | Message::Waits(_) | Message::Printed => {}
        }
        Vec::new()
    }

    /// Begins to collect, on PE 0.
    fn begin(&mut self, cause: Cause, asker: u32, now: Instant) -> Vec<Action> {
        let is_repeated = cause == Cause::Deadline && self.has_printed_deadline;
        if is_repeated || self.printed.is_some_and(|at| now.duration_since(at) < TOGETHER) {
            return self.confirm(asker).into_iter().collect();
        }
        if let Some(collecting) = &mut self.collecting {
            collecting.askers.insert(asker);
            if cause == Cause::Deadline {
                collecting.cause = cause;
            }
            return Vec::new();
        }
        let (askers, answers) = (BTreeSet::from([asker]), BTreeMap::new());
        self.collecting = Some(Collecting { cause, askers, answers, until: now + self.patience });
        self.told = Some((now, cause));
        (1..self.n_pes).map(|pe| Action::Send(pe, Message::Tell(cause))).collect()
    }

    fn confirm(&mut self, asker: u32) -> Option<Action> {
        if asker == self.pe {
            self.ended += 1;
            return None;
        }
        Some(Action::Send(asker, Message::Printed))
    }

    /// Performs the steps that are due. `known` returns the waits of this PE, for this cause.
    pub(super) fn step(&mut self, known: &dyn Fn(Cause) -> PeWaits, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.asked.is_some_and(|at| now.duration_since(at) > 2 * self.patience) {
            self.asked = None;
            self.ended += 1;
            actions.push(Action::Print(JobWaits::new(self.n_pes, [known(Cause::Deadline)])));
        }
        if let Some((at, cause)) = self.told {
            let mine = known(cause);
            // A kernel without known calls may soon come to its own deadline, and its record tells more.
            let is_known = mine.has_timeline || mine.runs.is_empty() || !mine.waits.is_empty();
            if cause == Cause::Signal || is_known || now.duration_since(at) > self.patience / 2 {
                self.told = None;
                match &mut self.collecting {
                    Some(collecting) => drop(collecting.answers.insert(self.pe, mine)),
                    None => actions.push(Action::Send(0, Message::Waits(mine))),
                }
            }
        }
        let is_over = |collecting: &mut Collecting| {
            collecting.answers.len() == self.n_pes as usize || now >= collecting.until
        };
        if let Some(Collecting { cause, askers, answers, .. }) = self.collecting.take_if(is_over) {
            self.printed = Some(now);
            self.has_printed_deadline |= cause == Cause::Deadline;
            actions.push(Action::Print(JobWaits::new(self.n_pes, answers.into_values())));
            actions.extend(askers.into_iter().filter_map(|asker| self.confirm(asker)));
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    /// Some PEs, and the prints of each.
    struct Pes {
        pes: Vec<Protocol>,
        prints: Vec<(u32, String)>,
        now: Instant,
    }

    impl Pes {
        fn new(n: u32) -> Self {
            let pes = (0..n).map(|pe| Protocol::new(pe, n, PATIENCE)).collect();
            Self { pes, prints: Vec::new(), now: Instant::now() }
        }

        fn perform(&mut self, pe: u32, actions: Vec<Action>, lost: &[u32]) {
            for action in actions {
                match action {
                    Action::Print(waits) => self.prints.push((pe, waits.to_string())),
                    Action::Send(to, _) if lost.contains(&to) => {}
                    Action::Send(to, message) => {
                        let text = serde_json::to_string(&message).unwrap();
                        let message = serde_json::from_str(&text).unwrap();
                        let actions = self.pes[to as usize].receive(pe, message, self.now);
                        self.perform(to, actions, lost);
                    }
                }
            }
        }

        fn ask(&mut self, pe: u32, cause: Cause, lost: &[u32]) {
            let actions = self.pes[pe as usize].ask(cause, self.now);
            self.perform(pe, actions, lost);
        }

        fn pass(&mut self, time: Duration, lost: &[u32], known: &dyn Fn(u32) -> PeWaits) {
            self.now += time;
            // PE 0 comes last, after the answers.
            for pe in (0..self.pes.len() as u32).rev().filter(|pe| !lost.contains(pe)) {
                let actions = self.pes[pe as usize].step(&|_| known(pe), self.now);
                self.perform(pe, actions, lost);
            }
        }
    }

    fn idle(pe: u32) -> PeWaits {
        PeWaits { pe, has_timeline: true, ..PeWaits::default() }
    }

    const SOON: Duration = Duration::from_millis(10);

    #[test]
    fn all_pes_ask_and_one_prints() {
        let mut job = Pes::new(3);
        job.ask(2, Cause::Signal, &[]);
        job.ask(0, Cause::Signal, &[]);
        job.pass(SOON, &[], &idle);
        job.ask(1, Cause::Signal, &[]);
        job.pass(SOON, &[], &idle);
        assert_eq!(job.prints.len(), 1);
        assert!(
            job.prints[0] == (0, "waits of the job\n  PEs 0-2: does not wait\n".into()),
            "{:?}",
            job.prints
        );
        assert_eq!(job.pes.iter().map(|pe| pe.ended).collect::<Vec<_>>(), [1, 1, 1]);
        // The user asks again.
        job.now += TOGETHER;
        job.ask(1, Cause::Signal, &[]);
        job.pass(SOON, &[], &idle);
        assert_eq!(job.prints.len(), 2);
    }

    #[test]
    fn a_job_prints_once_after_deadlines() {
        let mut job = Pes::new(2);
        for _ in 0..3 {
            job.ask(1, Cause::Deadline, &[]);
            job.pass(PATIENCE, &[], &idle);
        }
        assert_eq!((job.prints.len(), job.pes[1].ended), (1, 3));
    }

    #[test]
    fn a_missing_answer_is_told() {
        let mut job = Pes::new(3);
        job.ask(1, Cause::Signal, &[2]);
        job.pass(SOON, &[2], &idle);
        assert!(job.prints.is_empty());
        job.pass(PATIENCE, &[2], &idle);
        assert!(job.prints[0].1.contains("PE 2: has not answered"), "{:?}", job.prints);
    }

    #[test]
    fn a_pe_prints_its_own_waits_if_pe_0_is_silent() {
        let mut job = Pes::new(2);
        job.ask(1, Cause::Deadline, &[0]);
        job.pass(PATIENCE, &[0], &idle);
        assert!(job.prints.is_empty());
        job.pass(2 * PATIENCE, &[0], &idle);
        assert_eq!((job.prints[0].0, job.pes[1].ended), (1, 1));
        assert!(job.prints[0].1.contains("PE 0: has not answered"), "{:?}", job.prints);
    }

    #[test]
    fn a_kernel_without_a_timeline_may_come_to_its_deadline() {
        let mut job = Pes::new(2);
        let runs = |pe| PeWaits { runs: vec!["runs kernel a".into()], has_timeline: false, ..idle(pe) };
        job.ask(0, Cause::Deadline, &[]);
        job.pass(SOON, &[], &|pe| if pe == 1 { runs(pe) } else { idle(pe) });
        assert!(job.prints.is_empty());
        job.pass(SOON, &[], &idle);
        assert_eq!(job.prints.len(), 1);
    }
}
