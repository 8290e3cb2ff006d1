//! Connections between QPs, each made at its first use.
//!
//! The service thread calls this module. Either PE may begin, or both at once. There is one kind of message: "this is
//! my QP number; I am ready, or not yet".
//!
//! ```text
//! A wants a connection                 B
//!   makes its QP       -- not yet -->  makes its QP, connects it to A's
//!   connects it to B's <-- ready ----
//!   tells its kernels  --- ready --->  tells its kernels
//! ```
//!
//! A QP is ready once it accepts packets (RTR). A PE publishes a connection to its kernels when both ends are ready. A
//! packet sent earlier would be lost and wait for the retransmission timer.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use rushmem_device::abi::{QpDesc, qp_flags, reserved};

use super::connect_message::{ConnectMessage, QpStatus};
use super::drain::Drain;
use super::flush::{Flush, RemoteEnd};
use super::info::QpInfo;
use super::pe_nics::PeNics;
use super::rail::{Qp, QpAddress, Rail, RetryPolicy};
use super::{Handshakes, Shape, StateMap};
use crate::machine::Region;
use crate::provider::{Keys, NicEvent};
use crate::{Error, Result};

/// A message and its receiver.
pub(crate) type Outgoing = (u32, ConnectMessage);

/// The state of one QP to a peer.
#[derive(Default)]
struct QpConnection {
    /// The QP and the number of its slot on the PE.
    pair: Option<(Qp, u64)>,
    /// Set once the QP accepts packets.
    ready: bool,
    /// Set once the peer knows that.
    ready_sent: bool,
    peer_ready: bool,
    /// Set if the firmware of either end lets WRITEs land out of order.
    unordered: bool,
    /// Set once kernels may use it.
    published: bool,
    failed: bool,
    /// Set once a kernel has requested it although the context excludes the peer.
    refused: bool,
}

/// All QPs of a PE. Fields drop in order: QPs before rails.
pub(crate) struct Connections {
    connections: Vec<QpConnection>,
    /// By rail.
    flushes: Vec<Flush>,
    rails: Vec<Rail>,
    /// Allocated slots, by rail.
    used: Vec<u64>,
    nics: Vec<PeNics>,
    state: Arc<StateMap>,
    handshakes: Arc<Handshakes>,
    shape: Shape,
    me: u32,
    retries: RetryPolicy,
    /// Set for P2P peers to which no kernel posts.
    p2p: Vec<bool>,
    /// Set, by QP, if no kernel of this PE may post to it. The peer may still use it in the other direction.
    closed: Vec<bool>,
    /// Number of resets.
    epoch: u64,
}

impl Connections {
    /// Creates the unconnected QPs of a PE. `nics` describes the NICs of all PEs.
    pub(crate) fn new(
        rails: Vec<Rail>,
        nics: Vec<PeNics>,
        state: Arc<StateMap>,
        handshakes: Arc<Handshakes>,
        shape: Shape,
        me: u32,
        retries: RetryPolicy,
    ) -> Self {
        let connections: Vec<QpConnection> = (0..shape.qps()).map(|_| QpConnection::default()).collect();
        let closed = vec![false; connections.len()];
        let used = vec![0; rails.len()];
        let flushes = rails.iter().map(|_| Flush::default()).collect();
        let p2p = vec![false; shape.n_pes as usize];
        Self {
            connections,
            flushes,
            rails,
            used,
            nics,
            state,
            handshakes,
            shape,
            me,
            retries,
            p2p,
            closed,
            epoch: 0,
        }
    }

    /// Excludes the PEs that are true in `p2p`, because no kernel posts to them.
    pub(crate) fn without_p2p_peers(mut self, p2p: Vec<bool>) -> Self {
        self.p2p = p2p;
        self
    }

    /// Limits kernels to `peers` when they post through these QPs.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a QP to another PE is already connected.
    pub(super) fn limit(&mut self, qps: Range<usize>, peers: &[u32]) -> Result<()> {
        let others: Vec<usize> = qps.filter(|&i| !peers.contains(&self.place(i).0)).collect();
        if let Some(&i) = others.iter().find(|&&i| self.connections[i].published) {
            let why =
                format!("the QP to PE {} is already connected; set RUSHMEM_CONNECT=lazy", self.place(i).0);
            return Err(Error::Unavailable { what: "a context limited to some PEs".into(), why });
        }
        others.into_iter().for_each(|i| self.closed[i] = true);
        Ok(())
    }

    /// Returns whether no kernel posts to QP `i`.
    fn is_unused(&self, i: usize) -> bool {
        self.closed[i] || self.p2p[self.place(i).0 as usize]
    }

    /// Returns whether a PE of the job has relaxed keys.
    pub(crate) fn has_relaxed_keys(&self) -> bool {
        self.nics.iter().flat_map(|pe| &pe.rails).any(|rail| rail.level.relaxed_keys)
    }

    /// Returns whether the queues of a rail are in GPU memory.
    pub(crate) fn on_gpu(&self) -> bool {
        self.rails.iter().any(Rail::is_on_gpu)
    }

    /// Returns the peer of QP `i`, and its set.
    fn place(&self, i: usize) -> (u32, u64) {
        let n = self.shape.n_pes as usize;
        ((i % n) as u32, (i / n) as u64)
    }

    /// Returns the descriptors of all QPs that kernels need from the start.
    pub(crate) fn descriptors(&self) -> Vec<QpDesc> {
        let describe = |i: usize| {
            let (peer, set) = self.place(i);
            let rail = self.shape.rail(set);
            let (mine, theirs) = (self.rails[rail].keys(), &self.nics[peer as usize].rails[rail]);
            QpDesc {
                pe_state: self.state.device_state(),
                handshake: self.handshakes.addr(i),
                lkey: mine.data().lkey(),
                rkey: theirs.rkey,
                peer,
                log_depth: self.shape.log_depth().into(),
                flags: self.rails[rail].flags(),
                rail: rail as u32,
                strict_lkey: mine.strict().lkey(),
                strict_rkey: theirs.strict_rkey,
                reserved: [0; 20],
            }
        };
        (0..self.connections.len()).map(describe).collect()
    }

    /// Ends all connections and restores the initial state of all QPs. No kernel may run on any PE.
    ///
    /// # Errors
    /// An error if the machine cannot write its memory.
    pub(super) fn reset(&mut self) -> Result<()> {
        self.epoch += 1;
        self.connections.iter_mut().for_each(|connection| *connection = QpConnection::default());
        self.flushes.iter_mut().for_each(Flush::reset);
        for (rail, used) in self.rails.iter().zip(&mut self.used) {
            rail.clear_ahead(0..std::mem::take(used))?;
        }
        self.handshakes.clear()?;
        self.state.clear_slots()?;
        self.state.describe_qps(&self.descriptors())
    }

    /// Registers `memory` with each NIC.
    ///
    /// # Errors
    /// The errors of the NICs.
    pub(super) fn register(&self, memory: &Region) -> Result<Vec<Keys>> {
        self.rails.iter().map(|rail| rail.register(memory)).collect()
    }

    /// Returns the QPs that kernels may request.
    pub(crate) fn usable(&self) -> Vec<usize> {
        (0..self.connections.len()).filter(|&i| !self.is_unused(i)).collect()
    }

    /// Returns whether all QPs that kernels could use are connected.
    pub(crate) fn complete(&self) -> bool {
        self.connections.iter().enumerate().all(|(i, connection)| connection.published || self.is_unused(i))
    }

    /// Returns the peer of QP `i` and the number of its rail.
    pub(super) fn peer_and_rail(&self, i: usize) -> (u32, usize) {
        let (peer, set) = self.place(i);
        (peer, self.shape.rail(set))
    }

    /// Completes everything that kernels have posted to QP `i`. Data is in memory of the peer then: in the heap, and at the
    /// ends `others`.
    ///
    /// # Errors
    /// The errors of [`Drain::run`].
    pub(crate) fn drain(&self, i: usize, others: Vec<RemoteEnd>, until: Instant) -> Result<()> {
        let Some((pair, _)) = &self.connections[i].pair else { return Ok(()) };
        let (peer, rail) = self.peer_and_rail(i);
        let nic = &self.nics[peer as usize].rails[rail];
        let mut ends = Vec::new();
        if nic.early_acks {
            ends.push((reserved::SINK, nic.strict_rkey));
            ends.extend(others);
        }
        Drain { state: &self.state, i: i as u64, rail: &self.rails[rail], pair, until }.run(&ends)
    }

    /// Returns the rails that need a flush.
    pub(super) fn rails_to_flush(&self) -> Vec<usize> {
        (0..self.rails.len()).filter(|&rail| self.flushes[rail].is_needed(&self.rails[rail])).collect()
    }

    /// Flushes a rail.
    ///
    /// # Errors
    /// The errors of [`Flush::flush`].
    pub(super) fn flush(&mut self, rail: usize, others: Vec<RemoteEnd>, until: Instant) -> Result<()> {
        self.flushes[rail].flush(&self.rails[rail], self.retries, others, until)
    }

    /// Returns the number of QPs that kernels may use now.
    pub(crate) fn connected(&self) -> usize {
        self.connections.iter().filter(|connection| connection.published).count()
    }

    /// Returns the peer and number of a poisoned QP, if there is one.
    ///
    /// # Errors
    /// An error if the QP state cannot be read.
    pub(super) fn poisoned(&self) -> Result<Option<(u32, u32)>> {
        for (i, connection) in
            self.connections.iter().enumerate().filter(|(_, connection)| connection.published)
        {
            if let Some((pair, _)) = &connection.pair
                && self.state.read_qp(i as u64)?.poison.word != 0
            {
                return Ok(Some((self.place(i).0, pair.address.qpn)));
            }
        }
        Ok(None)
    }

    /// Returns the peer and number of a QP that has failed: a poisoned one, or one in the state `ERR` of its NIC.
    ///
    /// # Errors
    /// - The errors of [`Connections::poisoned`] and [`Connections::query`].
    pub(super) fn failed_qp(&self) -> Result<Option<(u32, u32)>> {
        if let Some(poisoned) = self.poisoned()? {
            return Ok(Some(poisoned));
        }
        let failed = self.query()?.into_iter().find(|qp| qp.state == "ERR");
        Ok(failed.map(|qp| (qp.peer, qp.qpn)))
    }

    /// Returns the number of PRM commands to the NICs so far.
    pub(super) fn commands(&self) -> u64 {
        self.rails.iter().map(|rail| rail.nic().commands()).sum()
    }

    /// Queries the NICs for the QPs that kernels may use now.
    ///
    /// # Errors
    /// The errors of the NICs.
    pub(crate) fn query(&self) -> Result<Vec<QpInfo>> {
        let mut all = Vec::new();
        for (i, connection) in
            self.connections.iter().enumerate().filter(|(_, connection)| connection.published)
        {
            let (peer, set) = self.place(i);
            if let Some((pair, _)) = &connection.pair {
                all.push(self.rails[self.shape.rail(set)].query(pair, peer, self.weakness(i))?);
            }
        }
        Ok(all)
    }

    /// Returns the QPs that kernels request and that this PE has not begun to connect.
    ///
    /// # Errors
    /// An error if the handshakes cannot be read.
    pub(crate) fn wanted(&self) -> Result<Vec<usize>> {
        let asks = |(i, connection): &(usize, &QpConnection)| {
            (connection.pair.is_none() || self.closed[*i]) && !connection.failed && !connection.refused
        };
        let idle = self.connections.iter().enumerate().filter(asks);
        let mut wanted = Vec::new();
        for (i, _) in idle {
            if self.handshakes.wanted(i)? {
                wanted.push(i);
            }
        }
        Ok(wanted)
    }

    /// Takes the events of a rail's NIC.
    pub(super) fn events(&self, rail: usize) -> Vec<NicEvent> {
        self.rails[rail].nic().events()
    }

    /// Returns the names of the rails' NICs.
    pub(super) fn nic_names(&self) -> Vec<String> {
        self.rails.iter().map(|rail| rail.nic().name()).collect()
    }

    /// Returns the number of this PE.
    pub(super) fn pe(&self) -> u32 {
        self.me
    }

    /// Returns the QPs of a rail that exist and that `choose` selects.
    pub(super) fn find(&self, rail: usize, choose: impl Fn(&Qp) -> bool) -> Vec<usize> {
        let is_chosen = |(i, connection): &(usize, &QpConnection)| {
            self.shape.rail(self.place(*i).1) == rail
                && connection.pair.as_ref().is_some_and(|(pair, _)| choose(pair))
        };
        self.connections.iter().enumerate().filter(is_chosen).map(|(i, _)| i).collect()
    }

    /// Returns a description of QP `i` for messages.
    pub(super) fn describe(&self, i: usize) -> String {
        let qpn = self.connections[i].pair.as_ref().map_or(0, |(pair, _)| pair.address.qpn);
        format!("QP {qpn:#x} towards PE {}", self.place(i).0)
    }

    /// Describes the first `limit` QPs with operations that kernels do not know to be complete.
    ///
    /// # Errors
    /// An error if the machine cannot read its memory.
    pub(super) fn in_flight(&self, limit: usize) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for (i, connection) in self.connections.iter().enumerate() {
            if !connection.published || found.len() == limit {
                continue;
            }
            let words = self.state.read_qp(i as u64)?;
            let blocks = words.reserved.word.saturating_sub(words.done.word);
            if words.done.word > 0 && blocks > 0 {
                found.push(format!(
                    "{} has {blocks} basic blocks that are not known to be complete",
                    self.describe(i)
                ));
            }
        }
        Ok(found)
    }

    /// Marks a QP as lost, and informs its peer.
    pub(super) fn lose(&mut self, i: usize, why: &str, post: &mut dyn FnMut(Outgoing)) {
        if self.connections[i].published {
            self.inform_peer(i, why, post);
        } else if !self.connections[i].failed {
            // Kernels that wait for the connection learn of it as well. Their error is the caller's.
            let _ = self.fail(i, why, Some(post));
        }
        self.connections[i].failed = true;
    }

    /// Begins to connect QP `i`, unless that has begun.
    ///
    /// # Errors
    /// The cause, if the QP cannot be connected. Kernels and the peer are informed.
    pub(crate) fn request(&mut self, i: usize, post: &mut dyn FnMut(Outgoing)) -> Result<()> {
        let ((peer, set), epoch) = (self.place(i), self.epoch);
        if self.closed[i] {
            self.connections[i].refused = true;
            return Err(self.deny(i, "the context is limited to other PEs: see `Pe::context_to`"));
        }
        if self.connections[i].pair.is_some() || self.connections[i].failed {
            return Ok(());
        }
        let outcome = self.make(i).and_then(|address| {
            if peer == self.me {
                self.connect(i, address)?;
                self.connections[i].peer_ready = true;
                return self.publish_if_ready(i);
            }
            let status = QpStatus::Qp { address, ready: false, unordered: false };
            post((peer, ConnectMessage { epoch, set, status }));
            Ok(())
        });
        outcome.map_err(|error| self.fail(i, &error.to_string(), Some(post)))
    }

    /// Processes a message of PE `from`.
    ///
    /// # Errors
    /// The cause, if a QP cannot be connected. Kernels and the peer are informed.
    pub(crate) fn receive(
        &mut self,
        from: u32,
        message: ConnectMessage,
        post: &mut dyn FnMut(Outgoing),
    ) -> Result<()> {
        let i = message.set.saturating_mul(self.shape.n_pes.into()).saturating_add(from.into()) as usize;
        if from >= self.shape.n_pes || i >= self.connections.len() {
            let what = format!("PE {from} requests QP set {}, which this job does not have", message.set);
            return Err(Error::Misuse { call: "connect", what });
        }
        if self.connections[i].failed || message.epoch != self.epoch {
            return Ok(());
        }
        let (remote, ready) = match message.status {
            QpStatus::Qp { address, ready, unordered } => {
                self.connections[i].unordered |= unordered;
                (address, ready)
            }
            QpStatus::Failed { why } => {
                let why = format!("PE {from} reports: {why}");
                if self.connections[i].published {
                    self.connections[i].failed = true;
                    return Err(Error::ConnectionLost { pe: self.me, peer: from, why });
                }
                return Err(self.fail(i, &why, None));
            }
        };
        let outcome = self.advance(i, remote, ready, post);
        outcome.map_err(|error| self.fail(i, &error.to_string(), Some(post)))
    }

    fn advance(
        &mut self,
        i: usize,
        remote: QpAddress,
        ready: bool,
        post: &mut dyn FnMut(Outgoing),
    ) -> Result<()> {
        let ((peer, set), epoch) = (self.place(i), self.epoch);
        let mine = self.make(i)?;
        if !self.connections[i].ready {
            self.connect(i, remote)?;
        }
        let connection = &mut self.connections[i];
        connection.peer_ready |= ready;
        if !std::mem::replace(&mut connection.ready_sent, true) {
            let status = QpStatus::Qp { address: mine, ready: true, unordered: connection.unordered };
            post((peer, ConnectMessage { epoch, set, status }));
        }
        self.publish_if_ready(i)
    }

    /// Returns the QP's address. Creates the QP if it does not exist.
    fn make(&mut self, i: usize) -> Result<QpAddress> {
        if let Some((pair, _)) = &self.connections[i].pair {
            return Ok(pair.address);
        }
        let (peer, set) = self.place(i);
        let rail = self.shape.rail(set);
        let (slot, slots) = (self.used[rail], self.shape.rail_slots());
        if slot >= slots {
            return Err(Error::QueueMemory { qps: slots, wanted: self.shape.qps() });
        }
        let pair = self.rails[rail].make(slot, i as u64)?;
        self.used[rail] += 1;
        self.flushes[rail].note_qp();
        let address = pair.address;
        self.rails[rail].nic().note_peer(address.qpn, peer);
        self.connections[i].pair = Some((pair, rail as u64 * slots + slot));
        Ok(address)
    }

    fn connect(&mut self, i: usize, remote: QpAddress) -> Result<()> {
        let (peer, set) = self.place(i);
        let rail = self.shape.rail(set);
        if let Some((pair, _)) = &self.connections[i].pair {
            let port = &self.nics[peer as usize].rails[rail].port;
            self.rails[rail].connect(pair, port, remote, self.retries)?;
            let unordered = self.rails[rail].is_unordered(pair)?;
            tracing::debug!(
                pe = self.me,
                peer,
                set,
                qpn = pair.address.qpn,
                remote_qpn = remote.qpn,
                unordered,
                "connected"
            );
            self.connections[i].unordered |= unordered;
            self.connections[i].ready = true;
        }
        Ok(())
    }

    fn publish_if_ready(&mut self, i: usize) -> Result<()> {
        let (rail, weak) = (self.shape.rail(self.place(i).1), self.weakness(i));
        let connection = &mut self.connections[i];
        if let Some((pair, words)) = &connection.pair
            && connection.ready
            && connection.peer_ready
            && !connection.published
            && !self.closed[i]
        {
            let published = self.rails[rail].connection(&self.state, pair, *words, weak);
            self.handshakes.answer(i, Some(&published))?;
            connection.published = true;
        }
        Ok(())
    }

    /// Returns the flags of [`qp_flags::WEAK`] that QP `i` has.
    fn weakness(&self, i: usize) -> u32 {
        let (peer, set) = self.place(i);
        let relaxed = self.nics[peer as usize].rails[self.shape.rail(set)].level.relaxed_keys;
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        flag(self.connections[i].unordered, qp_flags::UNORDERED) | flag(relaxed, qp_flags::RELAXED)
    }

    /// Marks QP `i` as failed, informs kernels and the peer, and returns the error.
    fn fail(&mut self, i: usize, why: &str, post: Option<&mut dyn FnMut(Outgoing)>) -> Error {
        self.connections[i].failed = true;
        let error = self.deny(i, why);
        if let Some(post) = post {
            self.inform_peer(i, why, post);
        }
        error
    }

    /// Tells the peer of QP `i` that the QP cannot be used.
    fn inform_peer(&self, i: usize, why: &str, post: &mut dyn FnMut(Outgoing)) {
        let ((peer, set), epoch) = (self.place(i), self.epoch);
        if peer != self.me {
            post((peer, ConnectMessage { epoch, set, status: QpStatus::Failed { why: why.into() } }));
        }
    }

    /// Informs kernels that QP `i` stays unconnected, and returns the error.
    fn deny(&self, i: usize, why: &str) -> Error {
        if let Err(error) = self.handshakes.answer(i, None) {
            tracing::error!("cannot inform the kernels about a failed connection: {error}");
        }
        Error::NoConnection { pe: self.me, peer: self.place(i).0, why: why.into() }
    }
}

#[cfg(test)]
mod tests;
