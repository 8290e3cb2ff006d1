//! The first exchange on a connection whose NICs may never have carried a packet.
//!
//! A NIC that refuses loopback was not probed. On a connection with such a NIC, the PE with the lower rank READs a byte of the
//! peer's heap before it calls its QP ready. It does so by a second QP of the host, which both PEs create and connect with the
//! first one. So a path that carries nothing fails before kernels use it.

use std::time::{Duration, Instant};

use rushmem_device::abi::reserved;
use rushmem_error::{Error, Result};

use super::{Connections, QpConnection};

/// Time limit for the first exchange with a peer. The NIC exhausts its retries within half of it.
pub(super) const FIRST_EXCHANGE: Duration = Duration::from_secs(10);

impl Connections {
    /// Returns whether the NICs of QP `i` must exchange a packet before kernels use it, because one of them refuses loopback
    /// and so may never have carried one. DC initiators start without an exchange.
    pub(super) fn is_untried(&self, i: usize) -> bool {
        let (peer, set) = self.place(i);
        let rail = self.shape.rail(set.into());
        let all_have_loopback = self.rails[rail].loopback().is_some() && self.nic(peer, rail).has_loopback;
        !self.shape.is_dc() && peer != self.me && !all_have_loopback
    }

    /// READs a byte of the peer's heap by the QP for the first exchange, and destroys that QP.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the READ fails.
    pub(super) fn try_path(&self, i: usize, connection: &mut QpConnection) -> Result<()> {
        let Some(mut trial) = connection.trial.take() else { return Ok(()) };
        let (peer, set) = self.place(i);
        let rail = self.shape.rail(set.into());
        let (nic, begin) = (self.rails[rail].nic().name(), Instant::now());
        let from = (reserved::SINK, self.nic(peer, rail).strict_rkey);
        trial.read(&self.rails[rail], from, begin + FIRST_EXCHANGE).map_err(|why| Error::Unavailable {
            what: format!("the path from {nic} to PE {peer}"),
            why: format!("the first READ failed: {why}. One of the two NICs refuses loopback, so it was not probed before"),
        })?;
        tracing::info!("{nic}: the first exchange with PE {peer} took {:.1?}", begin.elapsed());
        Ok(())
    }
}
