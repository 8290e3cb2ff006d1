//! The DC initiators of a PE, which reach the targets of all peers.

use rushmem_base::lock;
use rushmem_error::{Error, Result};

use super::super::dc::address_vector;
use super::super::rail::PeerNic;
use super::{Connections, QpConnection};

impl Connections {
    /// Resolves the paths from the DC initiators to the targets of all peers.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if a peer has no target.
    /// - The errors of the NICs.
    pub fn with_targets(mut self) -> Result<Self> {
        if self.shape.is_dc() {
            let find = |(i, nic): (usize, &PeerNic)| {
                let (pe, rail) = (i / self.rails.len(), i % self.rails.len());
                let missing = || Error::Unavailable {
                    what: format!("the DC target of PE {pe}"),
                    why: "the PE has not sent its number".into(),
                };
                let target = nic.target.ok_or_else(missing)?;
                Ok(address_vector(self.rails[rail].nic(), &nic.port, target)?)
            };
            let targets = self.all_nics().iter().enumerate().map(find).collect::<Result<_>>()?;
            self.targets = targets;
            // Peers can write as soon as they know the targets, before this PE has any QP.
            self.flushes.iter().for_each(|flush| lock(flush).note_qp());
        }
        Ok(self)
    }

    /// Returns the destination PE of a WQE that DC initiator `qpn` posted: the WQE in block `index`, or without an
    /// index the oldest one not known to be complete. Returns `None` if there is no such initiator.
    ///
    /// # Errors
    /// An error if the machine cannot read its memory.
    pub(in crate::queues) fn peer_of_wqe(&self, qpn: u32, index: Option<u16>) -> Result<Option<u32>> {
        if !self.shape.is_dc() {
            return Ok(None);
        }
        for (i, connection) in self.connections.iter().enumerate() {
            if let Some((dci, _)) = &lock(connection).pair
                && dci.address.qpn == qpn
            {
                let rail = self.shape.rail(self.place(i).1.into());
                let done = self.state.read_qp(i as u64)?.done.word;
                let target = self.rails[rail].target_of(dci, index.unwrap_or(done as u16))?;
                // A WQE names its target by address vector only, so find the PE with the same vector.
                return Ok((0..self.shape.n_pes).find(|&pe| self.target(pe, rail) == Some(&target)));
            }
        }
        Ok(None)
    }

    /// Brings a DC initiator to the ready state. Its targets are not involved.
    pub(super) fn start_initiator(&self, i: usize, connection: &mut QpConnection) -> Result<()> {
        let rail = &self.rails[self.shape.rail(self.place(i).1.into())];
        if let Some((dci, _)) = &connection.pair {
            rail.start_initiator(dci, self.retries)?;
            connection.unordered = rail.is_unordered(dci)?;
            (connection.ready, connection.peer_ready) = (true, true);
            tracing::debug!(pe = self.me, qpn = dci.address.qpn, connection.unordered, "DC initiator");
        }
        Ok(())
    }
}
