//! Event queues, which report events to the driver.

use crate::guest::GuestMemory;
use crate::refuse;
use rushmem_mlx5::prm::eq::{CreateEq, EqContext, Eqe, EventType};
use rushmem_mlx5::prm::umem::Mtt;
use rushmem_mlx5::prm::{CmdError, list_entries};
use rushmem_softnic::{Memory, PagedMemory};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Raises the interrupts of a function.
pub trait Interrupts: Send + Sync {
    /// Raises the MSI-X interrupt with this number, unless it is masked.
    fn raise(&self, vector: u16);
}

/// Number of MSI-X interrupts, and of event queues.
pub(crate) const VECTORS: u16 = 64;

/// log2 of the maximum number of entries of a queue.
const LOG_MAX_SIZE: u8 = 16;

/// log2 of the maximum page size of a queue, in bytes.
const LOG_MAX_PAGE: u8 = 31;

/// Modulus of consumer counters.
const COUNTERS: u32 = 1 << 24;

struct Eq {
    ring: PagedMemory,
    /// Offset of the first entry in the ring's memory.
    offset: u64,
    log_size: u8,
    /// UAR page through which the driver rings its doorbells.
    uar_page: u32,
    vector: u16,
    /// Bit mask of the received types.
    events: u64,
    /// Number of entries written, modulo [`COUNTERS`].
    produced: u32,
    consumed: u32,
    armed: bool,
    /// Whether CQs of programs may use it.
    shared: bool,
    /// Set when an entry was lost or could not be written. The queue then receives no more.
    failed: bool,
}

impl Eq {
    fn new(context: &EqContext, events: u64, list: &[u8], memory: &Arc<GuestMemory>) -> Result<Eq, CmdError> {
        let log_page_size = context.log_page_size.saturating_add(12);
        if context.log_eq_size > LOG_MAX_SIZE || log_page_size > LOG_MAX_PAGE || context.intr >= VECTORS {
            return Err(refuse::EQ);
        }
        let offset = (1u64 << log_page_size) / 64 * u64::from(context.page_offset);
        let bytes = offset + ((Eqe::LEN as u64) << context.log_eq_size);
        let count = bytes.div_ceil(1 << log_page_size) as usize;
        let pages: Vec<u64> =
            list_entries(list, 0).map(|entry| Mtt::decode(entry).address).take(count).collect();
        if pages.len() != count {
            return Err(refuse::INPUT_LENGTH);
        }
        Ok(Eq {
            ring: PagedMemory::new(Arc::clone(memory) as _, pages, log_page_size.into()),
            offset,
            log_size: context.log_eq_size,
            uar_page: context.uar_page,
            vector: context.intr,
            events,
            produced: 0,
            consumed: 0,
            armed: false,
            shared: false,
            failed: false,
        })
    }

    fn pending(&self) -> u32 {
        self.produced.wrapping_sub(self.consumed) % COUNTERS
    }

    /// Writes an entry. Returns whether it raises the interrupt.
    fn push(&mut self, eqe: Eqe) -> bool {
        if self.failed || self.pending() >= 1 << self.log_size {
            self.failed = true;
            return false;
        }
        let slot = u64::from(self.produced & ((1 << self.log_size) - 1));
        let at = self.offset + slot * Eqe::LEN as u64;
        let mut bytes = [0; Eqe::LEN];
        Eqe { owner: (self.produced >> self.log_size & 1) as u8, ..eqe }.write(&mut bytes);
        // The driver polls the owner bit, so the last word is written last.
        let (body, last) = bytes.split_at(Eqe::LEN - 4);
        let written = self.ring.write(at, body).and_then(|()| {
            std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
            self.ring.write(at + body.len() as u64, last)
        });
        if written.is_err() {
            self.failed = true;
            return false;
        }
        self.produced = (self.produced + 1) % COUNTERS;
        std::mem::take(&mut self.armed)
    }
}

/// The event queues of a function, by their numbers.
pub(crate) struct EventQueues {
    memory: Arc<GuestMemory>,
    interrupts: Arc<dyn Interrupts>,
    queues: Mutex<BTreeMap<u8, Eq>>,
}

impl EventQueues {
    pub(crate) fn new(memory: Arc<GuestMemory>, interrupts: Arc<dyn Interrupts>) -> EventQueues {
        EventQueues { memory, interrupts, queues: Mutex::default() }
    }

    fn queues(&self) -> MutexGuard<'_, BTreeMap<u8, Eq>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a queue, whose pages are in `list`, and which CQs of programs may use if the command's user ID is not 0.
    /// Returns its number.
    pub(crate) fn create(&self, command: &CreateEq, list: &[u8]) -> Result<u8, CmdError> {
        let mut eq = Eq::new(&command.context, command.event_bitmask, list, &self.memory)?;
        eq.shared = command.uid != 0;
        let mut queues = self.queues();
        // Number 0 is not used, so a CQ without an event queue has none.
        let free = (1..=VECTORS as u8).find(|number| !queues.contains_key(number)).ok_or(refuse::FULL)?;
        queues.insert(free, eq);
        Ok(free)
    }

    pub(crate) fn destroy(&self, number: u8) -> Result<(), CmdError> {
        self.queues().remove(&number).map(|_| ()).ok_or(refuse::NO_EQ)
    }

    pub(crate) fn clear(&self) {
        self.queues().clear();
    }

    /// Returns the queues that receive events of this type.
    pub(crate) fn receivers(&self, of: EventType) -> Vec<u8> {
        let bit = 1u64.checked_shl(of.0.into()).unwrap_or(0);
        self.queues().iter().filter(|(_, eq)| eq.events & bit != 0).map(|(number, _)| *number).collect()
    }

    /// Writes an entry to a queue, if it exists, and raises its interrupt if it is armed.
    pub(crate) fn post(&self, number: u8, eqe: Eqe) {
        let mut queues = self.queues();
        let Some(eq) = queues.get_mut(&number) else { return };
        let had_failed = eq.failed;
        if eq.push(eqe) {
            self.interrupts.raise(eq.vector);
        }
        if eq.failed && !had_failed {
            tracing::warn!(number, "an event queue has overrun or lost its memory");
        }
    }

    /// Writes an entry to each queue that receives its type.
    pub(crate) fn broadcast(&self, eqe: Eqe) {
        self.receivers(eqe.event_type).into_iter().for_each(|number| self.post(number, eqe));
    }

    /// Processes a doorbell that was rung through a UAR page: the consumer counter and the number of a queue of that
    /// page. `arms` requests an interrupt at the next entry.
    pub(crate) fn doorbell(&self, uar_page: u32, value: u32, arms: bool) {
        let [number, ..] = value.to_be_bytes();
        let mut queues = self.queues();
        let Some(eq) = queues.get_mut(&number).filter(|eq| eq.uar_page == uar_page) else { return };
        eq.consumed = value % COUNTERS;
        if !arms {
            return;
        }
        eq.armed = eq.pending() == 0 || eq.failed;
        if !eq.armed {
            // There are entries that the driver has not seen.
            self.interrupts.raise(eq.vector);
        }
    }

    /// Whether a queue exists that a CQ of the driver or of a program may use.
    pub(crate) fn serves(&self, number: u8, program: bool) -> bool {
        self.queues().get(&number).is_some_and(|eq| eq.shared || !program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem_softnic::HostBuffer;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Counter(AtomicU32);

    impl Interrupts for Counter {
        fn raise(&self, vector: u16) {
            assert_eq!(vector, 3);
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    const PAGE: u64 = 4096;
    const UAR: u32 = 0x10;

    fn queues(log_eq_size: u8) -> (Arc<GuestMemory>, Arc<Counter>, EventQueues, u8) {
        let (memory, counter) = (Arc::new(GuestMemory::default()), Arc::new(Counter::default()));
        memory.insert(0, HostBuffer::new(4 * PAGE as usize)).unwrap();
        let queues = EventQueues::new(Arc::clone(&memory), Arc::clone(&counter) as _);
        let context = EqContext { log_eq_size, intr: 3, uar_page: UAR, ..EqContext::default() };
        let command = CreateEq { context, event_bitmask: 1 << EventType::CMD.0, ..CreateEq::default() };
        let list: Vec<u8> = [3 * PAGE, PAGE].iter().flat_map(|page| page.to_be_bytes()).collect();
        let number = queues.create(&command, &list).unwrap();
        (memory, counter, queues, number)
    }

    fn eqe(memory: &GuestMemory, address: u64) -> Eqe {
        let mut bytes = [0; Eqe::LEN];
        memory.read(address, &mut bytes).unwrap();
        Eqe::read(&bytes)
    }

    #[test]
    fn an_armed_queue_raises_one_interrupt() {
        let (memory, counter, queues, number) = queues(2);
        let event = Eqe { event_type: EventType::CMD, first: 7, ..Eqe::default() };
        let doorbell = |consumed: u32| u32::from(number) << 24 | consumed;
        queues.broadcast(event);
        assert_eq!((eqe(&memory, 3 * PAGE), counter.0.load(Ordering::Relaxed)), (event, 0));
        queues.doorbell(UAR, doorbell(0), true);
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
        queues.doorbell(UAR, doorbell(1), true);
        queues.broadcast(event);
        queues.broadcast(event);
        assert_eq!(counter.0.load(Ordering::Relaxed), 2);
        queues.broadcast(Eqe { event_type: EventType::PORT_CHANGE, ..Eqe::default() });
        assert_eq!(eqe(&memory, 3 * PAGE + 3 * 64), Eqe::default());
    }

    #[test]
    fn a_doorbell_belongs_to_a_page_and_an_update_does_not_disarm() {
        let (_, counter, queues, number) = queues(2);
        let doorbell = u32::from(number) << 24;
        queues.doorbell(UAR + 1, doorbell, true);
        queues.broadcast(Eqe { event_type: EventType::CMD, ..Eqe::default() });
        assert_eq!(counter.0.load(Ordering::Relaxed), 0);
        queues.doorbell(UAR, doorbell | 1, true);
        queues.doorbell(UAR, doorbell | 1, false);
        queues.broadcast(Eqe { event_type: EventType::CMD, ..Eqe::default() });
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn owners_alternate_and_pages_follow_each_other() {
        let (memory, _, queues, number) = queues(7);
        for i in 0..129u32 {
            queues.post(number, Eqe { number: i, ..Eqe::default() });
            queues.doorbell(UAR, u32::from(number) << 24 | (i + 1), false);
        }
        assert_eq!((eqe(&memory, PAGE).number, eqe(&memory, PAGE).owner), (64, 0));
        assert_eq!((eqe(&memory, 3 * PAGE).number, eqe(&memory, 3 * PAGE).owner), (128, 1));
    }

    #[test]
    fn an_overrun_queue_keeps_its_entries() {
        let (memory, _, queues, number) = queues(1);
        for i in 0..3 {
            queues.post(number, Eqe { number: i, ..Eqe::default() });
        }
        assert_eq!((eqe(&memory, 3 * PAGE).number, eqe(&memory, 3 * PAGE + 64).number), (0, 1));
        queues.doorbell(UAR, u32::from(number) << 24 | 2, false);
        queues.post(number, Eqe { number: 9, ..Eqe::default() });
        assert_eq!(eqe(&memory, 3 * PAGE).number, 0);
    }

    #[test]
    fn bad_queues_are_refused() {
        let (_, _, queues, number) = queues(2);
        let create = |context, pages: usize| {
            queues.create(&CreateEq { context, ..CreateEq::default() }, &vec![0; 8 * pages])
        };
        let good = EqContext { log_eq_size: 7, ..EqContext::default() };
        assert_eq!(create(good, 1), Err(refuse::INPUT_LENGTH));
        assert_eq!(create(EqContext { log_eq_size: 31, ..good }, 9), Err(refuse::EQ));
        assert_eq!(create(EqContext { intr: VECTORS, ..good }, 9), Err(refuse::EQ));
        assert_eq!(queues.destroy(number + 1), Err(refuse::NO_EQ));
        for _ in 1..VECTORS {
            create(good, 2).unwrap();
        }
        assert_eq!(create(good, 2), Err(refuse::FULL));
    }
}
