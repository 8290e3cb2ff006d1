//! Replaces connections that fail: `failover=on`.
//!
//! A *move* replaces the connection of a QP by the next one, which has a number. It starts on either PE: because a kernel has
//! found an error CQE, or because a port has gone down or come up.
//!
//! ```text
//! A moves to connection n                          B
//!   stops its QP, and counts what it executed
//!   creates another QP    -- n, count, not yet -->  moves to connection n, too
//!   connects it to B's    <-- n, count, ready ----
//!   replays               --- n, count, ready --->  replays
//!   informs its kernels                             informs its kernels
//! ```
//!
//! Kernels notice when their QP completes with an error, and hand over the blocks that they do not know to be complete. The
//! peer's NIC reports how many messages it has executed (`rmsn`), and the host *replays* the others. Every operation is
//! therefore executed once, and in order. Until then, the old QP stays in the error state, in which it flushes whatever
//! kernels post.
//!
//! A new QP starts at block 0, but kernels continue at block `resume`. The host therefore posts enough NOPs first
//! that the last replayed block precedes `resume`, modulo 2^16.
//!
//! All QPs of a rail use one NIC of their PE at a time, because atomics of two NICs are not atomic with each other. So when a
//! rail changes its NIC, all its QPs are stopped before the first one moves.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rushmem_base::lock;
use rushmem_device::abi::{
    Connection, DevAddr, FIRST_BLOCK, Handshake, LostResult, MovedKey, qp_flags, reserved, result_order,
};
use rushmem_device::sq;
use rushmem_error::{Error, Result};
use rushmem_mlx5::Wqebb;

use super::{Connections, Outgoing, QpConnection};
use crate::queues::connect_message::{ConnectMessage, ConnectionPlace, QpStatus};
use crate::queues::rail::{PeerNic, Qp, Rail, RetryPolicy};
use crate::queues::salvage::{Replay, Replayed, Salvage, unusable};
use crate::queues::shape::WQEBB_BYTES;

/// Value of [`ConnectionPlace::executed`] if the NIC does not report it.
const UNKNOWN: u32 = u32::MAX;

/// State of the moves of a QP.
#[derive(Default)]
pub(super) struct Moves {
    /// Number of the current connection.
    pub(super) number: u32,
    /// The connection to which kernels post. `None` before the first.
    kernels: Option<Origin>,
    /// The stopped QP of that connection and its NIC, if the connection is an earlier one.
    old: Option<(Qp, usize)>,
    /// Number of messages that this PE's NIC has executed over the previous connection.
    executed_here: u32,
    /// Number of messages that the peer's NIC has executed over the connection to which kernels post. `None` until the peer
    /// has sent it.
    executed_there: Option<u32>,
    /// Blocks to replay, once they have been handed over.
    salvage: Option<Salvage>,
    /// Number of the connection to which the salvaged blocks were posted, until it is known how many were executed.
    posted_to: Option<u32>,
    /// Which of the QP's two spare slots kernels do not use.
    free_slot: u64,
    /// Whether the host has taken the queue over itself, so no kernel waits.
    for_host: bool,
    /// When the queue was taken over.
    since: Option<Instant>,
    /// Whether kernels have yet to request the connection to a process that has replaced the peer, and to say where it starts.
    pub(super) is_stale: bool,
}

/// Where a connection starts.
#[derive(Clone, Copy)]
struct Origin {
    number: u32,
    /// Index of the first block that kernels post.
    block: u64,
    /// Number of messages that were replayed before.
    replayed: u64,
    /// The NICs on both sides, whose keys are in the blocks.
    nics: (usize, usize),
    /// [`qp_flags::WEAK`] bits of the connection.
    weak: u32,
}

/// The part of a failed queue that may not be complete.
struct Range {
    done: u64,
    end: u64,
    resume: u64,
    second_blocks: u64,
}

impl Connections {
    /// Returns whether connections that fail are replaced.
    pub(in super::super) fn fails_over(&self) -> bool {
        self.shape.failover
    }

    /// Limits the time for the replacement of a connection, and checks that QPs can move between the NICs of this PE.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if kernels would have to treat the NICs differently.
    pub fn with_patience(self, patience: Duration) -> Result<Self> {
        let is_big_endian = |rail: &Rail| rail.flags() & qp_flags::BIG_ENDIAN_8 != 0;
        let mut all = self.rails.iter().map(is_big_endian);
        let first = all.next();
        if self.shape.failover && all.any(|is_big_endian| Some(is_big_endian) != first) {
            let why = "the NICs return the results of atomics in different byte orders".into();
            return Err(Error::Unavailable { what: "RUSHMEM_FAILOVER=on".into(), why });
        }
        Ok(Self { patience, ..self })
    }

    /// Returns the index of the NIC that a rail uses.
    pub(super) fn active(&self, rail: usize) -> usize {
        self.active[rail].load(Ordering::Acquire)
    }

    /// Returns what a message says about the connection of a QP.
    pub(super) fn connection_place(connection: &QpConnection) -> ConnectionPlace {
        let Moves { number, executed_here: executed, .. } = connection.moves;
        ConnectionPlace { number, nic: connection.nic as u8, executed }
    }

    /// Returns the index of the spare slot for QP `i`'s next connection.
    pub(super) fn spare_slot(i: usize, connection: &QpConnection) -> u64 {
        2 * i as u64 + connection.moves.free_slot
    }

    /// Returns the offset in the spare queues of QP `i`'s rail, and the address, to which kernels copy blocks when their
    /// connection fails.
    fn salvage_ring(&self, i: usize, connection: &QpConnection) -> Result<(u64, DevAddr)> {
        let memory = self.rails[self.home(i)].spares()?;
        let at = memory.shape().place(Self::spare_slot(i, connection)).sq;
        Ok((at, memory.region().addr.add(at)))
    }

    /// Changes the NICs of the rails after the port of NIC `nic` has gone down or come up.
    pub(in super::super) fn nic_changed(&self, nic: usize, is_up: bool, post: &mut dyn FnMut(Outgoing)) {
        self.up[nic].store(is_up, Ordering::Release);
        for rail in 0..self.rails.len() {
            let is_up = |nic: &usize| self.up[*nic].load(Ordering::Acquire);
            let wanted =
                Some(rail).filter(is_up).or_else(|| (0..self.rails.len()).find(is_up)).unwrap_or(rail);
            if self.active[rail].swap(wanted, Ordering::AcqRel) != wanted {
                self.move_rail(rail, wanted, post);
            }
        }
    }

    /// Moves all connections of `rail` to the NIC `wanted`.
    fn move_rail(&self, rail: usize, wanted: usize, post: &mut dyn FnMut(Outgoing)) {
        tracing::warn!("PE {}: rail {rail} moves to {}", self.me, self.rails[wanted].nic().name());
        let qps = || (0..self.connections.len()).filter(|&i| self.home(i) == rail);
        self.rail_moves[rail].fetch_add(1, Ordering::AcqRel);
        // All locks are held until the last QP is stopped, so the new NIC executes nothing before. Other threads lock one
        // connection at a time.
        let mut all: Vec<_> = qps().map(|i| (i, lock(&self.connections[i]))).collect();
        self.rail_moves[rail].fetch_sub(1, Ordering::AcqRel);
        all.retain_mut(|(i, connection)| {
            let moves = &connection.moves;
            // An interrupted replay needs another connection.
            let is_elsewhere = connection.nic != wanted || moves.posted_to == Some(moves.number);
            let is_affected = connection.pair.is_some() && is_elsewhere && !connection.failed;
            if is_affected {
                self.stop(*i, connection);
            }
            is_affected
        });
        let nics: BTreeSet<usize> = all.iter().map(|(_, connection)| connection.nic).collect();
        nics.into_iter().for_each(|nic| self.flush_executed(nic));
        for (i, mut connection) in all {
            let connection = &mut *connection;
            if let Err(error) = self.restart(i, connection, post) {
                let _ = self.fail(i, connection, &error.to_string(), Some(post));
            }
        }
    }

    /// Interrupts a replay on an earlier connection than that of this message from PE `from`, so the message gets the lock.
    pub(in super::super) fn announce(&self, from: u32, message: &ConnectMessage) {
        if let Ok(i) = self.index(from, message.set)
            && message.epoch == self.epoch_with(from)
        {
            self.announced[i].fetch_max(message.number(), Ordering::AcqRel);
        }
    }

    /// Returns whether QP `i` is moving and kernels have not waited for its next connection for `time` yet.
    pub(in super::super) fn may_still_move(&self, i: usize, time: Duration) -> bool {
        let moves = &lock(&self.connections[i]).moves;
        moves.is_under_way() && !moves.has_lasted(time)
    }

    /// Takes the queue of QP `i` over from a kernel, because its connection has failed.
    ///
    /// # Errors
    /// The reason, if the QP cannot be connected again. Kernels and the peer have then been informed.
    pub(in super::super) fn fail_over(
        &self,
        i: usize,
        epoch: u64,
        post: &mut dyn FnMut(Outgoing),
    ) -> Result<()> {
        let mut connection = lock(&self.connections[i]);
        if epoch != self.epoch() {
            return Ok(());
        }
        let connection = &mut *connection;
        if connection.failed {
            return Err(self.deny(i, "its connection has failed for good"));
        }
        // About a connection to an earlier process of the peer.
        if connection.moves.is_stale {
            return Ok(());
        }
        let outcome = self.take_over(i, connection).and_then(|()| self.advance_move(i, connection, post));
        outcome.map_err(|error| self.fail(i, connection, &error.to_string(), Some(post)))
    }

    fn take_over(&self, i: usize, connection: &mut QpConnection) -> Result<()> {
        let Handshake { done, end, resume, second_blocks, .. } = self.handshakes.read(i)?;
        let (at, _) = self.salvage_ring(i, connection)?;
        let memory = self.rails[self.home(i)].spares()?;
        self.salvage(connection, Range { done, end, resume, second_blocks }, |slot, block| {
            memory.region().read(at + slot * WQEBB_BYTES, block)
        })
    }

    /// Takes over a part of a queue. `read` reads the block in a slot.
    fn salvage(
        &self,
        connection: &mut QpConnection,
        Range { done, end, resume, second_blocks }: Range,
        read: impl Fn(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        tracing::debug!(pe = self.me, done, end, resume, second_blocks, "took a queue over");
        let Some(Origin { number, block, replayed, .. }) = connection.moves.kernels else { return Ok(()) };
        let depth = self.shape.depth;
        let count = end.checked_sub(done).filter(|&count| count <= depth && done >= block);
        let count = count.ok_or_else(|| unusable(format!("the queue cannot hold blocks {done} to {end}")))?;
        let mut blocks = vec![Wqebb::ZERO; count as usize];
        for (index, block) in (done..end).zip(&mut blocks) {
            read(index & (depth - 1), bytemuck::bytes_of_mut(block))?;
        }
        let salvage = Salvage::new(&blocks, done, resume, |second| {
            // Blocks before `done`, less those that are the second of their entry.
            (replayed + (done - block) + second).wrapping_sub(second_blocks)
        })?;
        connection.moves.salvage = Some(salvage);
        connection.moves.posted_to = Some(number);
        Ok(())
    }

    /// Continues the move of QP `i` after its queue has been taken over, or starts it.
    fn advance_move(
        &self,
        i: usize,
        connection: &mut QpConnection,
        post: &mut dyn FnMut(Outgoing),
    ) -> Result<()> {
        connection.moves.since.get_or_insert_with(Instant::now);
        if connection.published {
            self.halt(i, connection);
            return self.restart(i, connection, post);
        }
        if let Some(executed) = connection.moves.executed_there {
            connection.moves.settle(executed)?;
        }
        self.publish_if_ready(i, connection, post)
    }

    /// Stops QP `i`, whose connection has failed or is to be replaced, and waits until what it has executed is in memory.
    fn halt(&self, i: usize, connection: &mut QpConnection) {
        let has_pair = connection.pair.is_some();
        self.stop(i, connection);
        if has_pair {
            self.flush_executed(connection.nic);
        }
    }

    /// Waits until all WRITEs that NIC `nic` has executed are in memory: another NIC may execute the next ones.
    fn flush_executed(&self, nic: usize) {
        // A port that is down may refuse loopback. Data that is on the way in PCIe arrives much earlier than that.
        const LIMIT: Duration = Duration::from_millis(100);
        let retries = RetryPolicy::within(LIMIT, 7);
        let flushed =
            lock(&self.flushes[nic]).flush(&self.rails[nic], retries, Vec::new(), Instant::now() + LIMIT);
        if let Err(error) = flushed {
            tracing::debug!("{error}");
        }
    }

    /// Stops QP `i`.
    pub(super) fn stop(&self, i: usize, connection: &mut QpConnection) {
        let Some((pair, words)) = connection.pair.take() else { return };
        let rail = &self.rails[connection.nic];
        let executed = rail.stop(&pair).and_then(|()| Ok(rail.context(&pair)?.rmsn));
        connection.moves.executed_here = executed.unwrap_or_else(|error| {
            tracing::warn!("{} does not report what it has executed: {error}", rail.nic().name());
            UNKNOWN
        });
        connection.moves.number += 1;
        let Moves { number, executed_here, .. } = connection.moves;
        tracing::debug!(pe = self.me, peer = self.place(i).0, number, executed_here, "stopped");
        connection.slot = Some(words % self.shape.rail_slots());
        (connection.ready, connection.ready_sent, connection.peer_ready) = (false, false, false);
        connection.trial = None;
        if std::mem::take(&mut connection.published) {
            // Kernels post to it until they notice.
            connection.moves.old = Some((pair, connection.nic));
        }
    }

    /// Starts the next connection of QP `i`, which has been stopped.
    fn restart(&self, i: usize, connection: &mut QpConnection, post: &mut dyn FnMut(Outgoing)) -> Result<()> {
        let address = self.make(i, connection)?;
        let place = Self::connection_place(connection);
        if self.place(i).0 == self.me {
            connection.moves.note(place)?;
            return self.connect_to_itself(i, connection, address, post);
        }
        self.inform_peer(i, QpStatus::not_ready(address, None, place), post);
        Ok(())
    }

    /// Moves QP `i` to the connection named in a message of the peer, if that is a later one. Returns whether the message is
    /// about the current connection.
    pub(super) fn follow(
        &self,
        i: usize,
        connection: &mut QpConnection,
        place: ConnectionPlace,
        post: &mut dyn FnMut(Outgoing),
    ) -> Result<bool> {
        let nic = usize::from(place.nic);
        if nic >= self.rails.len() {
            let what = format!("PE {} connects NIC {nic}, which this job does not have", self.place(i).0);
            return Err(Error::misuse("connect", what));
        }
        connection.moves.note(place)?;
        // Threads of the peer send their messages in any order, so one may be missing.
        const MAX_AHEAD: u32 = 16;
        let ahead = place.number.saturating_sub(connection.moves.number);
        if self.shape.failover && (1..=MAX_AHEAD).contains(&ahead) {
            let next = connection.moves.number + 1;
            self.halt(i, connection);
            let executed = connection.moves.executed_here;
            let skips = next != place.number;
            if skips {
                // Nothing was executed over the connection that is skipped.
                connection.moves.executed_here = 0;
            }
            connection.moves.number = place.number;
            self.restart(i, connection, post)?;
            if skips && let Some((pair, _)) = &connection.pair {
                // The peer needs the count of the connection before that one.
                let place = ConnectionPlace { number: next, nic: connection.nic as u8, executed };
                self.inform_peer(i, QpStatus::not_ready(pair.address, None, place), post);
            }
        }
        let is_current = place.number == connection.moves.number;
        if is_current {
            connection.peer_nic = nic;
        }
        Ok(is_current)
    }

    /// Replays what has been taken over of QP `i`. Returns `None` if kernels have not noticed yet, or if the connection has
    /// failed again and the next move follows.
    pub(super) fn replay(
        &self,
        i: usize,
        connection: &mut QpConnection,
        post: &mut dyn FnMut(Outgoing),
    ) -> Result<Option<Replayed>> {
        let Some(Origin { nics, .. }) = connection.moves.kernels else { return Ok(None) };
        let keys = self.keys(i, nics.0, self.nic(self.place(i).0, nics.1), connection);
        let rail: &Rail = &self.rails[connection.nic];
        let moves = &mut connection.moves;
        let (Some((pair, _)), Some(salvage), None) = (&connection.pair, &mut moves.salvage, moves.posted_to)
        else {
            return Ok(None);
        };
        let (number, rail_moves) = (moves.number, &self.rail_moves[self.home(i)]);
        let is_interrupted =
            || self.announced[i].load(Ordering::Acquire) > number || rail_moves.load(Ordering::Acquire) != 0;
        moves.posted_to = Some(number);
        let until = Instant::now().checked_add(self.patience);
        match salvage.replay(rail, pair, &keys, &is_interrupted, until)? {
            Replay::Done(replayed) => {
                moves.posted_to = None;
                tracing::debug!(pe = self.me, i, number, messages = replayed.messages, "replayed");
                Ok(Some(replayed))
            }
            // The message, or the move of the rail, continues from here.
            Replay::Interrupted => Ok(None),
            Replay::Failed(why) => {
                let qp = self.describe_qp(i, connection);
                if connection.moves.has_lasted(self.patience) {
                    return Err(unusable(format!("{qp} cannot be replaced: {why}")));
                }
                tracing::warn!("PE {}: {qp} has failed again: {why}", self.me);
                self.halt(i, connection);
                self.restart(i, connection, post)?;
                Ok(None)
            }
        }
    }

    /// Returns the keys of QP `i`'s memory on this PE's NIC `nic` and on the peer's `remote_from`, each with that on its current NICs:
    /// local and remote, for data and for words.
    pub(super) fn keys(
        &self,
        i: usize,
        nic: usize,
        remote_from: PeerNic,
        connection: &QpConnection,
    ) -> [MovedKey; 4] {
        let (from, to) = (self.rails[nic].keys(), self.rails[connection.nic].keys());
        let remote_to = self.nic(self.place(i).0, connection.peer_nic);
        [
            MovedKey { from: from.data().lkey(), to: to.data().lkey() },
            MovedKey { from: from.strict().lkey(), to: to.strict().lkey() },
            MovedKey { from: remote_from.rkey, to: remote_to.rkey },
            MovedKey { from: remote_from.strict_rkey, to: remote_to.strict_rkey },
        ]
    }

    /// Gives kernels the connection of QP `i`, which is new or on which everything has been replayed.
    pub(super) fn give(
        &self,
        i: usize,
        connection: &mut QpConnection,
        published: &Connection,
        replayed: Option<Replayed>,
    ) -> Result<()> {
        let moves = &mut connection.moves;
        let weak = published.flags & qp_flags::WEAK;
        if moves.kernels.is_some_and(|kernels| weak & !kernels.weak != 0) {
            // Kernels may have read that the connection is in order, and post no fences.
            let nic = self.rails[connection.nic].nic().name();
            return Err(unusable(format!("{nic} may reorder WRITEs, unlike the NIC before it")));
        }
        let salvage = moves.salvage.take();
        let (block, lost) =
            salvage.map_or((FIRST_BLOCK, Vec::new()), |salvage| (salvage.resume, salvage.lost));
        let Replayed { completions, messages } = replayed.unwrap_or_default();
        let nics = (connection.nic, connection.peer_nic);
        moves.kernels = Some(Origin { number: moves.number, block, replayed: messages, nics, weak });
        (moves.old, moves.executed_there, moves.since) = (None, None, None);
        if let Some(spare) = connection.pair.as_ref().and_then(|(pair, _)| pair.spare_slot()) {
            moves.free_slot = 1 - spare % 2;
        }
        let completions = if self.shape.collapsed { 0 } else { completions };
        let for_host = std::mem::take(&mut moves.for_host);
        if !self.shape.failover {
            return self.handshakes.answer(i, Some(published));
        }
        let (ring, address) = self.salvage_ring(i, connection)?;
        self.handshakes.set_salvage(i, address)?;
        if for_host {
            self.lose_results(&lost)?;
            return self.state.resume(i as u64, published, block, completions);
        }
        self.list_lost(i, ring, &lost)?;
        self.handshakes.set_progress(i, completions, lost.len() as u64)?;
        self.handshakes.answer(i, Some(published))
    }

    /// Lists lost results for kernels of QP `i`, at offset `at` of its spare queues. Each result has the first block of its
    /// atomic and a heap offset.
    fn list_lost(&self, i: usize, at: u64, lost: &[(u64, u64)]) -> Result<()> {
        let rail = &self.rails[self.home(i)];
        let heap = rail.heap().addr;
        let list = lost.iter().map(|&(block, result)| LostResult {
            block,
            order: if self.is_fetch_slot(result) {
                DevAddr(0)
            } else {
                heap.add(result + result_order::OFFSET)
            },
        });
        let list: Vec<LostResult> = list.collect();
        rail.spares()?.region().write(at, bytemuck::cast_slice(&list))
    }

    /// Marks lost results. No kernel waits for one.
    fn lose_results(&self, lost: &[(u64, u64)]) -> Result<()> {
        let Some(rail) = self.rails.first() else { return Ok(()) };
        let mut outside = lost.iter().filter(|(_, result)| !self.is_fetch_slot(*result));
        outside.try_for_each(|(_, result)| {
            rail.heap().write(result + result_order::OFFSET, bytemuck::bytes_of(&result_order::LOST))
        })
    }

    fn is_fetch_slot(&self, offset: u64) -> bool {
        (reserved::FETCH..self.shape.team_words()).contains(&offset)
    }

    /// Takes the queue of QP `i` over on behalf of kernels, if its connection has failed. No kernel may use the QP.
    /// `has_failed` is whether the CQ contains an error. Returns whether the QP is moving.
    ///
    /// # Errors
    /// The reason, if the QP cannot be connected again. The peer has then been informed.
    pub(super) fn take_over_for_host(
        &self,
        i: usize,
        connection: &mut QpConnection,
        has_failed: bool,
        post: &mut dyn FnMut(Outgoing),
    ) -> Result<bool> {
        if connection.moves.salvage.is_some() {
            return Ok(true);
        }
        let current = connection.pair.as_ref().filter(|_| has_failed).map(|(pair, _)| (pair, connection.nic));
        let old = connection.moves.old.as_ref().map(|(pair, nic)| (pair, *nic));
        let Some((pair, nic)) = old.or(current) else { return Ok(false) };
        let words = self.state.read_qp(i as u64)?;
        let end = words.reserved.word;
        // Nothing was posted, or a kernel has already reported an error.
        if end == FIRST_BLOCK || words.poison.word != 0 {
            return Ok(false);
        }
        let done = words.done.word;
        // As kernels choose it.
        let resume = sq::first_of_queue(end) + (end - done);
        let range = Range { done, end, resume, second_blocks: words.second_blocks.word };
        let memory = self.rails[nic].memory_of(pair);
        let at = memory.shape().place(pair.slot).sq;
        let region = memory.region().clone();
        self.salvage(connection, range, |slot, block| region.read(at + slot * WQEBB_BYTES, block))?;
        connection.moves.for_host = true;
        self.advance_move(i, connection, post)?;
        Ok(true)
    }
}

impl QpConnection {
    /// Returns whether kernels may post to the QP, if only over an earlier connection.
    pub(super) fn is_in_use(&self) -> bool {
        self.published || self.moves.old.is_some()
    }
}

impl Moves {
    /// Returns whether kernels wait for the connection to a process that has replaced the peer.
    pub(super) fn is_awaited(&self) -> bool {
        self.salvage.is_some()
    }

    /// Returns whether kernels still use an earlier connection, or wait for one that continues it.
    pub(super) fn is_under_way(&self) -> bool {
        self.old.is_some() || self.is_stale || self.salvage.is_some()
    }

    /// Returns the state for a connection to another process, while kernels may use `self`, which was stopped.
    pub(super) fn into_another_process(self) -> Self {
        Self { old: self.old, free_slot: self.free_slot, is_stale: true, ..Self::default() }
    }

    /// Forgets the connections that kernels have used.
    pub(super) fn forget_kernels(&mut self) {
        (self.old, self.is_stale) = (None, false);
    }

    /// Starts the connection with block `resume`, without anything to replay. `nics` are those whose keys kernels use.
    ///
    /// # Errors
    /// None; that of an empty queue.
    pub(super) fn start_at(&mut self, resume: u64, nics: (usize, usize)) -> Result<()> {
        // Kernels learn whether it is weak when they connect, as with a first connection.
        let weak = qp_flags::WEAK;
        self.is_stale = false;
        self.kernels = Some(Origin { number: self.number, block: resume, replayed: 0, nics, weak });
        self.salvage = Some(Salvage::new(&[], resume, resume, |_| 0)?);
        self.since = Some(Instant::now());
        Ok(())
    }

    /// Returns whether kernels have waited for the next connection for `time`.
    fn has_lasted(&self, time: Duration) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= time)
    }

    /// Records how many messages the peer has executed over the connection that precedes `place`.
    fn note(&mut self, place: ConnectionPlace) -> Result<()> {
        if place.number == 0 {
            return Ok(());
        }
        let failed = place.number - 1;
        if self.kernels.is_some_and(|kernels| kernels.number == failed) {
            self.executed_there = Some(place.executed);
        }
        if self.posted_to == Some(failed) { self.settle(place.executed) } else { Ok(()) }
    }

    /// Removes the messages that the peer has executed from the blocks to replay.
    fn settle(&mut self, executed: u32) -> Result<()> {
        match (&mut self.salvage, self.posted_to.take()) {
            (Some(salvage), Some(_)) if executed == UNKNOWN => salvage.check_repeatable(),
            (Some(salvage), Some(_)) => salvage.executed(executed),
            _ => Ok(()),
        }
    }
}
