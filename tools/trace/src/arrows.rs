//! Computes the arrows of a timeline: from an operation to the wait that it satisfied, and from the last member of a
//! collective call to the others.

use std::collections::{BTreeMap, HashMap};

use crate::span::{Category, Span, Track, Word};
use crate::trace::Trace;

/// Tolerance for the clocks of two PEs on one machine, in nanoseconds. By this much, a wait may appear to finish before
/// the operation that satisfied it has started.
const CLOCK_ERROR_NS: u64 = 5_000;

/// An arrow of the timeline, which may pass through several spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// Kind of arrow: `put`, `signal` or `last member`.
    pub name: &'static str,
    /// Indices in [`Trace::spans`] of the spans that the arrow passes, each with the time at which it does.
    pub points: Vec<(usize, u64)>,
}

/// Finds all arrows between the spans of a trace.
pub fn arrows(trace: &Trace) -> Vec<Arrow> {
    let spans = &trace.spans;
    let error_ns = CLOCK_ERROR_NS.max(2 * trace.clock_error_ns.min(u64::MAX / 4));
    let mut all = of_words(spans, error_ns);
    all.extend(of_collectives(spans));
    all
}

/// Indices of the spans that may start an arrow or be passed by one, sorted by start time.
struct Operations {
    /// Operations that change a word of symmetric memory, by word.
    changes: HashMap<Word, Vec<usize>>,
    /// Executed work-queue entries, by PE, peer, and offset in the peer's memory.
    wqes: HashMap<(u32, u32, u64), Vec<usize>>,
    /// Arrivals of data at a NIC, by PE and offset in its memory.
    arrivals: HashMap<(u32, u64), Vec<usize>>,
    /// Doorbells of send queues, by PE and QPN.
    doorbells: HashMap<(u32, u32), Vec<usize>>,
    /// Puts without a signal, by PE, track of the caller, and peer.
    puts: HashMap<(u32, Track, u32), Vec<usize>>,
}

impl Operations {
    fn new(spans: &[Span]) -> Self {
        let mut all = Self {
            changes: HashMap::new(),
            wqes: HashMap::new(),
            arrivals: HashMap::new(),
            doorbells: HashMap::new(),
            puts: HashMap::new(),
        };
        let mut order: Vec<usize> = (0..spans.len()).collect();
        order.sort_by_key(|&i| spans[i].begin);
        for i in order {
            all.add(i, &spans[i]);
        }
        all
    }

    fn add(&mut self, i: usize, span: &Span) {
        let detail = &span.detail;
        match (span.category, &span.track) {
            (Category::Nic, Track::Queue { qpn }) if span.is_doorbell() => {
                self.doorbells.entry((span.pe, *qpn)).or_default().push(i);
            }
            (Category::Nic, Track::Queue { .. }) => {
                if let (Some(peer), Some(remote)) = (detail.peer, detail.remote) {
                    self.wqes.entry((span.pe, peer, remote)).or_default().push(i);
                }
            }
            (Category::Nic, Track::Arrivals) => {
                if let Some(remote) = detail.remote {
                    self.arrivals.entry((span.pe, remote)).or_default().push(i);
                }
            }
            (Category::Call | Category::Host, track) => {
                if let Some(word) = detail.changes {
                    self.changes.entry(word).or_default().push(i);
                } else if let (Some(peer), Some(_)) = (detail.peer, detail.remote) {
                    self.puts.entry((span.pe, track.clone(), peer)).or_default().push(i);
                }
            }
            _ => {}
        }
    }
}

/// Returns the last span in `indices`, which are sorted by start time, that starts at or before `time`.
fn last_before(spans: &[Span], indices: &[usize], time: u64) -> Option<usize> {
    let after = indices.partition_point(|&i| spans[i].begin <= time);
    indices[..after].last().copied()
}

/// Returns the first span in `indices`, which are sorted by start time, that starts at or after `time`.
fn first_after(spans: &[Span], indices: &[usize], time: u64) -> Option<usize> {
    let before = indices.partition_point(|&i| spans[i].begin < time);
    indices.get(before).copied()
}

/// Returns the arrows from operations that change a word to the waits for that word. `error_ns` bounds the difference
/// between the clocks of two PEs.
fn of_words(spans: &[Span], error_ns: u64) -> Vec<Arrow> {
    let operations = Operations::new(spans);
    let mut all = Vec::new();
    for (wait, span) in spans.iter().enumerate() {
        // A wait that is still open has not been satisfied.
        let (Some(word), Some(end)) = (span.detail.awaits, span.end) else { continue };
        let Some(changes) = operations.changes.get(&word) else { continue };
        // The last change before the end of the wait is taken for the one that satisfied it.
        let Some(change) = last_before(spans, changes, end.saturating_add(error_ns)) else { continue };
        let to = (wait, end);
        all.push(Arrow { name: "signal", points: path(spans, &operations, change, to) });
        let from = &spans[change];
        let key = (from.pe, from.track.clone(), word.pe);
        // The wait also announces the last put of the same lane to that peer: typically data followed by its flag.
        let put = operations.puts.get(&key).and_then(|puts| last_before(spans, puts, from.begin));
        if let Some(put) = put {
            all.push(Arrow { name: "put", points: path(spans, &operations, put, to) });
        }
    }
    all
}

/// Returns the points of an operation's arrow: its call, its doorbell, its WQEs, their arrivals, and the wait `to`.
fn path(spans: &[Span], operations: &Operations, call: usize, to: (usize, u64)) -> Vec<(usize, u64)> {
    let detail = &spans[call].detail;
    let mut points = vec![call];
    if let Some(peer) = detail.changes.map(|word| word.pe).or(detail.peer) {
        let word = detail.changes.map(|word| word.offset).filter(|&word| Some(word) != detail.remote);
        for remote in detail.remote.into_iter().chain(word) {
            points.extend(way_through_nics(spans, operations, call, (peer, remote)));
        }
    }
    // Drop what starts after the wait is over: it belongs to a later operation on the same memory.
    points.retain(|&i| spans[i].begin <= to.1);
    points.sort_by_key(|&i| (spans[i].begin, i));
    points.dedup();
    points.into_iter().map(|i| (i, spans[i].begin)).chain([to]).collect()
}

/// Returns the doorbell, WQE and arrival that belong to a call which accesses offset `remote` of `peer`, as far as they
/// were recorded.
fn way_through_nics(
    spans: &[Span],
    operations: &Operations,
    call: usize,
    (peer, remote): (u32, u64),
) -> Vec<usize> {
    let Span { pe, begin, .. } = spans[call];
    let wqes = operations.wqes.get(&(pe, peer, remote));
    let Some(wqe) = wqes.and_then(|wqes| first_after(spans, wqes, begin)) else { return Vec::new() };
    let posted = spans[wqe].begin;
    let doorbells = spans[wqe].detail.qpn.and_then(|qpn| operations.doorbells.get(&(pe, qpn)));
    let doorbell = doorbells.and_then(|all| last_before(spans, all, posted));
    let arrivals = operations.arrivals.get(&(peer, remote));
    let arrival = arrivals.and_then(|all| first_after(spans, all, posted));
    doorbell.filter(|&i| spans[i].begin >= begin).into_iter().chain([wqe]).chain(arrival).collect()
}

/// A collective call of all members of a team, as indices of the members' spans.
pub(crate) struct Meeting {
    /// Span of the member that arrived last.
    pub(crate) last: usize,
    pub(crate) members: Vec<usize>,
}

/// Groups the spans of collective calls: the n-th calls of all members of a team belong together.
pub(crate) fn collectives(spans: &[Span]) -> Vec<Meeting> {
    let mut of_pe: BTreeMap<((u32, u32), u32), Vec<usize>> = BTreeMap::new();
    for (i, span) in spans.iter().enumerate() {
        if let (Category::Collective, Some(team)) = (span.category, span.detail.team) {
            of_pe.entry((team, span.pe)).or_default().push(i);
        }
    }
    // The members of a team make the same collective calls in the same order, so their n-th calls belong together.
    let mut calls: BTreeMap<((u32, u32), usize), Vec<usize>> = BTreeMap::new();
    for ((team, _), mut of_member) in of_pe {
        of_member.sort_by_key(|&i| spans[i].begin);
        for (number, i) in of_member.into_iter().enumerate() {
            calls.entry((team, number)).or_default().push(i);
        }
    }
    let meeting = |members: Vec<usize>| {
        let last = *members.iter().max_by_key(|&&i| spans[i].begin)?;
        (members.len() > 1).then_some(Meeting { last, members })
    };
    calls.into_values().filter_map(meeting).collect()
}

/// Returns arrows from the last member of each collective call to the others.
fn of_collectives(spans: &[Span]) -> Vec<Arrow> {
    let mut all = Vec::new();
    for Meeting { last, members } in collectives(spans) {
        for &other in members.iter().filter(|&&i| i != last) {
            let Some(end) = spans[other].end else { continue };
            let points = vec![(last, spans[last].begin), (other, end)];
            all.push(Arrow { name: "last member", points });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Detail;

    fn span(pe: u32, track: Track, category: Category, (begin, end): (u64, u64), detail: Detail) -> Span {
        Span { pe, track, name: "call".into(), category, site: None, begin, end: Some(end), detail }
    }

    const LANE: Track = Track::Lane { block: 0, thread: 0 };
    const WORD: Word = Word { pe: 1, offset: 64 };

    fn points(trace: &Trace) -> Vec<(&'static str, Vec<usize>)> {
        let ids = |arrow: Arrow| (arrow.name, arrow.points.into_iter().map(|(i, _)| i).collect());
        arrows(trace).into_iter().map(ids).collect()
    }

    #[test]
    fn put_and_its_flag_lead_to_the_wait() {
        let put = Detail { peer: Some(1), remote: Some(0), bytes: Some(8), ..Detail::default() };
        let flag = Detail { changes: Some(WORD), ..Detail::default() };
        let wqe = Detail { peer: Some(1), qpn: Some(5), remote: Some(64), ..Detail::default() };
        let arrival = Detail { remote: Some(64), ..Detail::default() };
        let wait = Detail { awaits: Some(WORD), ..Detail::default() };
        let spans = vec![
            span(0, LANE, Category::Call, (10, 20), put),
            span(0, LANE, Category::Call, (30, 40), flag.clone()),
            span(0, Track::Queue { qpn: 5 }, Category::Nic, (35, 60), wqe),
            span(1, Track::Arrivals, Category::Nic, (50, 50), arrival),
            span(1, LANE, Category::Wait, (0, 55), wait),
            // This change is later, so it cannot have satisfied the wait.
            span(0, LANE, Category::Call, (100_000, 100_010), flag),
        ];
        let trace = Trace { spans, ..Trace::default() };
        assert_eq!(points(&trace), [("signal", vec![1, 2, 3, 4]), ("put", vec![0, 4])]);
    }

    #[test]
    fn arrow_passes_through_the_nics() {
        let call = Detail { peer: Some(1), remote: Some(0), changes: Some(WORD), ..Detail::default() };
        let wqe = |remote| Detail { peer: Some(1), qpn: Some(5), remote: Some(remote), ..Detail::default() };
        let queue = || Track::Queue { qpn: 5 };
        let doorbell = |at| Span {
            name: "doorbell".into(),
            ..span(0, queue(), Category::Nic, (at, at), Detail { qpn: Some(5), ..Detail::default() })
        };
        let arrival = |remote| Detail { remote: Some(remote), ..Detail::default() };
        let wait = Detail { awaits: Some(WORD), ..Detail::default() };
        let spans = vec![
            doorbell(5),
            span(0, LANE, Category::Call, (10, 20), call),
            doorbell(30),
            span(0, queue(), Category::Nic, (31, 60), wqe(0)),
            span(1, Track::Arrivals, Category::Nic, (40, 45), arrival(0)),
            span(0, queue(), Category::Nic, (32, 70), wqe(64)),
            span(1, Track::Arrivals, Category::Nic, (50, 52), arrival(64)),
            span(1, LANE, Category::Wait, (0, 55), wait),
            // A later WQE to the same offset is not part of the path.
            span(0, queue(), Category::Nic, (80, 90), wqe(64)),
        ];
        let trace = Trace { spans, dropped: 0, ..Trace::default() };
        assert_eq!(points(&trace), [("signal", vec![1, 2, 3, 5, 4, 6, 7])]);
    }

    #[test]
    fn last_member_holds_up_the_others() {
        let team = Detail { team: Some((1, 1)), ..Detail::default() };
        let call = |pe, begin| span(pe, LANE, Category::Collective, (begin, 100), team.clone());
        let trace = Trace { spans: vec![call(0, 10), call(1, 90), call(2, 20)], ..Trace::default() };
        assert_eq!(points(&trace), [("last member", vec![1, 0]), ("last member", vec![1, 2])]);
    }
}
