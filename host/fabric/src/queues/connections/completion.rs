//! Waits for operations that kernels have posted, and for data that peers have written.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rushmem_base::lock;
use rushmem_device::abi::reserved;
use rushmem_error::{Error, Result};

use super::{Connections, Outgoing};
use crate::queues::drain::{Drain, Progress};
use crate::queues::private_queue::RemoteEnd;

impl Connections {
    /// Waits until everything that kernels have posted to QP `i` is complete. On success the data is in the peers'
    /// memory: in their heaps, and in the memory that `others` returns by PE and rail. Returns whether that is done; with
    /// failover, the caller has to call again.
    ///
    /// # Errors
    /// The errors of [`Drain::run`].
    pub fn drain(
        &self,
        i: usize,
        others: impl Fn(u32, usize) -> Vec<RemoteEnd>,
        until: Instant,
        post: &mut dyn FnMut(Outgoing),
    ) -> Result<bool> {
        // The lock must not keep a move from progress for long.
        const SLICE: Duration = Duration::from_millis(100);
        let mut connection = lock(&self.connections[i]);
        let connection = &mut *connection;
        if connection.moves.is_stale {
            // What kernels have posted was for a process that is gone.
            return Ok(true);
        }
        if connection.moves.is_under_way() {
            return Ok(!self.take_over_for_host(i, connection, false, post)?);
        }
        let Some((pair, _)) = &connection.pair else { return Ok(true) };
        let first = self.place(i).0;
        let (rail, peer_nic) = (connection.nic, connection.peer_nic);
        let mut ends = Vec::new();
        // A DC initiator serves every `set_qps`-th PE, starting with `first`. A connected QP serves exactly one.
        for peer in (first..self.shape.n_pes).step_by(self.shape.set_qps() as usize) {
            let (nic, target) = (self.nic(peer, peer_nic), self.target(peer, rail));
            if nic.early_acks {
                ends.push(((reserved::SINK, nic.strict_rkey), target));
                ends.extend(others(peer, rail).into_iter().map(|end| (end, target)));
            }
        }
        let slice = if self.shape.failover { until.min(Instant::now() + SLICE) } else { until };
        let drain = Drain { state: &self.state, i: i as u64, rail: &self.rails[rail], pair, until: slice };
        match drain.run(&ends)? {
            Progress::Complete => Ok(true),
            Progress::Failed(_) if self.shape.failover => {
                Ok(!self.take_over_for_host(i, connection, true, post)?)
            }
            Progress::Late(_) if slice < until => Ok(false),
            Progress::Failed(why) | Progress::Late(why) => {
                Err(Error::Unavailable { what: format!("the completion of QP {:#x}", pair.address.qpn), why })
            }
        }
    }

    /// Returns the indices of the rails that need a flush.
    pub(in super::super) fn rails_to_flush(&self) -> Vec<usize> {
        // A NIC whose port is down has written its last data long ago, and answers nobody.
        let is_needed = |rail: &usize| {
            self.up[*rail].load(Ordering::Acquire) && lock(&self.flushes[*rail]).is_needed(&self.rails[*rail])
        };
        (0..self.rails.len()).filter(is_needed).collect()
    }

    /// Waits until WRITEs acknowledged by the NIC of `rail` are in memory: in this PE's heap, and in the memory
    /// `others`.
    ///
    /// # Errors
    /// The errors of [`Flush::flush`].
    pub(in super::super) fn flush(&self, rail: usize, others: Vec<RemoteEnd>, until: Instant) -> Result<()> {
        lock(&self.flushes[rail]).flush(&self.rails[rail], self.retries, others, until)
    }
}
