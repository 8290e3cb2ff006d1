//! Connections to a process that replaces a lost PE.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

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

    /// Destroys the QPs to PE `peer`, which was lost, and marks them as unconnected, for its replacement with the NICs `nics`. No
    /// kernel may use these QPs. From now on, messages about connections are ignored unless they carry `since`, the job's epoch in
    /// which the two processes met.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if kernels would have to treat the new NICs differently.
    /// - An error if the machine cannot write its memory.
    pub(in super::super) fn renew(&self, peer: u32, nics: &PeNics, since: u64) -> Result<()> {
        self.since[peer as usize].store(since, Ordering::Release);
        let rails = self.rails.len();
        let new: Vec<PeerNic> = nics.rails.iter().map(NicInfo::for_peers).collect();
        {
            let mut all = self.nics.write().unwrap_or_else(PoisonError::into_inner);
            let old = &mut all[peer as usize * rails..][..rails];
            let facts = |nic: &PeerNic| (nic.port.kind, nic.early_acks, nic.relaxed_keys, nic.has_loopback);
            if new.len() != rails || !old.iter().map(facts).eq(new.iter().map(facts)) {
                let what = format!("a process in the place of lost PE {peer}");
                return Err(Error::Unavailable { what, why: "its NICs differ from those of that PE".into() });
            }
            old.copy_from_slice(&new);
        }
        for i in (peer as usize..self.connections.len()).step_by(self.shape.n_pes as usize) {
            let mut connection = lock(&self.connections[i]);
            let rail = self.shape.rail(self.place(i).1.into());
            let was_in_use = connection.is_in_use();
            let slot = connection.pair.take().map(|(_, words)| words % self.shape.rail_slots());
            *connection = QpConnection { slot: slot.or(connection.slot), ..QpConnection::default() };
            if let Some(slot) = connection.slot {
                self.rails[rail].clear_ahead(slot..slot + 1)?;
                self.state.clear_slot(rail as u64 * self.shape.rail_slots() + slot)?;
            }
            self.announced[i].store(0, Ordering::Release);
            self.taken[i].store(0, Ordering::Release);
            self.handshakes.clear_one(i)?;
            self.state.describe_qp(i as u64, &self.descriptor(i))?;
            if was_in_use && !self.is_unused(i) {
                self.missing.fetch_add(1, Ordering::AcqRel);
            }
        }
        Ok(())
    }
}
