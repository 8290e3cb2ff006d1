//! Summarizes a trace in tables: waits by source line, traffic by peer, and the PEs that arrived last at collective
//! calls.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::arrows::{Meeting, collectives};
use crate::span::{Category, Site, Span};
use crate::time::Time;
use crate::trace::Trace;

/// Maximum number of rows in the table of waits.
const MAX_WAIT_ROWS: usize = 12;

/// Summary tables of a trace, for display as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Duration of the trace, from its first span to its last, in nanoseconds.
    pub ns: u64,
    /// Number of spans in the trace.
    pub spans: usize,
    /// Number of spans that were discarded while recording.
    pub dropped: u64,
    /// Upper bound on the difference between the clocks of machines, in nanoseconds.
    pub clock_error_ns: u64,
    /// Waits by source line, the longest total time first. Only the first few lines are kept.
    pub waits: Vec<WaitLine>,
    /// Traffic from each PE to each peer.
    pub traffic: Vec<Traffic>,
    /// PEs that were the last to arrive at collective calls, those that delayed others the longest first.
    pub last: Vec<Last>,
    /// Descriptions of the spans that the trace leaves open.
    pub open: Vec<String>,
}

/// All waits of one kind of call at one source line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitLine {
    /// Name of the call that waits.
    pub call: String,
    /// Source line as `FILE:LINE`, or empty if it is unknown.
    pub line: String,
    /// Number of waits, over all PEs.
    pub count: u64,
    /// Total time of the waits, in nanoseconds.
    pub total_ns: u64,
    /// Time of the longest wait, in nanoseconds.
    pub longest_ns: u64,
    /// PE that spent the most time waiting at this line.
    pub pe: u32,
}

/// Traffic that a PE causes with one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// PE that posts the operations.
    pub pe: u32,
    /// The peer's PE number.
    pub peer: u32,
    /// Number of calls by the host and by kernels that access the peer.
    pub calls: u64,
    /// Total payload of the calls that access the peer, in bytes.
    pub bytes: u64,
    /// Number of work-queue entries (WQEs) that the NIC executed.
    pub wqes: u64,
    /// Number of doorbells rung for work-queue entries that access the peer.
    pub doorbells: u64,
    /// Number of packets that were retransmitted to the peer.
    pub retransmissions: u64,
}

impl Traffic {
    /// Counts a span. Arrivals and received packets are ignored, since they belong to the peer's own traffic.
    pub(crate) fn add(&mut self, span: &Span) {
        match span.category {
            Category::Nic if span.is_doorbell() => self.doorbells += 1,
            Category::Nic if span.is_wqe() => self.wqes += 1,
            Category::Packet if span.name == "retransmission" => self.retransmissions += 1,
            Category::Call | Category::Host => {
                self.calls += 1;
                self.bytes += span.detail.bytes.unwrap_or(0);
            }
            _ => {}
        }
    }

    /// Returns whether any calls, WQEs, doorbells or retransmissions have been counted.
    pub(crate) fn is_any(&self) -> bool {
        [self.calls, self.wqes, self.doorbells, self.retransmissions] != [0; 4]
    }
}

/// How often, and for how long, a PE made others wait in collective calls by arriving last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Last {
    /// PE number.
    pub pe: u32,
    /// Number of collective calls at which the PE was the last to arrive.
    pub calls: u64,
    /// Total time that the other members waited for this PE, in nanoseconds.
    pub held_up_ns: u64,
}

impl Summary {
    /// Computes the tables from the spans of a trace.
    pub fn new(trace: &Trace) -> Self {
        let now = trace.last_ns();
        Self {
            ns: now - trace.first_ns(),
            spans: trace.spans.len(),
            dropped: trace.dropped,
            clock_error_ns: trace.clock_error_ns,
            waits: waits(trace, now),
            traffic: traffic(trace),
            last: last(trace),
            open: trace.spans.iter().filter(|span| span.end.is_none()).map(|span| open(span, now)).collect(),
        }
    }
}

/// Describes a span that is still open at time `now`, such as a call that has not returned.
fn open(span: &Span, now: u64) -> String {
    let Span { pe, track, name, .. } = span;
    let (at, time) = (Site::at(span.site.as_ref()), Time(span.ns(now)));
    let mut text = format!("PE {pe} {track} has been in `{name}`{at} for {time}");
    if let Some(word) = span.detail.awaits {
        text += &format!(", waiting for the word at {:#x}", word.offset);
        if let Some(object) = &span.detail.object {
            text += &format!(", {object}");
        }
    }
    if let Some(note) = &span.detail.note {
        text += &format!(" ({note})");
    }
    text
}

#[derive(Clone, Copy, Default)]
struct Waits {
    count: u64,
    total_ns: u64,
    longest_ns: u64,
}

fn waits(trace: &Trace, now: u64) -> Vec<WaitLine> {
    let mut lines: BTreeMap<(String, String), BTreeMap<u32, Waits>> = BTreeMap::new();
    for span in trace.spans.iter().filter(|span| span.is_wait()) {
        let line = span.site.as_ref().map_or_else(String::new, ToString::to_string);
        let of = lines.entry((span.name.to_string(), line)).or_default().entry(span.pe).or_default();
        let ns = span.ns(now);
        of.count += 1;
        of.total_ns += ns;
        of.longest_ns = of.longest_ns.max(ns);
    }
    let mut waits: Vec<WaitLine> = lines
        .into_iter()
        .map(|((call, line), of_pes)| WaitLine {
            call,
            line,
            count: of_pes.values().map(|of| of.count).sum(),
            total_ns: of_pes.values().map(|of| of.total_ns).sum(),
            longest_ns: of_pes.values().map(|of| of.longest_ns).max().unwrap_or(0),
            pe: of_pes.iter().max_by_key(|(_, of)| of.total_ns).map_or(0, |(&pe, _)| pe),
        })
        .collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.total_ns));
    waits.truncate(MAX_WAIT_ROWS);
    waits
}

fn traffic(trace: &Trace) -> Vec<Traffic> {
    let mut all: BTreeMap<(u32, u32), Traffic> = BTreeMap::new();
    for span in &trace.spans {
        let Some(peer) = span.detail.peer else { continue };
        let pe = span.pe;
        all.entry((pe, peer)).or_insert_with(|| Traffic { pe, peer, ..Traffic::default() }).add(span);
    }
    all.into_values().filter(Traffic::is_any).collect()
}

fn last(trace: &Trace) -> Vec<Last> {
    let mut all: BTreeMap<u32, Last> = BTreeMap::new();
    for Meeting { last, members } in collectives(&trace.spans) {
        let Span { pe, begin, .. } = trace.spans[last];
        let of = all.entry(pe).or_insert(Last { pe, calls: 0, held_up_ns: 0 });
        of.calls += 1;
        of.held_up_ns += members.iter().map(|&i| begin - trace.spans[i].begin).sum::<u64>();
    }
    let mut all: Vec<Last> = all.into_values().collect();
    all.sort_by_key(|last| std::cmp::Reverse(last.held_up_ns));
    all
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} spans in {}", self.spans, Time(self.ns))?;
        if self.dropped > 0 {
            writeln!(f, "{} spans were not kept; raise RUSHMEM_TRACE_LIMIT", self.dropped)?;
        }
        if self.clock_error_ns > 0 {
            writeln!(f, "times of different machines agree within {}", Time(self.clock_error_ns))?;
        }
        if !self.waits.is_empty() {
            writeln!(
                f,
                "\nwaits by line\n{:>10} {:>10} {:>8}  longest PE, call, line",
                "total", "longest", "count"
            )?;
        }
        for WaitLine { call, line, count, total_ns, longest_ns, pe } in &self.waits {
            let (total, longest) = (Time(*total_ns), Time(*longest_ns));
            writeln!(f, "{total:>10} {longest:>10} {count:>8}  PE {pe}, {call}, {line}")?;
        }
        if !self.traffic.is_empty() {
            writeln!(
                f,
                "\ntraffic\n{:>12} {:>8} {:>12} {:>8} {:>10} {:>8}",
                "PE to peer", "calls", "bytes", "WQEs", "doorbells", "again"
            )?;
        }
        for Traffic { pe, peer, calls, bytes, wqes, doorbells, retransmissions } in &self.traffic {
            let way = format!("{pe} to {peer}");
            writeln!(f, "{way:>12} {calls:>8} {bytes:>12} {wqes:>8} {doorbells:>10} {retransmissions:>8}")?;
        }
        if !self.last.is_empty() {
            writeln!(f, "\nlast to collective calls\n{:>4} {:>8} {:>12}", "PE", "calls", "held up")?;
        }
        for Last { pe, calls, held_up_ns } in &self.last {
            writeln!(f, "{pe:>4} {calls:>8} {:>12}", Time(*held_up_ns))?;
        }
        if !self.open.is_empty() {
            writeln!(f, "\nnot ended")?;
        }
        self.open.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::{Detail, Track, Word};

    #[test]
    fn traffic_counts_the_work_of_nics() {
        let span = |pe, peer, name: &'static str, category, track, index| Span {
            pe,
            track,
            name: name.into(),
            category,
            site: None,
            begin: 0,
            end: Some(1),
            detail: Detail { peer: Some(peer), index, bytes: Some(8), ..Detail::default() },
        };
        let queue = || Track::Queue { qpn: 7 };
        let spans = vec![
            span(0, 1, "doorbell", Category::Nic, queue(), None),
            span(0, 1, "RDMA_WRITE", Category::Nic, queue(), Some(0)),
            span(0, 1, "RDMA_WRITE", Category::Nic, queue(), Some(1)),
            span(0, 1, "fault", Category::Nic, queue(), None),
            span(0, 1, "RDMA_WRITE_ONLY", Category::Packet, Track::Packets, Some(9)),
            span(0, 1, "retransmission", Category::Packet, Track::Packets, Some(9)),
            span(1, 0, "RDMA_WRITE", Category::Nic, Track::Arrivals, None),
            span(1, 0, "ACKNOWLEDGE", Category::Packet, Track::Packets, Some(9)),
        ];
        let expected =
            Traffic { pe: 0, peer: 1, wqes: 2, doorbells: 1, retransmissions: 1, ..Traffic::default() };
        assert_eq!(Summary::new(&Trace { spans, dropped: 0, ..Trace::default() }).traffic, [expected]);
    }

    #[test]
    fn tables_name_lines_peers_and_the_last_pe() {
        let site = || Some(Site { file: "a.rs".into(), line: 3 });
        let span = |pe, name: &'static str, category, begin, end, detail| Span {
            pe,
            track: Track::Lane { block: 0, thread: 0 },
            name: name.into(),
            category,
            site: site(),
            begin,
            end,
            detail,
        };
        let put = Detail { peer: Some(1), bytes: Some(100), ..Detail::default() };
        let team = Detail { team: Some((0, 1)), ..Detail::default() };
        let wait = Detail { awaits: Some(Word { pe: 0, offset: 16 }), ..Detail::default() };
        let spans = vec![
            span(0, "put", Category::Call, 0, Some(10), put.clone()),
            span(0, "put", Category::Call, 10, Some(20), put),
            span(0, "barrier", Category::Collective, 20, Some(2_000), team.clone()),
            span(1, "barrier", Category::Collective, 1_500, Some(2_000), team),
            span(0, "wait_until", Category::Wait, 2_000, None, wait),
        ];
        let summary = Summary::new(&Trace { spans, dropped: 1, clock_error_ns: 2_000 });
        assert_eq!((summary.traffic[0].calls, summary.traffic[0].bytes), (2, 200));
        assert_eq!(summary.last, [Last { pe: 1, calls: 1, held_up_ns: 1_480 }]);
        assert_eq!((&*summary.waits[0].call, summary.waits[0].total_ns), ("barrier", 2_480));
        let text = summary.to_string();
        for part in [
            "2.5 us",
            "agree within 2.0 us",
            "PE 0, barrier, a.rs:3",
            "waiting for the word at 0x10",
            "raise RUSHMEM_TRACE_LIMIT",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
