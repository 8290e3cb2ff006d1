//! Connections to a process that replaces a lost PE.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use rushmem_base::lock;
use rushmem_error::{Error, Result};

use super::{Connections, QpConnection};
use crate::queues::pe_nics::PeNics;
use crate::queues::rail::{NicInfo, PeerNic, Rail};

impl Connections {
    /// Returns the description of this PE's NICs.
    pub(in super::super) fn own_nics(&self) -> PeNics {
        PeNics { rails: self.rails.iter().map(Rail::info).collect() }
    }

    /// Enters epoch `epoch` of the other PEs, before any QP is requested.
    pub(in super::super) fn enter(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Destroys the QPs to PE `peer`, which was lost, and marks them as unconnected, for its replacement with the NICs `nics`. From
    /// now on, messages about connections are ignored unless they carry `since`, the job's epoch in which the two processes
    /// met.
    ///
    /// If there are `running` kernels and connections [fail over](Self::fails_over), kernels that have used a QP must request the
    /// next connection, and say where it starts. They may still poll the QP, so it is only stopped, and its state stays.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if kernels would have to treat the new NICs differently.
    /// - An error if the machine cannot write its memory.
    pub(in super::super) fn renew(
        &self,
        peer: u32,
        nics: &PeNics,
        since: u64,
        running: &AtomicUsize,
    ) -> Result<()> {
        // All locks are held until the end, so no message about an old connection carries the new epoch. Other threads lock
        // one connection at a time, or several in the same order.
        let _settling = lock(&self.settling);
        let running = self.shape.failover && running.load(Ordering::Acquire) != 0;
        let qps = (peer as usize..self.connections.len()).step_by(self.shape.n_pes as usize);
        let mut all: Vec<_> = qps.map(|i| (i, lock(&self.connections[i]))).collect();
        self.since[peer as usize].store(since, Ordering::Release);
        let rails = self.rails.len();
        let mut new: Vec<PeerNic> = nics.rails.iter().map(NicInfo::for_peers).collect();
        {
            let mut all = self.nics.write().unwrap_or_else(PoisonError::into_inner);
            let old = &mut all[peer as usize * rails..][..rails];
            let facts = |nic: &PeerNic| (nic.port.kind, nic.early_acks, nic.relaxed_keys, nic.has_loopback);
            if new.len() != rails || !old.iter().map(facts).eq(new.iter().map(facts)) {
                let what = format!("a process in the place of lost PE {peer}");
                return Err(Error::Unavailable { what, why: "its NICs differ from those of that PE".into() });
            }
            old.swap_with_slice(&mut new);
        }
        self.has_stale.fetch_or(running, Ordering::AcqRel);
        for (i, connection) in &mut all {
            let (i, connection) = (*i, &mut **connection);
            self.announced[i].store(0, Ordering::Release);
            if running {
                self.stop(i, connection);
                let QpConnection { slot, described, moves, .. } = std::mem::take(connection);
                *connection = QpConnection {
                    slot,
                    described: described.or(Some(new[self.home(i)])),
                    moves: moves.into_another_process(),
                    ..QpConnection::default()
                };
                self.handshakes.renew(i)?;
            } else {
                self.disconnect(i, connection)?;
            }
        }
        Ok(())
    }

    /// Destroys QP `i`, and marks it as unconnected. No kernel may use it.
    fn disconnect(&self, i: usize, connection: &mut QpConnection) -> Result<()> {
        self.forget_kernels(i, connection);
        *connection = QpConnection { slot: self.slot(connection), ..QpConnection::default() };
        self.forget(i, connection)
    }

    /// Returns the slot of a QP or, if there is none, that of the next one.
    fn slot(&self, connection: &QpConnection) -> Option<u64> {
        let current = connection.pair.as_ref().map(|(_, words)| words % self.shape.rail_slots());
        current.or(connection.slot)
    }

    /// Resets everything that kernels know of QP `i`, and the queues that the next one will use.
    fn forget(&self, i: usize, connection: &QpConnection) -> Result<()> {
        if let Some(slot) = self.slot(connection) {
            if connection.pair.is_none() {
                self.rails[self.home(i)].clear_ahead(slot..slot + 1)?;
            }
            self.state.clear_slot(self.home(i) as u64 * self.shape.rail_slots() + slot)?;
        }
        self.taken[i].store(0, Ordering::Release);
        self.handshakes.clear_one(i)?;
        self.state.describe_qp(i as u64, &self.descriptor(i))
    }

    /// Counts a launch in `running`. If no kernel has been running, those to come may use the QPs that kernels have not requested
    /// since their peers were replaced as if they were new.
    ///
    /// # Errors
    /// An error if the machine cannot write its memory.
    pub(in super::super) fn launched(&self, running: &AtomicUsize) -> Result<()> {
        let _settling = self.shape.failover.then(|| lock(&self.settling));
        let is_first = running.fetch_add(1, Ordering::AcqRel) == 0;
        if is_first && self.has_stale.swap(false, Ordering::AcqRel) { self.settle() } else { Ok(()) }
    }

    fn settle(&self) -> Result<()> {
        for (i, connection) in self.connections.iter().enumerate() {
            let connection = &mut *lock(connection);
            if !connection.moves.is_stale {
                continue;
            }
            // The peer may use the QP already, so that stays.
            self.forget_kernels(i, connection);
            connection.described = None;
            self.forget(i, connection)?;
            if connection.failed {
                self.handshakes.answer(i, None)?;
            } else {
                self.publish_if_ready(i, connection, &mut |_| {})?;
            }
        }
        Ok(())
    }

    /// Forgets the connections of QP `i` that kernels may have used. None of them does any more.
    fn forget_kernels(&self, i: usize, connection: &mut QpConnection) {
        if connection.is_in_use() && !self.is_unused(i) {
            self.missing.fetch_add(1, Ordering::AcqRel);
        }
        connection.moves.forget_kernels();
    }

    /// Returns whether kernels may have to [request](Self::leave_stale) connections to replaced peers again.
    pub(in super::super) fn has_stale(&self) -> bool {
        self.has_stale.load(Ordering::Acquire)
    }

    /// Records that kernels have requested QP `i`. If they had to, because its peer was replaced while they were running, its
    /// connection starts where they say. Returns whether they had to, or `None` if they have not requested it since.
    pub(super) fn leave_stale(&self, i: usize, connection: &mut QpConnection) -> Result<Option<bool>> {
        if !connection.moves.is_stale {
            return Ok(Some(false));
        }
        if self.handshakes.request(i)?.is_none() {
            return Ok(None);
        }
        match self.handshakes.read(i)?.resume {
            // Kernels have never used it.
            0 => self.forget_kernels(i, connection),
            resume => {
                let home = self.home(i);
                connection.moves.start_at(resume, (home, home))?;
            }
        }
        Ok(Some(true))
    }
}
