//! The messages through which PE 0 collects the waits of all PEs.
//!
//! This is a state machine without clock or I/O. Every PE drives its own instance with [`Protocol::ask`],
//! [`Protocol::receive`] and [`Protocol::step`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rushmem_trace::{JobWaits, PeWaits};
use serde::{Deserialize, Serialize};

/// Time after a printed report during which further requests count as answered by it, since a signal reaches all PEs of
/// a job at nearly the same time.
const REPEAT_WINDOW: Duration = Duration::from_millis(300);

/// Why a report is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Cause {
    /// The user sent a signal.
    Signal,
    /// A deadline has passed. A job prints at most one report for this reason.
    Deadline,
}

/// A message between a PE and PE 0.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Message {
    /// To PE 0: print a report.
    Ask(Cause),
    /// From PE 0: send your waits.
    Tell(Cause),
    /// To PE 0: the waits of the sender.
    Waits(PeWaits),
    /// From PE 0 to the askers: the report is printed.
    Printed,
}

/// I/O that the state machine asks its caller to perform.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Send(u32, Message),
    Print(JobWaits),
}

/// The answers that PE 0 has so far.
struct Collecting {
    cause: Cause,
    askers: BTreeSet<u32>,
    answers: BTreeMap<u32, PeWaits>,
    until: Instant,
}

/// The protocol state of one PE.
pub(super) struct Protocol {
    pe: u32,
    n_pes: u32,
    /// How long PE 0 waits for answers.
    patience: Duration,
    /// When this PE asked PE 0, until PE 0 reacts.
    asked: Option<Instant>,
    /// PE 0's request for waits, until this PE answers it.
    told: Option<(Instant, Cause)>,
    collecting: Option<Collecting>,
    printed: Option<Instant>,
    /// Whether a report was printed because of a passed deadline.
    has_printed_deadline: bool,
    /// How many requests of this PE are finished: printed by PE 0, part of an earlier report, or given up.
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

    /// Requests a report.
    pub(super) fn ask(&mut self, cause: Cause, now: Instant) -> Vec<Action> {
        if self.pe == 0 {
            return self.begin(cause, 0, now);
        }
        self.asked = Some(now);
        vec![Action::Send(0, Message::Ask(cause))]
    }

    pub(super) fn receive(&mut self, from: u32, message: Message, now: Instant) -> Vec<Action> {
        match message {
            Message::Ask(cause) if self.pe == 0 => return self.begin(cause, from, now),
            Message::Waits(waits) if waits.pe == from => {
                if let Some(collecting) = &mut self.collecting {
                    collecting.answers.insert(from, waits);
                }
            }
            Message::Tell(cause) if from == 0 => {
                // PE 0 has taken up the request, so this PE need not print its own waits.
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

    /// Starts to collect answers, on PE 0.
    fn begin(&mut self, cause: Cause, asker: u32, now: Instant) -> Vec<Action> {
        // The asker is already served by an earlier report; confirm, so it does not wait in vain.
        let is_repeated = cause == Cause::Deadline && self.has_printed_deadline;
        if is_repeated || self.printed.is_some_and(|at| now.duration_since(at) < REPEAT_WINDOW) {
            return self.confirm(asker).into_iter().collect();
        }
        if let Some(collecting) = &mut self.collecting {
            collecting.askers.insert(asker);
            // A deadline outranks a signal: it must count as the job's one report for deadlines.
            if cause == Cause::Deadline {
                collecting.cause = cause;
            }
            return Vec::new();
        }
        let (askers, answers) = (BTreeSet::from([asker]), BTreeMap::new());
        self.collecting = Some(Collecting { cause, askers, answers, until: now + self.patience });
        // PE 0 answers its own request in `step`, by the same path as the others.
        self.told = Some((now, cause));
        (1..self.n_pes).map(|pe| Action::Send(pe, Message::Tell(cause))).collect()
    }

    /// Reports to `asker` that its request is finished; on PE 0 itself, only counts it.
    fn confirm(&mut self, asker: u32) -> Option<Action> {
        if asker == self.pe {
            self.ended += 1;
            return None;
        }
        Some(Action::Send(asker, Message::Printed))
    }

    /// Performs all actions that are due at `now`: answers PE 0, or prints the report when all answers have arrived or
    /// their time is over. `known` returns what this PE waits for, given the cause of the report.
    pub(super) fn step(&mut self, known: &dyn Fn(Cause) -> PeWaits, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        // PE 0 has not reacted at all. Print what this PE knows, since nobody else will.
        if self.asked.is_some_and(|at| now.duration_since(at) > 2 * self.patience) {
            self.asked = None;
            self.ended += 1;
            actions.push(Action::Print(JobWaits::new(self.n_pes, [known(Cause::Deadline)])));
        }
        if let Some((at, cause)) = self.told {
            let mine = known(cause);
            // Without a timeline, a running kernel's wait is unknown until its own deadline passes and leaves a record.
            // Give it half of the timeout for that.
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

    const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

    /// PEs whose messages arrive immediately, and what each has printed.
    struct Pes {
        pes: Vec<Protocol>,
        prints: Vec<(u32, String)>,
        now: Instant,
    }

    impl Pes {
        fn new(n: u32) -> Self {
            let pes = (0..n).map(|pe| Protocol::new(pe, n, ANSWER_TIMEOUT)).collect();
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
            // PE 0 steps last, after the answers have arrived.
            for pe in (0..self.pes.len() as u32).rev().filter(|pe| !lost.contains(pe)) {
                let actions = self.pes[pe as usize].step(&|_| known(pe), self.now);
                self.perform(pe, actions, lost);
            }
        }
    }

    fn idle(pe: u32) -> PeWaits {
        PeWaits { pe, has_timeline: true, ..PeWaits::default() }
    }

    const SHORT_STEP: Duration = Duration::from_millis(10);

    #[test]
    fn concurrent_requests_share_one_report() {
        let mut job = Pes::new(3);
        job.ask(2, Cause::Signal, &[]);
        job.ask(0, Cause::Signal, &[]);
        job.pass(SHORT_STEP, &[], &idle);
        job.ask(1, Cause::Signal, &[]);
        job.pass(SHORT_STEP, &[], &idle);
        assert_eq!(job.prints.len(), 1);
        assert!(
            job.prints[0] == (0, "waits of the job\n  PEs 0-2: does not wait\n".into()),
            "{:?}",
            job.prints
        );
        assert_eq!(job.pes.iter().map(|pe| pe.ended).collect::<Vec<_>>(), [1, 1, 1]);
        // The user asks again.
        job.now += REPEAT_WINDOW;
        job.ask(1, Cause::Signal, &[]);
        job.pass(SHORT_STEP, &[], &idle);
        assert_eq!(job.prints.len(), 2);
    }

    #[test]
    fn deadlines_are_reported_once_per_job() {
        let mut job = Pes::new(2);
        for _ in 0..3 {
            job.ask(1, Cause::Deadline, &[]);
            job.pass(ANSWER_TIMEOUT, &[], &idle);
        }
        assert_eq!((job.prints.len(), job.pes[1].ended), (1, 3));
    }

    #[test]
    fn report_names_pes_that_did_not_answer() {
        let mut job = Pes::new(3);
        job.ask(1, Cause::Signal, &[2]);
        job.pass(SHORT_STEP, &[2], &idle);
        assert!(job.prints.is_empty());
        job.pass(ANSWER_TIMEOUT, &[2], &idle);
        assert!(job.prints[0].1.contains("PE 2: has not answered"), "{:?}", job.prints);
    }

    #[test]
    fn pe_prints_its_own_waits_if_pe_0_is_silent() {
        let mut job = Pes::new(2);
        job.ask(1, Cause::Deadline, &[0]);
        job.pass(ANSWER_TIMEOUT, &[0], &idle);
        assert!(job.prints.is_empty());
        job.pass(2 * ANSWER_TIMEOUT, &[0], &idle);
        assert_eq!((job.prints[0].0, job.pes[1].ended), (1, 1));
        assert!(job.prints[0].1.contains("PE 0: has not answered"), "{:?}", job.prints);
    }

    #[test]
    fn answer_is_delayed_for_kernels_without_a_timeline() {
        let mut job = Pes::new(2);
        let runs = |pe| PeWaits { runs: vec!["runs kernel a".into()], has_timeline: false, ..idle(pe) };
        job.ask(0, Cause::Deadline, &[]);
        job.pass(SHORT_STEP, &[], &|pe| if pe == 1 { runs(pe) } else { idle(pe) });
        assert!(job.prints.is_empty());
        job.pass(SHORT_STEP, &[], &idle);
        assert_eq!(job.prints.len(), 1);
    }
}
