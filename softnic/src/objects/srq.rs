//! Shared receive queues, which the PRM calls receive memory pools.

use crate::queue_memory::QueueMemory;
use rushmem_mlx5::Segment;
use rushmem_mlx5::doorbell::{Record, record_counter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A reference to a shared receive queue, held by the adapter's table and the QPs that use the queue.
#[derive(Clone)]
pub(crate) struct SharedSrq(Arc<Mutex<Srq>>);

impl SharedSrq {
    pub(crate) fn new(srq: Srq) -> SharedSrq {
        SharedSrq(Arc::new(Mutex::new(srq)))
    }

    /// Locks the shared receive queue. Only the holder of the adapter's state calls this, so the lock is uncontended.
    pub(crate) fn get(&self) -> MutexGuard<'_, Srq> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Srq {
    pub(crate) owner: u32,
    pub(crate) srqn: u32,
    pub(crate) pd: u32,
    pub(crate) umems: [u32; 2],
    pub(crate) ring: QueueMemory,
    pub(crate) record: QueueMemory,
    pub(crate) log_size: u8,
    /// Size of a receive WQE, in bytes.
    pub(crate) stride: usize,
    /// Whether each WQE names its successor. Otherwise, WQEs are used in order.
    pub(crate) linked: bool,
    /// Whether a WQE starts with a segment that names its successor.
    pub(crate) has_link: bool,
    pub(crate) next: u16,
    pub(crate) taken: u16,
    /// Indices of WQEs that were taken from the queue and returned unused. They are taken again first.
    pub(crate) returned: Vec<u16>,
    /// Number of posted WQEs below which an event is due, once. 0 means no event.
    pub(crate) limit: u16,
    /// Number of QPs that use the shared receive queue.
    pub(crate) users: u32,
    /// Additional attributes, if the SRQ belongs to an XRC domain.
    pub(crate) of_xrcd: Option<OfXrcd>,
}

/// Additional attributes of an SRQ that belongs to an XRC domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfXrcd {
    pub(crate) xrcd: u32,
    /// CQ that reports the messages received with this SRQ.
    pub(crate) cqn: u32,
    pub(crate) user_index: u32,
}

impl Srq {
    pub(crate) fn posted(&self) -> u16 {
        let produced = record_counter(self.record.load_u32(Record::RCV_OFFSET));
        produced.wrapping_sub(self.taken).saturating_add(self.returned.len() as u16)
    }

    /// Takes the next receive WQE from the queue. Returns its index and its scatter list.
    pub(crate) fn take(&mut self) -> Option<(u16, Vec<Segment>)> {
        if self.posted() == 0 {
            return None;
        }
        let given_back = self.returned.pop();
        let index = given_back.unwrap_or(self.next);
        let slot = usize::from(index) & ((1 << self.log_size) - 1);
        let mut segments = vec![Segment::ZERO; self.stride / size_of::<Segment>()];
        self.ring.load_segments(slot * self.stride, &mut segments);
        // The returned entry was counted and its link followed when it was first taken.
        if given_back.is_none() {
            self.taken = self.taken.wrapping_add(1);
            self.next = if self.linked { successor(&segments[0]) } else { index.wrapping_add(1) };
        }
        if self.has_link {
            segments.remove(0);
        }
        Some((index, segments))
    }

    /// Returns the WQE at `index` to the queue, since its message did not arrive completely.
    pub(crate) fn give_back(&mut self, index: u16) {
        self.returned.push(index);
    }

    /// Returns whether the event for a queue below its limit is due, and disarms it if so.
    pub(crate) fn falls_below_limit(&mut self) -> bool {
        let is_due = self.posted() < self.limit;
        if is_due {
            self.limit = 0;
        }
        is_due
    }
}

/// Returns the WQE index in bytes 2 and 3 of a link segment, in big-endian order.
fn successor(link: &Segment) -> u16 {
    let [_, _, high, low] = link.0[0].to_ne_bytes();
    u16::from_be_bytes([high, low])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{HostBuffer, Memory};

    const SIZE: u16 = 4;
    const STRIDE: usize = 32;

    /// Creates a queue whose WQE `i` names `successors[i]`, with `posted` WQEs.
    fn queue(linked: bool, successors: [u16; SIZE as usize], posted: u16) -> Srq {
        let memory: Arc<dyn Memory> = Arc::new(HostBuffer::new(4096));
        for (i, next) in successors.into_iter().enumerate() {
            memory.write((i * STRIDE + 2) as u64, &next.to_be_bytes()).unwrap();
            memory.write((i * STRIDE + 16) as u64, &[i as u8 + 1; 16]).unwrap();
        }
        memory.write(1024, &u32::from(posted).to_be_bytes()).unwrap();
        let part = |offset, len| QueueMemory::new(&memory, offset, len, 8).unwrap();
        Srq {
            owner: 1,
            srqn: 1,
            pd: 1,
            umems: [1, 2],
            ring: part(0, STRIDE * usize::from(SIZE)),
            record: part(1024, 8),
            log_size: 2,
            stride: STRIDE,
            linked,
            has_link: true,
            next: 0,
            taken: 0,
            returned: Vec::new(),
            limit: 0,
            users: 0,
            of_xrcd: None,
        }
    }

    fn take(srq: &mut Srq) -> Option<u16> {
        let (index, segments) = srq.take()?;
        // The link is not part of the scatter list.
        assert_eq!(segments.len(), 1);
        assert_eq!(segments[0].0[0].to_ne_bytes(), [(index % SIZE) as u8 + 1; 4]);
        Some(index)
    }

    #[test]
    fn entries_follow_their_links() {
        let mut srq = queue(true, [2, 3, 1, 0], 3);
        assert_eq!([(); 4].map(|()| take(&mut srq)), [Some(0), Some(2), Some(1), None]);
    }

    #[test]
    fn entries_of_a_cyclic_queue_have_running_numbers() {
        let mut srq = queue(false, [0; 4], 2);
        (srq.next, srq.taken) = (u16::MAX, u16::MAX);
        assert_eq!([(); 4].map(|()| take(&mut srq)), [Some(u16::MAX), Some(0), Some(1), None]);
    }

    #[test]
    fn an_unused_entry_is_used_next() {
        let mut srq = queue(true, [1, 2, 3, 0], 2);
        assert_eq!(take(&mut srq), Some(0));
        srq.give_back(0);
        assert_eq!(srq.posted(), 2);
        assert_eq!([(); 3].map(|()| take(&mut srq)), [Some(0), Some(1), None]);
    }

    #[test]
    fn the_limit_raises_one_event() {
        let mut srq = queue(true, [1, 2, 3, 0], 3);
        srq.limit = 2;
        assert!(!srq.falls_below_limit());
        let due: Vec<bool> = std::iter::from_fn(|| take(&mut srq).map(|_| srq.falls_below_limit())).collect();
        assert_eq!(due, [false, true, false]);
    }
}
