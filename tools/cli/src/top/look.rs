//! Snapshots of the running jobs, and the changes from one snapshot to the next.
//!
//! The files come from other processes and are not trusted: sums saturate, and texts are sanitized.

use std::collections::BTreeMap;

use rushmem_trace::{JobWaits, Live, Site, TeamCalls, Time, Traffic, Waiting};

use super::text::harmless;

/// Maximum number of waits and of peers that are shown for a PE.
const MAX_ROWS: usize = 4;

/// States of all running PEs, by job and number of PEs, then by PE.
#[derive(Default)]
pub(super) struct Look(BTreeMap<(u32, u32), BTreeMap<u32, Live>>);

impl Look {
    pub(super) fn new(live: Vec<Live>) -> Self {
        let mut jobs: BTreeMap<_, BTreeMap<u32, Live>> = BTreeMap::new();
        for live in live {
            jobs.entry((live.job, live.n_pes)).or_default().insert(live.pe, live);
        }
        Self(jobs)
    }

    /// Formats all jobs, with the changes since `before`.
    pub(super) fn to_text(&self, before: &Self) -> String {
        if self.0.is_empty() {
            return "no job of this user shows itself here; start one with RUSHMEM_STATS=1\n".into();
        }
        let empty = BTreeMap::new();
        let job = |(key, pes): (&(u32, u32), &BTreeMap<u32, Live>)| {
            job_text(*key, pes, before.0.get(key).unwrap_or(&empty))
        };
        self.0.iter().map(job).collect::<Vec<_>>().join("\n")
    }
}

/// Formats the state of one job's PEs, with the changes since `before`.
fn job_text((job, n_pes): (u32, u32), pes: &BTreeMap<u32, Live>, before: &BTreeMap<u32, Live>) -> String {
    let program = pes.values().next().map_or_else(String::new, |live| harmless(&live.program));
    let mut text = format!("job {job:08x}: {program}, {} of {n_pes} PEs are here\n", pes.len());
    // Listing all members takes memory for `n_pes` PEs, which a file may exaggerate.
    let is_whole = pes.len() == n_pes as usize;
    let waits = JobWaits::new(n_pes, pes.values().map(|live| live.waits.clone()));
    for (pe, live) in pes {
        let earlier = before.get(pe).filter(|earlier| earlier.pid == live.pid);
        text += &pe_text(live, earlier);
        for wait in live.waits.waits.iter().take(MAX_ROWS) {
            let until = if is_whole { waits.describe(&wait.until) } else { String::new() };
            text += &wait_text(wait, &until);
        }
        for line in live.waits.runs.iter().take(MAX_ROWS) {
            text += &format!("        {}\n", harmless(line));
        }
    }
    match (slowest(pes, before), is_whole.then(|| waits.most_awaited()).flatten()) {
        (Some((pe, calls, ns)), _) => {
            let calls =
                if calls == 1 { "1 collective call".into() } else { format!("{calls} collective calls") };
            text += &format!("  slowest: PE {pe}, the last to {calls}; the others waited {}\n", Time(ns));
        }
        (None, Some((pe, calls))) => {
            let calls = if calls == 1 { "1 call waits".into() } else { format!("{calls} calls wait") };
            text += &format!("  slowest: PE {pe}, for which {calls}\n");
        }
        (None, None) => {}
    }
    text
}

/// Formats the traffic and waiting time of a PE, since `before` or since it started.
fn pe_text(live: &Live, before: Option<&Live>) -> String {
    let since = |now: u64, before: Option<u64>| now.saturating_sub(before.unwrap_or(0));
    let waited = since(live.totals.wait_ns, before.map(|before| before.totals.wait_ns));
    let mut text = format!("  PE {}, process {}: waited {}\n", live.pe, live.pid, Time(waited));
    let mut peers: Vec<Traffic> = Vec::new();
    for (peer, now) in &live.totals.traffic {
        let old = before.and_then(|before| before.totals.traffic.get(peer));
        let change = |field: fn(&Traffic) -> u64| since(field(now), old.map(field));
        let traffic = Traffic {
            pe: live.pe,
            peer: *peer,
            calls: change(|of| of.calls),
            bytes: change(|of| of.bytes),
            wqes: change(|of| of.wqes),
            doorbells: change(|of| of.doorbells),
            retransmissions: change(|of| of.retransmissions),
        };
        if traffic != (Traffic { pe: live.pe, peer: *peer, ..Traffic::default() }) {
            peers.push(traffic);
        }
    }
    peers.sort_by_key(|of| std::cmp::Reverse((of.bytes, of.calls)));
    for Traffic { peer, calls, bytes, wqes, doorbells, retransmissions, .. } in peers.iter().take(MAX_ROWS) {
        text += &format!("        to PE {peer}: {calls} calls, {bytes} bytes");
        if *doorbells > 0 {
            text += &format!(", {:.1} WQEs per doorbell", *wqes as f64 / *doorbells as f64);
        }
        if *retransmissions > 0 {
            text += &format!(", {retransmissions} packets sent again");
        }
        text += "\n";
    }
    if peers.len() > MAX_ROWS {
        text += &format!("        and {} more peers\n", peers.len() - MAX_ROWS);
    }
    text
}

fn wait_text(wait: &Waiting, until: &str) -> String {
    let Waiting { place, others, call, site, ns, .. } = wait;
    let threads = if *others > 0 { format!(" and {others} more") } else { String::new() };
    let at = Site::at(site.as_ref());
    let time = ns.map_or_else(String::new, |ns| format!(" since {}", Time(ns)));
    let text = format!("{place}{threads} waits in `{call}`{at}{time} {until}");
    format!("        {}\n", harmless(text.trim_end()))
}

/// Team of a collective call, and the call's index in it.
type CallKey = ((u32, u32), u64);

/// Returns the PE that held up the others most in collective calls since `before`, in how many calls it was the last
/// to arrive, and how long the others waited for it.
fn slowest(pes: &BTreeMap<u32, Live>, before: &BTreeMap<u32, Live>) -> Option<(u32, u64, u64)> {
    let mut calls: BTreeMap<CallKey, Vec<(u64, u32)>> = BTreeMap::new();
    for (&pe, live) in pes {
        for (team, TeamCalls { before: first, begins }) in &live.totals.teams {
            let old = before.get(&pe).and_then(|before| before.totals.teams.get(team));
            let seen = old.map_or(0, |old| old.before.saturating_add(old.begins.len() as u64));
            for (number, &begin) in (0..).map(|i| first.saturating_add(i)).zip(begins) {
                if number >= seen {
                    calls.entry((*team, number)).or_default().push((begin, pe));
                }
            }
        }
    }
    let mut late: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for members in calls.values().filter(|members| members.len() > 1) {
        let &(last, pe) = members.iter().max()?;
        let of = late.entry(pe).or_default();
        of.0 += 1;
        let held_up = members.iter().map(|(begin, _)| last.saturating_sub(*begin));
        of.1 = held_up.fold(of.1, u64::saturating_add);
    }
    late.into_iter().max_by_key(|(_, (_, ns))| *ns).map(|(pe, (calls, ns))| (pe, calls, ns))
}

#[cfg(test)]
mod tests {
    use rushmem_trace::{PeWaits, Totals, Until};

    use super::*;

    fn live(pe: u32, bytes: u64, begins: &[u64]) -> Live {
        let traffic =
            Traffic { pe, peer: 1 - pe, calls: 2, bytes, wqes: 6, doorbells: 4, retransmissions: 1 };
        let team = TeamCalls { before: 0, begins: begins.iter().copied().collect() };
        let totals = Totals {
            traffic: [(1 - pe, traffic)].into(),
            wait_ns: 1000 * bytes,
            teams: [((0, 1), team)].into(),
        };
        let waits = PeWaits { pe, has_timeline: true, ..PeWaits::default() };
        Live::new(9, (pe, 2), 5, totals, waits)
    }

    #[test]
    fn snapshot_shows_changes() {
        let first = Look::new(vec![live(0, 100, &[10]), live(1, 100, &[40])]);
        let text = first.to_text(&Look::default());
        let id = std::process::id();
        for part in [
            &*format!("  PE 0, process {id}: waited 100.0 us\n"),
            "        to PE 1: 2 calls, 100 bytes, 1.5 WQEs per doorbell, 1 packets sent again\n",
            "  slowest: PE 1, the last to 1 collective call; the others waited 30 ns\n",
            ", 2 of 2 PEs are here\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let second = Look::new(vec![live(0, 130, &[10, 90, 100]), live(1, 100, &[40, 50, 60])]);
        let text = second.to_text(&first);
        assert!(text.contains("        to PE 1: 0 calls, 30 bytes\n"), "{text}");
        assert!(!text.contains("to PE 0:"), "{text}");
        assert!(text.contains("slowest: PE 0, the last to 2 collective calls"), "{text}");
        // A file may lie, so totals can decrease.
        let text = first.to_text(&second);
        assert!(text.contains("PE 0, process") && text.contains("waited 0 ns"), "{text}");
    }

    #[test]
    fn waits_are_shown_without_control_characters() {
        let mut waiting = live(0, 0, &[]);
        waiting.program = "a\x1b[2Jb".into();
        waiting.waits.add(Waiting {
            place: "host\n".into(),
            others: u64::MAX - 1,
            call: "wait\x07".into(),
            site: Some(Site { file: "a.rs".into(), line: 3 }),
            ns: Some(2_000_000_000),
            until: Until::Peer(1),
            has_ended: false,
        });
        let text = Look::new(vec![waiting, live(1, 0, &[])]).to_text(&Look::default());
        assert!(text.starts_with("job 00000009: a?[2Jb, 2 of 2"), "{text}");
        assert!(text.contains("waits in `wait?` at a.rs:3 since 2.00 s for PE 1\n"), "{text}");
        assert!(text.contains("slowest: PE 1, for which 18446744073709551615 calls wait\n"), "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }

    #[test]
    fn shows_files_with_arbitrary_numbers() {
        let other = || live(1, 7, &[30]);
        let mut waiting = live(0, 100, &[10, 20]);
        let until = Until::Team { team: (0, 1), members: Some(vec![0, 1]) };
        waiting.waits.add(Waiting {
            place: "host".into(),
            others: 1,
            call: "barrier".into(),
            site: None,
            ns: Some(5),
            until,
            has_ended: false,
        });
        let text = serde_json::to_string(&waiting).unwrap();
        let mut shown = 0;
        for i in (0..text.len()).filter(|&i| text.as_bytes()[i].is_ascii_digit()) {
            for number in ["18446744073709551615", "4294967295", "0"] {
                let changed = [&text[..i], number, &text[i + 1..]].concat();
                if let Ok(live) = serde_json::from_str::<Live>(&changed) {
                    let (one, two) = (Look::new(vec![live, other()]), Look::new(vec![waiting.clone()]));
                    shown += usize::from(!one.to_text(&two).is_empty() && !two.to_text(&one).is_empty());
                }
            }
        }
        assert!(shown > 50, "{shown}");
    }

    #[test]
    fn absence_of_jobs_is_reported() {
        assert!(Look::default().to_text(&Look::default()).contains("RUSHMEM_STATS=1"));
    }
}
