//! Running totals of a PE over all its spans, including those that are not kept.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::span::{Category, Span};
use crate::summary::Traffic;

/// Maximum number of recent collective calls that are remembered per team.
const MAX_KEPT_CALLS: usize = 64;

/// Traffic, wait time and collective calls of a PE since the job started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Traffic with each peer, by the peer's rank.
    pub traffic: BTreeMap<u32, Traffic>,
    /// Total time of all completed waits, in nanoseconds. Waits of concurrent threads add up.
    pub wait_ns: u64,
    /// Recent collective calls of each team, by the team's slot and generation.
    #[serde(with = "as_list")]
    pub teams: BTreeMap<(u32, u32), TeamCalls>,
}

/// Start times of a team's most recent collective calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TeamCalls {
    /// Number of earlier collective calls, whose start times have been discarded.
    pub before: u64,
    /// Start times of the most recent calls, oldest first, in nanoseconds since 1970.
    pub begins: VecDeque<u64>,
}

impl Totals {
    /// Updates the totals when a span is opened.
    pub(crate) fn begin(&mut self, span: &Span) {
        if let (Category::Collective, Some(team)) = (span.category, span.detail.team) {
            let calls = self.teams.entry(team).or_default();
            calls.begins.push_back(span.begin);
            if calls.begins.len() > MAX_KEPT_CALLS {
                calls.begins.pop_front();
                calls.before += 1;
            }
        }
    }

    /// Updates the totals when a span is closed.
    pub(crate) fn end(&mut self, span: &Span) {
        if let Some(peer) = span.detail.peer {
            let pe = span.pe;
            self.traffic.entry(peer).or_insert_with(|| Traffic { pe, peer, ..Traffic::default() }).add(span);
        }
        if span.is_wait() {
            self.wait_ns += span.ns(span.begin);
        }
    }
}

/// Serializes the map of teams as a list, because JSON keys must be strings.
mod as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::TeamCalls;

    pub(super) fn serialize<S: Serializer>(
        teams: &BTreeMap<(u32, u32), TeamCalls>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        teams.iter().collect::<Vec<_>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<(u32, u32), TeamCalls>, D::Error> {
        Ok(Vec::deserialize(from)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::{Detail, Track};

    #[test]
    fn totals_count_spans() {
        let span = |category, begin, end, detail| Span {
            pe: 1,
            track: Track::Host,
            name: "call".into(),
            category,
            site: None,
            begin,
            end: Some(end),
            detail,
        };
        let put = Detail { peer: Some(2), bytes: Some(8), ..Detail::default() };
        let team = Detail { team: Some((0, 1)), ..Detail::default() };
        let mut totals = Totals::default();
        let calls =
            (0..=MAX_KEPT_CALLS as u64).map(|i| span(Category::Collective, 10 * i, 10 * i + 3, team.clone()));
        for span in calls.chain([span(Category::Call, 5, 9, put)]) {
            totals.begin(&span);
            totals.end(&span);
        }
        assert_eq!((totals.traffic[&2].calls, totals.traffic[&2].bytes), (1, 8));
        assert_eq!(totals.wait_ns, 3 * (MAX_KEPT_CALLS as u64 + 1));
        let calls = &totals.teams[&(0, 1)];
        assert_eq!((calls.before, calls.begins.len(), calls.begins[0]), (1, MAX_KEPT_CALLS, 10));
        let text = serde_json::to_string(&totals).unwrap();
        assert_eq!(serde_json::from_str::<Totals>(&text).unwrap(), totals);
    }
}
