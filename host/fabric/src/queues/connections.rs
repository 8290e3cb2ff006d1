//! Connections between QPs, established on first use.
//!
//! The [workers](super::workers) call this module concurrently, for different QPs. Either PE may start a connection, or
//! both may at the same time. There is only one kind of message: "this is my QP; it is ready, or not yet".
//!
//! ```text
//! A wants a connection                    B
//!   creates its QP       -- not yet -->  creates its QP, connects it to A's
//!   connects it to B's   <-- ready ----
//!   informs its kernels  --- ready --->  informs its kernels
//! ```
//!
//! A QP is ready once it accepts packets (RTR). A PE publishes a connection to its kernels only when both QPs are
//! ready: a packet sent earlier would be dropped, and resent only after the retransmission timeout.
//!
//! A [reset](Connections::reset) starts a new epoch. Every message and request carries the epoch it belongs to, and is
//! ignored in any other one. A process that replaces a lost PE [enters](Connections::enter) the epoch of the others, which
//! [renew](Connections::renew) their QPs to it.

mod completion;
mod failover;
mod first_exchange;
mod initiators;
mod renew;
mod requests;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use rushmem_base::{Pes, lock};
use rushmem_device::abi::{QpDesc, qp_flags};
use rushmem_error::{Error, Result};
use rushmem_machine::Region;
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::prm::qp::ServiceType;

use super::connect_message::{ConnectMessage, QpStatus};
use super::flush::Flush;
use super::info::QpInfo;
use super::pe_nics::PeNics;
use super::private_queue::PrivateQueue;
use super::rail::{Loop, NicInfo, PeerNic, Qp, QpAddress, Rail, RetryPolicy};
use super::{Handshakes, Shape, StateMap};
use crate::provider::{Keys, NicEvent};
use failover::Moves;
use first_exchange::FIRST_EXCHANGE;
pub(super) use requests::peer_of;

/// A message to send, with the rank of the receiving PE.
pub(super) type Outgoing = (u32, ConnectMessage);

/// The state of one QP to a peer.
#[derive(Default)]
struct QpConnection {
    /// The QP, and the index of its slot counted across all rails.
    pair: Option<(Qp, u64)>,
    /// The rail's queue slot of an earlier QP, for the next one.
    slot: Option<u64>,
    /// The QP for the first exchange, until that has succeeded.
    trial: Option<PrivateQueue>,
    /// Set once the QP accepts packets.
    ready: bool,
    /// Set once the peer has been informed that this QP is ready.
    ready_sent: bool,
    peer_ready: bool,
    /// Set if the firmware of either side may place WRITEs out of order.
    unordered: bool,
    /// Set once kernels may post to the QP.
    published: bool,
    failed: bool,
    /// Indices of the NICs on both sides.
    nic: usize,
    peer_nic: usize,
    /// The peer's NIC of the rail, as kernels know it, if its process was replaced while they were running.
    described: Option<PeerNic>,
    moves: Moves,
}

/// All QPs of a PE. Fields drop in order: QPs before rails.
///
/// Each QP has its own lock, so firmware commands for one QP do not delay the others.
pub struct Connections {
    connections: Vec<Mutex<QpConnection>>,
    /// One entry per rail.
    flushes: Vec<Mutex<Flush>>,
    rails: Vec<Rail>,
    /// For each rail, the number of slots in use.
    used: Vec<AtomicU64>,
    /// Number of QPs that kernels may request but to which they cannot post yet.
    missing: AtomicUsize,
    /// The NICs of all PEs: entry `pe * rails + rail`.
    nics: RwLock<Vec<PeerNic>>,
    /// Addresses of the DC targets of all PEs: entry `pe * rails + rail`. Empty unless the job uses DC initiators.
    targets: Vec<AvSeg>,
    state: Arc<StateMap>,
    handshakes: Arc<Handshakes>,
    shape: Shape,
    me: u32,
    retries: RetryPolicy,
    /// For each PE, whether it is a P2P peer, to which no kernel posts.
    p2p: Vec<bool>,
    /// For each QP, whether kernels of this PE are barred from posting to it. The peer may still use the connection in
    /// its direction.
    closed: Vec<AtomicBool>,
    /// Number of [resets](Connections::reset) so far.
    epoch: AtomicU64,
    /// For each QP, which request of kernels was taken last in this epoch.
    taken: Vec<AtomicU64>,
    /// For each rail, the index of the NIC that it uses.
    active: Vec<AtomicUsize>,
    /// For each NIC, whether its port is up.
    up: Vec<AtomicBool>,
    /// For each rail, how many threads are waiting to move it.
    rail_moves: Vec<AtomicUsize>,
    /// For each QP, the latest connection that a message has named.
    announced: Vec<AtomicU32>,
    /// Time limit for the replacement of a connection.
    patience: Duration,
    /// For each PE, the job's epoch in which its process and this one met if one of them is a replacement, and 0 otherwise.
    since: Vec<AtomicU64>,
    /// Whether kernels were running when QPs were [renewed](Connections::renew), so some may still be in an earlier state.
    has_stale: AtomicBool,
    /// Locked while kernels must not start.
    settling: Mutex<()>,
}

impl Connections {
    /// Creates the QPs of PE `me`, none of them connected. `nics` describes the NICs of all PEs, by rank.
    pub fn new(
        rails: Vec<Rail>,
        nics: &[PeNics],
        state: Arc<StateMap>,
        handshakes: Arc<Handshakes>,
        shape: Shape,
        me: u32,
        retries: RetryPolicy,
    ) -> Self {
        let all = 0..shape.entries();
        let used = rails.iter().map(|_| AtomicU64::new(0)).collect();
        let flushes = rails.iter().map(|_| Mutex::default()).collect();
        let p2p = vec![false; shape.n_pes as usize];
        Self {
            connections: all.clone().map(|_| Mutex::default()).collect(),
            flushes,
            active: (0..rails.len()).map(AtomicUsize::new).collect(),
            up: rails.iter().map(|_| AtomicBool::new(true)).collect(),
            rail_moves: rails.iter().map(|_| AtomicUsize::new(0)).collect(),
            announced: all.clone().map(|_| AtomicU32::new(0)).collect(),
            patience: Duration::MAX,
            taken: all.clone().map(|_| AtomicU64::new(0)).collect(),
            rails,
            used,
            missing: AtomicUsize::new(shape.qps() as usize),
            nics: RwLock::new(nics.iter().flat_map(|pe| &pe.rails).map(NicInfo::for_peers).collect()),
            targets: Vec::new(),
            state,
            handshakes,
            shape,
            me,
            retries,
            p2p,
            closed: all.map(|_| AtomicBool::default()).collect(),
            epoch: AtomicU64::new(0),
            since: (0..shape.n_pes).map(|_| AtomicU64::new(0)).collect(),
            has_stale: AtomicBool::new(false),
            settling: Mutex::new(()),
        }
    }

    /// Excludes the PEs for which `p2p` is true: kernels access their memory directly and never post to them.
    pub fn without_p2p_peers(mut self, p2p: Vec<bool>) -> Self {
        self.p2p = p2p;
        self.missing = AtomicUsize::new(self.usable().len());
        self
    }

    /// Restricts kernels that post through the QPs `qps` to the PEs `peers`. Does nothing for DC initiators: each
    /// reaches all PEs, so a limit would save no QP.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a QP to another PE is already connected.
    pub(super) fn limit(&self, qps: Range<usize>, peers: &[u32]) -> Result<()> {
        if self.shape.is_dc() {
            return Ok(());
        }
        // All locks are held until the last QP is closed, so no QP is published after the check: kernels could already
        // post to it, and it would decrement `missing` a second time. Other threads lock one connection at a time.
        let others = qps.filter(|&i| !peers.contains(&self.place(i).0));
        let others: Vec<_> = others.map(|i| (i, lock(&self.connections[i]))).collect();
        if let Some(&(i, _)) = others.iter().find(|(_, connection)| connection.is_in_use()) {
            let why =
                format!("the QP to PE {} is already connected; set RUSHMEM_CONNECT=lazy", self.place(i).0);
            return Err(Error::Unavailable { what: "a context limited to some PEs".into(), why });
        }
        for &(i, _) in &others {
            if !self.is_unused(i) {
                self.missing.fetch_sub(1, Ordering::AcqRel);
            }
            self.closed[i].store(true, Ordering::Release);
        }
        Ok(())
    }

    fn is_unused(&self, i: usize) -> bool {
        let first = self.place(i).0;
        if self.shape.is_dc() {
            // Entries beyond the initiators only describe a PE: they refer to the initiator that serves it.
            return first >= self.shape.set_qps();
        }
        self.is_closed(i) || self.p2p[first as usize]
    }

    fn is_closed(&self, i: usize) -> bool {
        self.closed[i].load(Ordering::Acquire)
    }

    /// Returns whether any PE of the job registers its heap with relaxed keys, through which writes may be reordered on
    /// the PCIe bus.
    pub fn has_relaxed_keys(&self) -> bool {
        self.all_nics().iter().any(|nic| nic.relaxed_keys)
    }

    /// Returns whether any rail has its queues in GPU memory.
    pub fn on_gpu(&self) -> bool {
        self.rails.iter().any(Rail::is_on_gpu)
    }

    fn all_nics(&self) -> RwLockReadGuard<'_, Vec<PeerNic>> {
        self.nics.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn nic(&self, peer: u32, rail: usize) -> PeerNic {
        self.all_nics()[peer as usize * self.rails.len() + rail]
    }

    /// Returns the index of the rail that QP `i` belongs to.
    fn home(&self, i: usize) -> usize {
        self.shape.rail(self.place(i).1.into())
    }

    /// Returns the rank of the peer and the index of the QP set that QP `i` belongs to. For a DC initiator, the peer is
    /// the first PE it serves.
    pub(super) fn place(&self, i: usize) -> (u32, u32) {
        let n = self.shape.n_pes as usize;
        ((i % n) as u32, (i / n) as u32)
    }

    /// Returns the descriptors of all QPs, by QP index. A descriptor holds everything about a QP that does not change
    /// when it connects.
    pub fn descriptors(&self) -> Vec<QpDesc> {
        (0..self.connections.len()).map(|i| self.descriptor(i)).collect()
    }

    fn descriptor(&self, i: usize) -> QpDesc {
        let (peer, set) = self.place(i);
        let rail = self.shape.rail(set.into());
        let (mine, theirs) = (self.rails[rail].keys(), self.nic(peer, rail));
        let first = u64::from(set) * u64::from(self.shape.n_pes);
        QpDesc {
            pe_state: self.state.device_state(),
            handshake: self.handshakes.addr(i),
            lkey: mine.data().lkey(),
            rkey: theirs.rkey,
            peer,
            log_depth: self.shape.log_depth().into(),
            flags: self.rails[rail].flags()
                | if self.shape.is_dc() { qp_flags::DC } else { 0 }
                | if self.shape.failover { qp_flags::FAILOVER } else { 0 },
            rail: rail as u32,
            strict_lkey: mine.strict().lkey(),
            strict_rkey: theirs.strict_rkey,
            target: self.target(peer, rail).copied().unwrap_or_default(),
            // The entry itself, or with DC the entry of the initiator that serves the peer.
            queue: self.state.entry(first + u64::from(self.shape.qp_of(peer))),
            reserved: [0; 6],
        }
    }

    /// Returns the address of the DC target of `peer` on a rail, or `None` if the job uses no DC initiators.
    fn target(&self, peer: u32, rail: usize) -> Option<&AvSeg> {
        self.targets.get(peer as usize * self.rails.len() + rail)
    }

    /// Destroys all QPs and marks every connection as unconnected, as after start-up. No kernel may be running on any PE.
    ///
    /// # Errors
    /// An error if the machine cannot write its memory.
    pub(super) fn reset(&self) -> Result<()> {
        // First of all. A step that locks a QP after it was cleared sees the new epoch and does nothing; a QP that an
        // earlier step created is dropped here.
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.connections.iter().for_each(|connection| *lock(connection) = QpConnection::default());
        self.taken.iter().for_each(|taken| taken.store(0, Ordering::Release));
        self.announced.iter().for_each(|number| number.store(0, Ordering::Release));
        self.flushes.iter().for_each(|flush| lock(flush).reset());
        // The slots can be reused only now that no QP refers to them.
        for (rail, used) in self.rails.iter().zip(&self.used) {
            rail.clear_ahead(0..used.swap(0, Ordering::AcqRel))?;
        }
        self.missing.store(self.usable().len(), Ordering::Release);
        self.handshakes.clear()?;
        self.state.clear_slots()?;
        self.state.describe_qps(&self.descriptors())
    }

    /// Registers `memory` with the NIC of each rail.
    ///
    /// # Errors
    /// Fails if a NIC refuses the registration.
    pub(super) fn register(&self, memory: &Region) -> Result<Vec<Keys>> {
        self.rails.iter().map(|rail| rail.register(memory)).collect()
    }

    /// Returns the indices of the QPs that kernels may request.
    pub fn usable(&self) -> Vec<usize> {
        (0..self.connections.len()).filter(|&i| !self.is_unused(i)).collect()
    }

    pub fn is_complete(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    /// Describes the requestable QPs that are not connected yet, for messages: their peers, and the state of the first
    /// one.
    pub(super) fn describe_missing(&self) -> String {
        let is_missing = |i: &usize| !lock(&self.connections[*i]).published;
        let peers: BTreeSet<u32> =
            self.usable().into_iter().filter(is_missing).map(|i| self.place(i).0).collect();
        let first =
            peers.first().and_then(|&peer| (0..self.connections.len()).find(|&i| self.place(i).0 == peer));
        let state = first.map_or(String::new(), |i| self.state_of(i, &lock(&self.connections[i])));
        format!("missing: {}; {state}", Pes(peers.into_iter().collect()))
    }

    pub fn connected(&self) -> usize {
        self.connections.iter().filter(|connection| lock(connection).is_in_use()).count()
    }

    /// Returns the peer and the QPN of a QP that kernels have marked as failed (poisoned), if there is one.
    ///
    /// # Errors
    /// An error if the QP state cannot be read.
    pub(super) fn poisoned(&self) -> Result<Option<(u32, u32)>> {
        for (i, connection) in self.connections.iter().enumerate() {
            let connection = lock(connection);
            if connection.published
                && let Some((pair, _)) = &connection.pair
                && self.state.read_qp(i as u64)?.poison.word != 0
            {
                return Ok(Some((self.place(i).0, pair.address.qpn)));
            }
        }
        Ok(None)
    }

    /// Returns the peer and the QPN of a failed QP: one that kernels have poisoned, or one in the NIC's `ERR` state.
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

    /// Returns the number of PRM commands executed so far, on all NICs.
    pub(super) fn commands(&self) -> u64 {
        self.rails.iter().map(|rail| rail.nic().commands()).sum()
    }

    /// Queries the NICs for the state of all published QPs.
    ///
    /// # Errors
    /// Fails if a NIC refuses a query.
    pub fn query(&self) -> Result<Vec<QpInfo>> {
        let mut all = Vec::new();
        for (i, connection) in self.connections.iter().enumerate() {
            let connection = lock(connection);
            if connection.published
                && let Some((pair, _)) = &connection.pair
            {
                let weak = self.weakness(i, &connection);
                all.push(self.rails[connection.nic].query(pair, self.place(i).0, weak)?);
            }
        }
        Ok(all)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns the epoch that messages to and from `peer` carry. It differs between the processes of a PE.
    fn epoch_with(&self, peer: u32) -> u64 {
        self.since[peer as usize].load(Ordering::Acquire) << 32 | self.epoch()
    }

    pub(super) fn events(&self, rail: usize) -> Vec<NicEvent> {
        self.rails[rail].nic().events()
    }

    pub(super) fn nic_names(&self) -> Vec<String> {
        self.rails.iter().map(|rail| rail.nic().name()).collect()
    }

    pub(super) fn pe(&self) -> u32 {
        self.me
    }

    /// Returns the indices of the QPs that exist on a NIC and for which `choose` returns true.
    pub(super) fn find(&self, nic: usize, choose: impl Fn(&Qp) -> bool) -> Vec<usize> {
        let is_chosen = |(_, connection): &(usize, &Mutex<QpConnection>)| {
            let connection = lock(connection);
            connection.nic == nic && connection.pair.as_ref().is_some_and(|(pair, _)| choose(pair))
        };
        self.connections.iter().enumerate().filter(is_chosen).map(|(i, _)| i).collect()
    }

    pub(super) fn describe(&self, i: usize) -> String {
        self.describe_qp(i, &lock(&self.connections[i]))
    }

    fn describe_qp(&self, i: usize, connection: &QpConnection) -> String {
        let qpn = connection.pair.as_ref().map_or(0, |(pair, _)| pair.address.qpn);
        match self.shape.is_dc() {
            true => format!("DC initiator {qpn:#x}"),
            false => format!("QP {qpn:#x} towards PE {}", self.place(i).0),
        }
    }

    /// Describes up to `limit` QPs with operations that kernels do not know to be complete. Skips QPs locked by another
    /// thread, which may be waiting for these operations.
    ///
    /// # Errors
    /// An error if the machine cannot read its memory.
    pub(super) fn in_flight(&self, limit: usize) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for (i, connection) in self.connections.iter().enumerate() {
            let Ok(connection) = connection.try_lock() else { continue };
            if !connection.published || found.len() == limit {
                continue;
            }
            let words = self.state.read_qp(i as u64)?;
            let blocks = words.reserved.word.saturating_sub(words.done.word);
            if words.done.word > 0 && blocks > 0 {
                found.push(format!(
                    "{} has {blocks} basic blocks that are not known to be complete",
                    self.describe_qp(i, &connection)
                ));
            }
        }
        Ok(found)
    }

    /// Marks QP `i` as failed for the reason `why`, and informs its peer.
    pub(super) fn lose(&self, i: usize, why: &str, post: &mut dyn FnMut(Outgoing)) {
        let mut connection = lock(&self.connections[i]);
        // Kernels already have the connection; the caller aborts their waits.
        if connection.is_in_use() && !connection.moves.is_awaited() {
            self.inform_peer(i, QpStatus::Failed { why: why.into() }, post);
        } else if !connection.failed {
            // Kernels that wait for the connection see the failure in its handshake. The caller reports the error.
            let _ = self.fail(i, &mut connection, why, Some(post));
        }
        connection.failed = true;
    }

    /// Starts to connect QP `i`, unless that has already happened. Does nothing if `epoch` is not the current one.
    ///
    /// # Errors
    /// The reason, if the QP cannot be connected. Kernels and the peer have then been informed.
    pub fn request(&self, i: usize, epoch: u64, post: &mut dyn FnMut(Outgoing)) -> Result<()> {
        let peer = self.place(i).0;
        let mut connection = lock(&self.connections[i]);
        // Checked under the lock, so no reset can clear the QP in between.
        if epoch != self.epoch() {
            return Ok(());
        }
        if self.is_closed(i) {
            return Err(self.deny(i, "the context is limited to other PEs: see `Pe::context_to`"));
        }
        let connection = &mut *connection;
        let Some(was_stale) = self.leave_stale(i, connection)? else { return Ok(()) };
        if connection.failed {
            return if was_stale { Err(self.deny(i, "its connection has failed")) } else { Ok(()) };
        }
        // A message from the peer came first, and `receive` takes care of the rest.
        if connection.pair.is_some() {
            let published = if was_stale { self.publish_if_ready(i, connection, post) } else { Ok(()) };
            return published.map_err(|error| self.fail(i, connection, &error.to_string(), Some(post)));
        }
        let outcome = self.make(i, connection).and_then(|address| {
            if self.shape.is_dc() {
                connection.peer_nic = connection.nic;
                self.start_initiator(i, connection)?;
                return self.publish_if_ready(i, connection, post);
            }
            if peer == self.me {
                return self.connect_to_itself(i, connection, address, post);
            }
            let trial = connection.trial.as_ref().map(PrivateQueue::address);
            let status = QpStatus::not_ready(address, trial, Self::connection_place(connection));
            self.inform_peer(i, status, post);
            Ok(())
        });
        outcome.map_err(|error| self.fail(i, connection, &error.to_string(), Some(post)))
    }

    /// Abandons QP `i`, which was requested `within` ago, unless it is connected or has failed.
    ///
    /// # Errors
    /// The state of the QP, if it is abandoned. Kernels and the peer have then been informed.
    pub(super) fn give_up(
        &self,
        i: usize,
        epoch: u64,
        within: Duration,
        post: &mut dyn FnMut(Outgoing),
    ) -> Result<()> {
        let mut connection = lock(&self.connections[i]);
        if epoch != self.epoch() || connection.published || connection.failed {
            return Ok(());
        }
        let state = self.state_of(i, &connection);
        let why = format!("no connection within {within:?} (RUSHMEM_CONNECT_TIMEOUT): {state}");
        Err(self.fail(i, &mut connection, &why, Some(post)))
    }

    /// Describes why QP `i` is not connected yet.
    fn state_of(&self, i: usize, connection: &QpConnection) -> String {
        let (peer, qp) = (self.place(i).0, self.describe_qp(i, connection));
        match (&connection.pair, connection.ready) {
            (None, _) => {
                format!("this PE has not made its QP towards PE {peer}, because it makes others first")
            }
            (Some(_), false) => format!("{qp} waits for the number of the peer's QP"),
            (Some(_), true) => format!("{qp} accepts packets, but PE {peer} has not told that its QP does"),
        }
    }

    /// Returns the index of the QP that connects to `peer` in QP set `set`.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this job has no such QP.
    pub(super) fn index(&self, peer: u32, set: u32) -> Result<usize> {
        let i = u64::from(set) * u64::from(self.shape.n_pes) + u64::from(peer);
        if peer >= self.shape.n_pes || i >= self.shape.entries() {
            let what = format!("PE {peer} requests QP set {set}, which this job does not have");
            return Err(Error::misuse("connect", what));
        }
        Ok(i as usize)
    }

    /// Handles a connect message from PE `from`, and passes replies to `post`.
    ///
    /// # Errors
    /// The reason, if a QP cannot be connected. Kernels and the peer have then been informed.
    pub fn receive(&self, from: u32, message: ConnectMessage, post: &mut dyn FnMut(Outgoing)) -> Result<()> {
        let i = self.index(from, message.set)?;
        let mut connection = lock(&self.connections[i]);
        // A reset may have overtaken the message. A failed QP stays failed until the next reset.
        if connection.failed || message.epoch != self.epoch_with(from) {
            return Ok(());
        }
        let connection = &mut *connection;
        let (remote, ready, place) = match message.status {
            QpStatus::Qp { address, ready, unordered, trial, place } => {
                connection.unordered |= unordered;
                ((address, trial), ready, place)
            }
            QpStatus::Failed { why } => {
                let why = format!("PE {from} reports: {why}");
                // Kernels may be waiting for operations on this QP. On `ConnectionLost`, the caller aborts the waits.
                if connection.is_in_use() && !connection.moves.is_awaited() {
                    connection.failed = true;
                    return Err(Error::ConnectionLost { pe: self.me, peer: from, why });
                }
                // `None`: the peer already knows.
                return Err(self.fail(i, connection, &why, None));
            }
        };
        let outcome = self.follow(i, connection, place, post).and_then(|is_current| {
            if is_current {
                return self.advance(i, connection, remote, ready, post);
            }
            // What an earlier message says may be all that a replay was waiting for.
            self.publish_if_ready(i, connection, post)
        });
        outcome.map_err(|error| self.fail(i, connection, &error.to_string(), Some(post)))
    }

    /// Advances the connection of QP `i`, given the address of the peer's QP and of its QP for the first exchange: creates and
    /// connects the QP, informs the peer that it is ready, and publishes it. Repeated messages are harmless, since each step is taken once.
    fn advance(
        &self,
        i: usize,
        connection: &mut QpConnection,
        remote: (QpAddress, Option<QpAddress>),
        ready: bool,
        post: &mut dyn FnMut(Outgoing),
    ) -> Result<()> {
        let peer = self.place(i).0;
        let mine = self.make(i, connection)?;
        if !connection.ready {
            self.connect(i, connection, remote)?;
        }
        connection.peer_ready |= ready;
        let trial = connection.trial.as_ref().map(PrivateQueue::address);
        if trial.is_some() && self.me < peer {
            if !connection.peer_ready {
                // The peer needs the addresses to get ready. A second copy does no harm.
                let status = QpStatus::not_ready(mine, trial, Self::connection_place(connection));
                self.inform_peer(i, status, post);
                return Ok(());
            }
            self.try_path(i, connection)?;
        }
        // One answer per epoch, or two PEs would acknowledge each other's messages forever.
        if !std::mem::replace(&mut connection.ready_sent, true) {
            let (unordered, place) = (connection.unordered, Self::connection_place(connection));
            let status = QpStatus::Qp { address: mine, ready: true, unordered, trial, place };
            self.inform_peer(i, status, post);
        }
        self.publish_if_ready(i, connection, post)
    }

    /// Connects QP `i`, which leads to this PE, to itself, without messages.
    fn connect_to_itself(
        &self,
        i: usize,
        connection: &mut QpConnection,
        address: QpAddress,
        post: &mut dyn FnMut(Outgoing),
    ) -> Result<()> {
        connection.peer_nic = connection.nic;
        self.connect(i, connection, (address, None))?;
        connection.peer_ready = true;
        self.publish_if_ready(i, connection, post)
    }

    /// Returns the QP's address, after creating the QP if needed.
    fn make(&self, i: usize, connection: &mut QpConnection) -> Result<QpAddress> {
        if let Some((pair, _)) = &connection.pair {
            return Ok(pair.address);
        }
        let (rail, nic) = (self.home(i), self.active(self.home(i)));
        // The rail has a slot for each QP. One that is created again in the same epoch keeps its slot, so slots cannot run out.
        let slot = connection.slot.take().unwrap_or_else(|| self.used[rail].fetch_add(1, Ordering::AcqRel));
        let pair = if nic != rail || connection.moves.number > 0 || connection.moves.is_under_way() {
            self.rails[nic].make_spare(Self::spare_slot(i, connection), i as u64)?
        } else {
            let service = if self.shape.is_dc() { ServiceType::DCI } else { ServiceType::RC };
            self.rails[rail].make(slot, i as u64, service)?
        };
        connection.nic = nic;
        // From here on the peer may write, so host collectives have to flush.
        lock(&self.flushes[nic]).note_qp();
        let address = pair.address;
        if !self.shape.is_dc() {
            self.rails[nic].nic().note_peer(address.qpn, self.place(i).0);
        }
        if connection.moves.number == 0 && self.is_untried(i) {
            connection.trial = Some(PrivateQueue::new(&self.rails[rail], Loop::OneQp)?);
        }
        connection.pair = Some((pair, rail as u64 * self.shape.rail_slots() + slot));
        Ok(address)
    }

    /// Connects the QP, and its QP for the first exchange, to those of the peer. Records the ordering that the firmware
    /// chose.
    fn connect(
        &self,
        i: usize,
        connection: &mut QpConnection,
        (remote, remote_trial): (QpAddress, Option<QpAddress>),
    ) -> Result<()> {
        let (peer, set) = self.place(i);
        let rail = connection.nic;
        if let Some((pair, _)) = &connection.pair {
            let port = self.nic(peer, connection.peer_nic).port;
            if let (Some(trial), Some(remote)) = (&connection.trial, remote_trial) {
                trial.connect(&self.rails[rail], &port, remote, RetryPolicy::within(FIRST_EXCHANGE, 7))?;
            }
            self.rails[rail].connect(pair, &port, remote, self.retries)?;
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
            connection.unordered |= unordered;
            connection.ready = true;
        }
        Ok(())
    }

    /// Publishes the connection to kernels if both QPs are ready. By then the peer's ordering is known, since its
    /// `ready` message contains it. If kernels have used an earlier connection, replays what was in flight on it before.
    fn publish_if_ready(
        &self,
        i: usize,
        connection: &mut QpConnection,
        post: &mut dyn FnMut(Outgoing),
    ) -> Result<()> {
        if !connection.ready || !connection.peer_ready || connection.published || self.is_closed(i) {
            return Ok(());
        }
        let was_in_use = connection.is_in_use();
        let replayed = match connection.moves.is_under_way() {
            true => match self.replay(i, connection, post)? {
                None => return Ok(()),
                replayed => replayed,
            },
            false => None,
        };
        let weak = self.weakness(i, connection);
        if let Some((pair, words)) = &connection.pair {
            let mut published = self.rails[connection.nic].connection(&self.state, pair, *words, weak);
            let home = self.home(i);
            let described = connection.described.unwrap_or_else(|| self.nic(self.place(i).0, home));
            published.keys = self.keys(i, home, described, connection);
            if published.keys.iter().any(|key| key.from != key.to) {
                // Posters replace keys where they treat queues that are not in GPU memory.
                published.flags = published.flags & !qp_flags::ON_GPU | qp_flags::MOVED;
            }
            self.give(i, connection, &published, replayed)?;
            connection.published = true;
            connection.trial = None;
            if !was_in_use && !self.is_unused(i) {
                self.missing.fetch_sub(1, Ordering::AcqRel);
            }
        }
        Ok(())
    }

    /// Returns the [`qp_flags::WEAK`] bits of QP `i`, which record that WRITEs may be reordered.
    fn weakness(&self, i: usize, connection: &QpConnection) -> u32 {
        let peer = self.place(i).0;
        let relaxed = match self.shape.is_dc() {
            // An initiator reaches all PEs, so one PE with relaxed keys weakens it.
            true => self.has_relaxed_keys(),
            false => self.nic(peer, connection.peer_nic).relaxed_keys,
        };
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        flag(connection.unordered, qp_flags::UNORDERED) | flag(relaxed, qp_flags::RELAXED)
    }

    /// Marks QP `i` as failed, informs kernels and (given `post`) the peer, and returns the error.
    fn fail(
        &self,
        i: usize,
        connection: &mut QpConnection,
        why: &str,
        post: Option<&mut dyn FnMut(Outgoing)>,
    ) -> Error {
        connection.failed = true;
        connection.trial = None;
        let error = self.deny(i, why);
        if let Some(post) = post {
            self.inform_peer(i, QpStatus::Failed { why: why.into() }, post);
        }
        error
    }

    /// Informs the peer of QP `i` about the QP. DC targets are shared by all initiators and keep no state about them.
    fn inform_peer(&self, i: usize, status: QpStatus, post: &mut dyn FnMut(Outgoing)) {
        let (peer, set) = self.place(i);
        if peer != self.me && !self.shape.is_dc() {
            post((peer, ConnectMessage { epoch: self.epoch_with(peer), set, status }));
        }
    }
}

#[cfg(test)]
mod tests;
