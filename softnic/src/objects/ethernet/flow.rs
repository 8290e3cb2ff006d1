//! Flow tables: what they match, and where they steer frames.

use crate::table::Table;
use rushmem_mlx5::prm::flow::{Destination, DestinationType, FlowContext, Headers, TrafficCounter};
use std::collections::BTreeMap;

/// Length of the fields of a frame that entries match, in bytes.
const HEADERS: usize = Headers::LEN;

/// log2 of the maximum number of tables, of entries of a table, and of entries of all tables.
pub(crate) const LOG_MAX_TABLES: u8 = 12;
pub(crate) const LOG_MAX_SIZE: u8 = 20;
pub(crate) const LOG_MAX_ENTRIES: u8 = 16;

/// log2 of the maximum number of counters, and of destinations of an entry.
pub(crate) const LOG_MAX_COUNTERS: u8 = 12;
pub(crate) const LOG_MAX_DESTINATIONS: u8 = 6;

/// Number of levels of tables.
pub(crate) const LEVELS: u8 = 255;

/// Maximum number of tables that one frame passes through. Copies for several destinations count, too.
const MAX_STEPS: usize = 256;

pub(crate) struct FlowTable {
    pub(crate) owner: u32,
    /// Entries and misses lead to tables of higher levels only, so every frame arrives.
    pub(crate) level: u8,
    /// Number of entries that the table has room for.
    pub(crate) size: u32,
    /// The table to which frames go that no entry matches, or `None` if they are dropped.
    pub(crate) miss: Option<u32>,
    pub(crate) groups: BTreeMap<u32, Group>,
    pub(crate) last_group: u32,
    /// Entries by index. The first match counts.
    pub(crate) entries: BTreeMap<u32, Entry>,
}

/// Entries that match the same fields.
pub(crate) struct Group {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) mask: [u8; HEADERS],
}

pub(crate) struct Entry {
    pub(crate) group: u32,
    /// Values of the fields, zero outside of the group's mask.
    pub(crate) value: [u8; HEADERS],
    pub(crate) action: u16,
    pub(crate) flow_tag: u32,
    pub(crate) destinations: Vec<Destination>,
    pub(crate) counters: Vec<u32>,
}

pub(crate) struct Counter {
    pub(crate) owner: u32,
    pub(crate) count: TrafficCounter,
}

pub(crate) struct FlowTables {
    pub(crate) tables: Table<FlowTable>,
    pub(crate) counters: Table<Counter>,
    /// The table with which steering starts.
    pub(crate) root: Option<u32>,
}

impl Default for FlowTables {
    fn default() -> FlowTables {
        FlowTables {
            tables: Table::new(1, 1 << LOG_MAX_TABLES),
            counters: Table::new(1, 1 << LOG_MAX_COUNTERS),
            root: None,
        }
    }
}

/// Where a frame goes: a TIR, with the flow tag of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Steered {
    pub(crate) tirn: u32,
    pub(crate) flow_tag: u32,
}

impl FlowTable {
    fn find(&self, headers: &[u8; HEADERS]) -> Option<&Entry> {
        self.entries.values().find(|entry| {
            let mask = self.groups.get(&entry.group).map(|group| &group.mask);
            mask.is_some_and(|mask| masked(headers, mask) == entry.value)
        })
    }
}

/// Returns the bits of `fields` that are in `mask`.
pub(crate) fn masked(fields: &[u8; HEADERS], mask: &[u8; HEADERS]) -> [u8; HEADERS] {
    std::array::from_fn(|i| fields[i] & mask[i])
}

impl FlowTables {
    /// Returns where a frame of `bytes` bytes with these headers goes, and counts it.
    pub(crate) fn steer(&mut self, headers: &[u8; HEADERS], bytes: usize) -> Vec<Steered> {
        let FlowTables { tables, counters, root } = self;
        let mut next: Vec<u32> = root.iter().copied().collect();
        let mut found = Vec::new();
        for _ in 0..MAX_STEPS {
            let Some(table) = next.pop().and_then(|number| tables.get(number)) else { break };
            let Some(entry) = table.find(headers) else {
                next.extend(table.miss);
                continue;
            };
            if entry.action & FlowContext::COUNT != 0 {
                for number in &entry.counters {
                    if let Some(counter) = counters.get_mut(*number) {
                        counter.count.packets += 1;
                        counter.count.octets += bytes as u64;
                    }
                }
            }
            if entry.action & FlowContext::FORWARD == 0 {
                continue;
            }
            for to in &entry.destinations {
                match to.destination_type {
                    DestinationType::TIR => {
                        found.push(Steered { tirn: to.destination_id, flow_tag: entry.flow_tag });
                    }
                    _ => next.push(to.destination_id),
                }
            }
        }
        found
    }

    /// Returns the number of entries of all tables.
    pub(crate) fn entries(&self) -> usize {
        self.tables.iter().map(|(_, table)| table.entries.len()).sum()
    }

    /// Whether an entry or a miss leads to this destination.
    pub(crate) fn leads_to(&self, kind: DestinationType, number: u32) -> bool {
        let is_it = |to: &Destination| to.destination_type == kind && to.destination_id == number;
        let is_table = kind == DestinationType::FLOW_TABLE;
        self.tables.iter().any(|(_, table)| {
            is_table && table.miss == Some(number)
                || table.entries.values().any(|entry| entry.destinations.iter().any(is_it))
        })
    }

    /// Whether an entry counts frames in this counter.
    pub(crate) fn counts_in(&self, counter: u32) -> bool {
        self.tables
            .iter()
            .any(|(_, table)| table.entries.values().any(|entry| entry.counters.contains(&counter)))
    }

    /// Destroys all tables and counters of a context.
    pub(super) fn remove_all(&mut self, context: u32) {
        let FlowTables { tables, counters, root } = self;
        tables.remove_all(|table| table.owner == context);
        counters.remove_all(|counter| counter.owner == context);
        *root = root.filter(|number| tables.get(*number).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(headers: Headers) -> [u8; HEADERS] {
        let mut bytes = [0; HEADERS];
        headers.write(&mut bytes);
        bytes
    }

    fn table(level: u8, mask: Headers) -> FlowTable {
        let group = Group { first: 0, last: 3, mask: bytes(mask) };
        let groups = [(1, group)].into();
        FlowTable { owner: 1, level, size: 4, miss: None, groups, last_group: 1, entries: BTreeMap::new() }
    }

    fn entry(value: Headers, action: u16, to: &[(DestinationType, u32)]) -> Entry {
        let to = to.iter().map(|(destination_type, destination_id)| Destination {
            destination_type: *destination_type,
            destination_id: *destination_id,
        });
        let (destinations, counters) = (to.collect(), vec![1]);
        Entry { group: 1, value: bytes(value), action, flow_tag: 9, destinations, counters }
    }

    #[test]
    fn the_first_match_counts_and_leads_on() {
        let mut flow = FlowTables::default();
        flow.counters.insert(Counter { owner: 1, count: TrafficCounter::default() });
        let mask = Headers { ip_protocol: 0xff, ..Headers::default() };
        let (mut first, mut second) = (table(1, mask), table(2, Headers::default()));
        let tcp = Headers { ip_protocol: 6, ..Headers::default() };
        let both = FlowContext::FORWARD | FlowContext::COUNT;
        first
            .entries
            .insert(0, entry(tcp, both, &[(DestinationType::TIR, 5), (DestinationType::FLOW_TABLE, 2)]));
        first.entries.insert(2, entry(tcp, FlowContext::DROP, &[]));
        second
            .entries
            .insert(0, entry(Headers::default(), FlowContext::FORWARD, &[(DestinationType::TIR, 6)]));
        flow.tables.insert(first);
        flow.tables.insert(second);
        flow.root = Some(1);
        let of = |flow: &mut FlowTables, protocol| {
            let headers = Headers { ip_protocol: protocol, ttl_hoplimit: 64, ..Headers::default() };
            flow.steer(&bytes(headers), 100).iter().map(|to| to.tirn).collect::<Vec<_>>()
        };
        assert_eq!(of(&mut flow, 6), [5, 6]);
        assert_eq!(of(&mut flow, 17), []);
        flow.tables.get_mut(1).unwrap().miss = Some(2);
        assert_eq!(of(&mut flow, 17), [6]);
        assert_eq!(flow.counters.get(1).unwrap().count, TrafficCounter { packets: 1, octets: 100 });
        assert!(flow.leads_to(DestinationType::TIR, 5) && !flow.leads_to(DestinationType::TIR, 7));
        flow.remove_all(1);
        assert_eq!((flow.root, of(&mut flow, 6)), (None, vec![]));
    }
}
