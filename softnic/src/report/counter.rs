//! Queue counters: sets that count losses and reordering for all QPs that select them.

use crate::table::Table;
use rushmem_mlx5::prm::counter::QueryQCounterOut;
use rushmem_mlx5::prm::qp::QpContext;

/// Maximum number of counter sets: their IDs have eight bits, and 0 means none.
const MAX_COUNTER_SETS: usize = 255;

#[derive(Default)]
pub(crate) struct CounterSet {
    pub(crate) owner: u32,
    pub(crate) counts: QueryQCounterOut,
}

pub(crate) struct CounterSets(pub(crate) Table<CounterSet>);

impl CounterSets {
    pub(crate) fn new() -> Self {
        Self(Table::new(1, MAX_COUNTER_SETS))
    }

    pub(crate) fn remove_all(&mut self, context: u32) {
        for number in self.0.numbers(|set| set.owner == context) {
            self.0.remove(number);
        }
    }

    /// Counts an event of a QP in the counter set that the QP context selects, if any.
    pub(crate) fn count(&mut self, qp: &QpContext, counter: fn(&mut QueryQCounterOut) -> &mut u32) {
        if let Some(set) = self.0.get_mut(qp.counter_set_id.into()) {
            let count = counter(&mut set.counts);
            *count = count.wrapping_add(1);
        }
    }
}
