//! Combines the waits of a job's PEs to find out which PE is waiting for which, and whether some wait in a cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rushmem_base::Pes;
use serde::{Deserialize, Serialize};

use crate::span::{Category, Site, Span, Track, Word};
use crate::time::Time;

/// Maximum number of different waits that a PE reports, to bound the size of the message.
const MAX_WAITS: usize = 32;
/// Maximum number of cycles of waiting PEs that are searched for.
const MAX_CYCLES: usize = 4;
/// Maximum number of lines about activities of a PE that are not waits.
const MAX_OTHER_LINES: usize = 8;

/// The event that a waiting call needs before it can return.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// Another value in a word of symmetric memory.
    Word {
        /// PE that owns the word.
        pe: u32,
        /// Offset of the word in the symmetric memory, in bytes.
        offset: u64,
        /// Name of the object that contains the word, and the position in it, as text, if known.
        #[serde(default)]
        object: Option<String>,
        /// The awaited condition or values, as text.
        note: String,
    },
    /// Progress of the PE with this rank, for which no word is known.
    Peer(u32),
    /// The arrival of the other team members at a collective call made by kernels.
    Team {
        /// Slot and generation, which identify the team.
        team: (u32, u32),
        /// Ranks of the members, or `None` if the team is the whole job. Empty if they are unknown.
        members: Option<Vec<u32>>,
    },
    /// The arrival of all other PEs' hosts at a collective call.
    Hosts,
    /// Anything else, described by this text.
    Other(String),
}

/// A call that is waiting, in one or more threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// Description of the first thread that waits, such as its track.
    pub place: String,
    /// Number of further threads that wait in the same call.
    pub others: u64,
    /// Name of the call that waits.
    pub call: String,
    /// Source line of the call.
    pub site: Option<Site>,
    /// Longest time that any of the threads has waited, in nanoseconds, if known.
    pub ns: Option<u64>,
    /// What the call is waiting for.
    pub until: Until,
    /// Whether the call has already given up because its deadline passed.
    pub has_ended: bool,
}

/// The waits of a PE, as the PE itself reports them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeWaits {
    /// Rank of the PE.
    pub pe: u32,
    /// Calls of the PE that are waiting.
    pub waits: Vec<Waiting>,
    /// Number of waiting threads that are not listed, to bound the size of the report.
    pub left_out: u64,
    /// Other activities of the PE, one line each, such as `runs kernel a`.
    pub runs: Vec<String>,
    /// Words of symmetric memory that the PE changed most recently.
    pub changed: Vec<Word>,
    /// Whether the PE records a timeline, so the calls of its kernels are known.
    pub has_timeline: bool,
}

impl PeWaits {
    /// Adds a wait. Threads that wait in the same call at the same line are merged into one entry.
    pub fn add(&mut self, wait: Waiting) {
        let is_same = |other: &Waiting| {
            (&other.call, &other.site, &other.until, other.has_ended)
                == (&wait.call, &wait.site, &wait.until, wait.has_ended)
        };
        match self.waits.iter().position(is_same) {
            Some(i) => {
                let other = &mut self.waits[i];
                other.others += wait.others + 1;
                other.ns = other.ns.max(wait.ns);
            }
            None if self.waits.len() < MAX_WAITS => self.waits.push(wait),
            None => self.left_out += wait.others + 1,
        }
    }

    /// Adds the spans of this PE that are open at time `now`. `members` returns the members of a team.
    pub fn add_open(&mut self, spans: &[Span], now: u64, members: impl Fn((u32, u32)) -> Option<Vec<u32>>) {
        let (mut runs, pe) = (Vec::new(), self.pe);
        for span in spans.iter().filter(|span| span.pe == pe) {
            let ns = span.ns(now);
            if !span.is_wait() {
                runs.push(running(span, ns));
                continue;
            }
            let note = span.detail.note.clone().unwrap_or_default().into_owned();
            let until = match (span.detail.awaits, span.detail.team, span.detail.peer) {
                (Some(Word { pe, offset }), ..) => Until::Word { pe, offset, object: None, note },
                (None, Some(team), _) => Until::Team { team, members: members(team) },
                (None, None, Some(peer)) => Until::Peer(peer),
                _ if note.is_empty() => Until::Other("the completion of its operations".into()),
                _ => Until::Other(note),
            };
            self.add(Waiting {
                place: span.track.to_string(),
                others: 0,
                call: span.name.to_string(),
                site: span.site.clone(),
                ns: Some(ns),
                until,
                has_ended: false,
            });
        }
        // What else is running matters only if nothing waits.
        if self.waits.is_empty() {
            runs.truncate(MAX_OTHER_LINES);
            self.runs.extend(runs);
        }
    }
}

/// Describes an open span that is not a wait, such as a running kernel.
fn running(span: &Span, ns: u64) -> String {
    let at = Site::at(span.site.as_ref());
    let time = Time(ns);
    match (span.category, &span.track) {
        (Category::Launch | Category::Kernel, track) => {
            format!("runs `{}`{at} in {track} for {time}", span.name)
        }
        (_, Track::Host) => format!("is in `{}`{at} for {time}", span.name),
        (_, track) => format!("is in `{}`{at} in {track} for {time}", span.name),
    }
}

/// The waits of all PEs of a job that have reported theirs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobWaits {
    n_pes: u32,
    of_pe: BTreeMap<u32, PeWaits>,
}

impl JobWaits {
    /// Combines the reports of a job's PEs. `n_pes` is the size of the job.
    pub fn new(n_pes: u32, all: impl IntoIterator<Item = PeWaits>) -> Self {
        let of_pe = all.into_iter().filter(|waits| waits.pe < n_pes).map(|waits| (waits.pe, waits));
        Self { n_pes, of_pe: of_pe.collect() }
    }

    /// Returns the PEs that have not arrived at the collective call that `until` waits for.
    fn missing(&self, until: &Until) -> Vec<u32> {
        let all = || (0..self.n_pes).collect::<Vec<_>>();
        let members = match until {
            Until::Team { members, .. } => members.clone().unwrap_or_else(all),
            Until::Hosts => all(),
            _ => return Vec::new(),
        };
        let has_come = |other: &Until| match (until, other) {
            (Until::Team { team, .. }, Until::Team { team: its, .. }) => team == its,
            (until, other) => until == other,
        };
        let is_missing = |pe: &u32| {
            let waits = self.of_pe.get(pe);
            !waits.is_some_and(|of| of.waits.iter().any(|wait| has_come(&wait.until)))
        };
        members.into_iter().filter(is_missing).collect()
    }

    /// Returns the PEs that have recently changed `word`, and so may be expected to change it again.
    fn writers(&self, word: Word) -> Vec<u32> {
        let has_changed = |of: &&PeWaits| of.changed.contains(&word);
        self.of_pe.values().filter(has_changed).map(|of| of.pe).collect()
    }

    /// Returns the PEs that could satisfy a wait for `until`.
    fn awaited(&self, until: &Until) -> Vec<u32> {
        match until {
            Until::Word { pe, offset, .. } => self.writers(Word { pe: *pe, offset: *offset }),
            Until::Peer(peer) => vec![*peer],
            Until::Team { .. } | Until::Hosts => self.missing(until),
            Until::Other(_) => Vec::new(),
        }
    }

    /// Returns the PE for which most calls are waiting, and the number of these calls.
    pub fn most_awaited(&self) -> Option<(u32, u64)> {
        let mut calls: BTreeMap<u32, u64> = BTreeMap::new();
        for (pe, of) in &self.of_pe {
            for wait in &of.waits {
                for awaited in self.awaited(&wait.until).into_iter().filter(|awaited| awaited != pe) {
                    let calls = calls.entry(awaited).or_default();
                    *calls = calls.saturating_add(wait.others.saturating_add(1));
                }
            }
        }
        calls.into_iter().max_by_key(|&(pe, calls)| (calls, std::cmp::Reverse(pe)))
    }

    /// Returns cycles of PEs that wait for each other, each as a list of ranks that does not repeat the first.
    pub fn cycles(&self) -> Vec<Vec<u32>> {
        let edges = |pe: u32| -> BTreeSet<u32> {
            let waits = self.of_pe.get(&pe).map_or(&[][..], |of| &of.waits);
            waits.iter().flat_map(|wait| self.awaited(&wait.until)).filter(|&other| other != pe).collect()
        };
        // Depth-first search. `path` holds the PEs on the current path, each with its edges left to follow. `done`
        // holds those that were ever on it, so each is expanded once.
        let (mut done, mut cycles) = (BTreeSet::new(), Vec::new());
        for &first in self.of_pe.keys() {
            let mut path: Vec<(u32, Vec<u32>)> = Vec::new();
            let mut next = Some(first).filter(|pe| !done.contains(pe));
            while let Some(pe) = next.take().or_else(|| path.last_mut()?.1.pop()) {
                match path.iter().position(|(on_path, _)| *on_path == pe) {
                    Some(begin) => cycles.push(path[begin..].iter().map(|(pe, _)| *pe).collect()),
                    None if done.insert(pe) => path.push((pe, edges(pe).into_iter().rev().collect())),
                    None => {}
                }
                if cycles.len() == MAX_CYCLES {
                    return cycles;
                }
                while path.last().is_some_and(|(_, left)| left.is_empty()) {
                    path.pop();
                }
            }
        }
        cycles
    }

    /// Describes in words what a wait is waiting for, and which PEs are missing.
    pub fn describe(&self, until: &Until) -> String {
        let missing = || match &*self.missing(until) {
            [] => "all members have come".into(),
            [pe] => format!("PE {pe} has not come"),
            all => format!("{} have not come", Pes(all.to_vec())),
        };
        match until {
            Until::Word { pe, offset, object, note } => {
                let object = object.as_ref().map_or_else(String::new, |object| format!(", {object}"));
                let note = if note.is_empty() { String::new() } else { format!(" ({note})") };
                let by = match &*self.writers(Word { pe: *pe, offset: *offset }) {
                    [] => String::new(),
                    [pe] => format!("; PE {pe} has changed it before"),
                    all => format!("; {} have changed it before", Pes(all.to_vec())),
                };
                format!("for the word at {offset:#x} of PE {pe}{note}{object}{by}")
            }
            Until::Peer(peer) => format!("for PE {peer}"),
            Until::Team { team: (slot, _), members } => {
                let is_unknown = members.as_ref().is_some_and(Vec::is_empty);
                let missing = if is_unknown { "its members are not known".into() } else { missing() };
                format!("for its team in slot {slot}: {missing}")
            }
            Until::Hosts => format!("for the hosts of all PEs: {}", missing()),
            Until::Other(what) => format!("for {what}"),
        }
    }
}

impl fmt::Display for JobWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // PEs with equal waits share a line, which shows the longest time.
        let mut lines: Vec<(String, Vec<u32>, Option<u64>)> = Vec::new();
        let mut add = |text: String, pe: u32, ns: Option<u64>| match lines
            .iter_mut()
            .find(|(other, _, _)| *other == text)
        {
            Some((_, pes, longest)) => {
                pes.push(pe);
                *longest = (*longest).max(ns);
            }
            None => lines.push((text, vec![pe], ns)),
        };
        for of in self.of_pe.values() {
            for wait in &of.waits {
                let Waiting { place, others, call, site, until, has_ended, .. } = wait;
                let threads = match others {
                    0 => String::new(),
                    1 => " and 1 other".into(),
                    others => format!(" and {others} others"),
                };
                let at = Site::at(site.as_ref());
                let waits = if *has_ended { "waited to the deadline" } else { "waits" };
                let until = self.describe(until);
                add(format!("{place}{threads} {waits} in `{call}`{at} {until}"), of.pe, wait.ns);
            }
            if of.left_out > 0 {
                add(format!("{} more threads wait elsewhere", of.left_out), of.pe, None);
            }
            of.runs.iter().for_each(|line| add(line.clone(), of.pe, None));
            if of.waits.is_empty() && of.runs.is_empty() {
                add("does not wait".into(), of.pe, None);
            }
        }
        (0..self.n_pes)
            .filter(|pe| !self.of_pe.contains_key(pe))
            .for_each(|pe| add("has not answered".into(), pe, None));
        writeln!(f, "waits of the job")?;
        for (text, of, ns) in lines {
            let time = ns.map_or_else(String::new, |ns| format!(", since {}", Time(ns)));
            writeln!(f, "  {}: {text}{time}", Pes(of))?;
        }
        for cycle in self.cycles() {
            let mut steps: Vec<String> = cycle.iter().map(|pe| format!("PE {pe}")).collect();
            steps.extend(steps.first().cloned());
            writeln!(f, "  cycle: {}", steps.join(" waits for "))?;
        }
        let is_waiting = |of: &PeWaits| of.waits.iter().any(|wait| !wait.has_ended);
        if self.of_pe.len() == self.n_pes as usize && self.of_pe.values().all(is_waiting) {
            writeln!(f, "  every PE waits: only operations that are under way can end these waits")?;
        }
        if self.of_pe.values().any(|of| !of.has_timeline) {
            writeln!(
                f,
                "  RUSHMEM_STATS=1 shows each call that waits, with its line; kernels on GPUs must be built with \
                 RUSHMEM_PTX_TRACE=1"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Detail;

    fn wait(until: Until) -> Waiting {
        Waiting {
            place: "block 0 thread 0".into(),
            others: 0,
            call: "wait_until".into(),
            site: Some(Site { file: "a.rs".into(), line: 3 }),
            ns: Some(2_000_000_000),
            until,
            has_ended: false,
        }
    }

    fn of(pe: u32, until: impl IntoIterator<Item = Until>) -> PeWaits {
        let mut waits = PeWaits { pe, has_timeline: true, ..PeWaits::default() };
        until.into_iter().for_each(|until| waits.add(wait(until)));
        waits
    }

    fn word(pe: u32) -> Until {
        Until::Word { pe, offset: 64, object: None, note: "eq 1".into() }
    }

    #[test]
    fn cycle_through_words_is_reported() {
        let all =
            [0, 1].map(|pe| PeWaits { changed: vec![Word { pe: 1 - pe, offset: 64 }], ..of(pe, [word(pe)]) });
        let text = JobWaits::new(2, all).to_string();
        assert_eq!(
            text,
            "waits of the job\n  PE 0: block 0 thread 0 waits in `wait_until` at a.rs:3 for the word at 0x40 of PE 0 \
             (eq 1); PE 1 has changed it before, since 2.00 s\n  PE 1: block 0 thread 0 waits in `wait_until` at \
             a.rs:3 for the word at 0x40 of PE 1 (eq 1); PE 0 has changed it before, since 2.00 s\n  cycle: PE 0 \
             waits for PE 1 waits for PE 0\n  every PE waits: only operations that are under way can end these \
             waits\n"
        );
    }

    #[test]
    fn missing_members_are_named() {
        let team = |members| Until::Team { team: (4, 7), members };
        let members = Some(vec![0, 2, 3]);
        let all = [of(0, [team(members.clone())]), of(2, [team(members.clone())]), of(1, []), of(3, [])];
        let waits = JobWaits::new(5, all);
        let text = waits.to_string();
        assert!(text.contains("PEs 0, 2: block 0 thread 0 waits in"), "{text}");
        assert!(text.contains("its team in slot 4: PE 3 has not come"), "{text}");
        assert!(
            text.contains("PEs 1, 3: does not wait") && text.contains("PE 4: has not answered"),
            "{text}"
        );
        assert!(waits.cycles().is_empty() && !text.contains("RUSHMEM_STATS"), "{text}");
        let hosts = JobWaits::new(3, [of(0, [Until::Hosts]), of(1, [Until::Hosts, team(None)])]);
        assert!(hosts.to_string().contains("for the hosts of all PEs: PE 2 has not come"), "{hosts}");
    }

    #[test]
    fn pes_are_displayed_as_ranges() {
        assert_eq!(Pes(vec![3]).to_string(), "PE 3");
        assert_eq!(Pes(vec![0, 1, 2, 5, u32::MAX, 0]).to_string(), format!("PEs 0-2, 5, {}, 0", u32::MAX));
    }

    #[test]
    fn finds_cycles_of_several_pes() {
        let peers = |all: &[(u32, &[u32])]| {
            let all: Vec<_> =
                all.iter().map(|(pe, peers)| of(*pe, peers.iter().map(|&peer| Until::Peer(peer)))).collect();
            JobWaits::new(9, all).cycles()
        };
        assert_eq!(peers(&[(0, &[1]), (1, &[2]), (2, &[3, 0]), (3, &[])]), [[0, 1, 2]]);
        assert_eq!(peers(&[(0, &[1, 2]), (1, &[2]), (2, &[3]), (3, &[2])]), [[2, 3]]);
        assert!(peers(&[(0, &[1, 2]), (1, &[2]), (2, &[])]).is_empty());
        assert!(peers(&[(0, &[0, 8])]).is_empty());
        let waits = JobWaits::new(9, [of(0, [Until::Peer(2)]), of(1, [Until::Peer(2), Until::Peer(1)])]);
        assert_eq!(waits.most_awaited(), Some((2, 2)));
    }

    #[test]
    fn threads_at_one_line_share_a_wait() {
        let mut waits = of(0, (0..3).map(|_| word(0)));
        assert_eq!((waits.waits.len(), waits.waits[0].others), (1, 2));
        (0..100).for_each(|peer| waits.add(wait(Until::Peer(peer))));
        assert_eq!((waits.waits.len(), waits.left_out), (MAX_WAITS, 100 - MAX_WAITS as u64 + 1));
    }

    #[test]
    fn open_spans_become_waits() {
        let span = |category, detail: Detail| Span {
            pe: 1,
            track: Track::Lane { block: 2, thread: 0 },
            name: "call".into(),
            category,
            site: None,
            begin: 10,
            end: None,
            detail,
        };
        let kernel = span(Category::Kernel, Detail::default());
        let team = span(Category::Collective, Detail { team: Some((0, 1)), ..Detail::default() });
        let peer = span(Category::Wait, Detail { peer: Some(3), ..Detail::default() });
        let mut waits = PeWaits { pe: 1, ..PeWaits::default() };
        waits.add_open(&[kernel.clone(), team, peer], 30, |_| Some(vec![1, 2]));
        let until: Vec<_> = waits.waits.iter().map(|wait| wait.until.clone()).collect();
        assert_eq!(until, [Until::Team { team: (0, 1), members: Some(vec![1, 2]) }, Until::Peer(3)]);
        assert_eq!((waits.waits[0].ns, waits.runs.len()), (Some(20), 0));
        let mut waits = PeWaits { pe: 1, ..PeWaits::default() };
        waits.add_open(&[kernel], 30, |_| None);
        assert_eq!(waits.runs, ["runs `call` in block 2 thread 0 for 20 ns"]);
    }
}
