//! Flushes: the host waits until WRITEs acknowledged by its NICs have reached memory.
//!
//! An ACK only says that a NIC has received the data. The data then crosses PCIe as a posted write, and may still be in
//! flight. A PCIe read cannot pass earlier posted writes of the same device. So the NIC READs its PE's memory: by the
//! time the READ completes, the writes have landed.
//!
//! A rail without QPs needs no flush, nor does a NIC that acknowledges only data in memory. A NIC that refuses loopback
//! cannot flush; kernels of the job then read back in `quiet`
//! ([`PeNics::needs_read_backs`](super::PeNics::needs_read_backs)).

use std::time::Instant;

use rushmem_device::abi::reserved;
use rushmem_error::{Error, Result};

use super::private_queue::{PrivateQueue, RemoteEnd};
use super::rail::{Loop, Rail, RetryPolicy};

#[derive(Default)]
pub(super) struct Flush {
    /// The loopback QP through which the NIC reads its own PE's memory.
    queue: Option<PrivateQueue>,
    /// Whether there has been a QP through which peers could write. A reset does not clear it: WRITEs from before the
    /// reset may still be in flight.
    is_used: bool,
}

impl Flush {
    /// Records that peers can write through a QP of the rail, so later flushes are needed.
    pub(super) fn note_qp(&mut self) {
        self.is_used = true;
    }

    /// Destroys the loopback QP, if there is one. The next flush creates a new one.
    pub(super) fn reset(&mut self) {
        self.queue = None;
    }

    /// Returns whether a flush must wait for data: peers may have written through `rail`, and its NIC acknowledges data
    /// before it is in memory.
    pub(super) fn is_needed(&self, rail: &Rail) -> bool {
        self.is_used && rail.loopback().is_some() && rail.nic().acks_early()
    }

    /// Waits until all WRITEs acknowledged by the NIC of `rail` are in memory: in the heap, and in the memory `others`.
    /// Does nothing unless a flush [is needed](Flush::is_needed).
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the reason, if the NIC cannot flush before `until`.
    pub(super) fn flush(
        &mut self,
        rail: &Rail,
        retries: RetryPolicy,
        others: Vec<RemoteEnd>,
        until: Instant,
    ) -> Result<()> {
        let Some(qps) = rail.loopback().filter(|_| self.is_needed(rail)) else { return Ok(()) };
        let mut ends = vec![(reserved::SINK, rail.info().strict_rkey)];
        // Other memory may be reached over a different PCIe path than the heap. Each path needs its own READ.
        ends.extend(others);
        let outcome = self.read(rail, qps, retries, &ends, until);
        // After a failed or late READ, the QP is in the error state or has a WQE outstanding. Start over with a new
        // one.
        if outcome.is_err() {
            self.queue = None;
        }
        outcome.map_err(|why| Error::Unavailable {
            what: format!("data that {} has acknowledged", rail.nic().name()),
            why: format!("the NIC cannot read the memory of its PE: {why}"),
        })
    }

    /// Has the NIC read one byte at each address, and waits for the results. The error says why it failed.
    fn read(
        &mut self,
        rail: &Rail,
        qps: Loop,
        retries: RetryPolicy,
        ends: &[RemoteEnd],
        until: Instant,
    ) -> Result<(), String> {
        let queue = match &mut self.queue {
            Some(queue) => queue,
            none => {
                let made = make(rail, qps, retries).map_err(|error| error.to_string())?;
                none.insert(made)
            }
        };
        ends.iter().try_for_each(|&end| queue.read(rail, end, until))
    }
}

/// Creates and connects the loopback QP, or two QPs if the NIC cannot connect one to itself.
fn make(rail: &Rail, qps: Loop, retries: RetryPolicy) -> Result<PrivateQueue> {
    let queue = PrivateQueue::new(rail, qps)?;
    queue.connect_loop(rail, retries)?;
    let (qpn, name) = (queue.address().qpn, rail.nic().name());
    tracing::debug!(qpn, "{name} has a QP that waits for WRITEs on their way to memory");
    Ok(queue)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rushmem_softnic::{self as softnic, Faults, Nic};

    use super::super::level::QueueLocation;
    use super::super::pe_nics::PeNics;
    use super::super::shape::Shape;
    use super::*;
    use crate::provider::Soft;
    use rushmem_config::Config;
    use rushmem_machine::{Machine, Native};
    use rushmem_native::Options;

    /// Opens a rail on a software NIC that delays its writes to memory with probability `posted`.
    fn rail(posted: f64, loopback: Option<Loop>, cq: &str) -> Rail {
        let machine = Native::new(Options::default());
        let faults = Faults { posted, ..Faults::default() };
        let nic = Nic::start(softnic::Config { faults, ..softnic::Config::default() }).unwrap();
        let mut config = Config::default();
        config.set("cq", cq).unwrap();
        let shape = Shape::new(&config, 2);
        let heap = machine.heap(shape.reserved(), false).unwrap();
        let nic = Arc::new(Soft::new(Arc::new(nic)));
        let mut rail = Rail::new(nic, &machine, &heap, shape, QueueLocation::Host, None).unwrap();
        loopback.into_iter().for_each(|qps| rail.set_loopback(qps));
        rail
    }

    fn run(flush: &mut Flush, rail: &Rail, others: Vec<RemoteEnd>) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(20);
        flush.flush(rail, RetryPolicy::new(&Config::default()), others, until)
    }

    #[test]
    fn flush_creates_a_qp_only_if_needed() {
        for (posted, loopback, wanted, read_backs) in [
            (0.0, Some(Loop::OneQp), false, false),
            (0.0, None, false, false),
            (1.0, None, false, true),
            (1.0, Some(Loop::OneQp), true, false),
            (1.0, Some(Loop::TwoQps), true, false),
        ] {
            for cq in ["ring", "collapsed"] {
                let (rail, mut flush) = (rail(posted, loopback, cq), Flush::default());
                assert_eq!(PeNics { rails: vec![rail.info()] }.needs_read_backs(), read_backs);
                run(&mut flush, &rail, Vec::new()).unwrap();
                assert!(flush.queue.is_none(), "no QP has existed");
                flush.note_qp();
                for _ in 0..20 {
                    run(&mut flush, &rail, Vec::new()).unwrap();
                    assert_eq!(flush.queue.is_some(), wanted, "posted={posted}, {loopback:?}, {cq}");
                }
                // A reset destroys the QP, but WRITEs may still be in flight.
                flush.reset();
                run(&mut flush, &rail, Vec::new()).unwrap();
                assert_eq!(flush.queue.is_some(), wanted);
            }
        }
    }

    #[test]
    fn a_failure_names_the_nic_and_the_cause() {
        let (rail, mut flush) = (rail(1.0, Some(Loop::OneQp), "ring"), Flush::default());
        flush.note_qp();
        let error = run(&mut flush, &rail, vec![(0, 0xbad_0e11)]).unwrap_err().to_string();
        let begin = "data that software ConnectX has acknowledged is not available: the NIC cannot read the memory of its \
                     PE: ";
        assert!(error.starts_with(begin) && error.contains("syndrome"), "{error}");
        run(&mut flush, &rail, Vec::new()).unwrap();
        assert!(flush.queue.is_some(), "another QP replaces the failed one");
    }
}
