//! Connections, made when they are needed first.
//!
//! Either side may begin, or both at once. There is one kind of letter: "this is my QP number; I am ready, or not yet".
//!
//! ```text
//! A wants a connection                 B
//!   makes its QP       -- not yet -->  makes its QP, connects it to A's
//!   connects it to B's <-- ready ----
//!   tells its kernels  --- ready --->  tells its kernels
//! ```
//!
//! A QP is ready once it accepts packets (RTR). Kernels hear of a connection when both ends are ready: a packet sent
//! earlier would be lost, and wait for the retransmission timer.

use std::sync::Arc;
use std::time::Duration;

use rushmem_device::abi::QpDesc;

use super::rail::{Pair, Rail, RailCard};
use super::{Handshakes, Shape, StateMap};
use crate::{Error, Result};

/// What a PE tells the others at start.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Card {
    pub(crate) rails: Vec<RailCard>,
}

/// What PEs say to each other about the QP of a set between them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Letter {
    set: u64,
    news: News,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum News {
    /// This is the writer's QP.
    Qp { qpn: u32, ready: bool },
    /// The writer cannot connect.
    Failed { why: String },
}

/// A letter, and to whom.
pub(crate) type Outgoing = (u32, Letter);

/// One QP towards a peer, as far as it has come.
#[derive(Default)]
struct Link {
    /// With the number of its slot on the PE.
    pair: Option<(Pair, u64)>,
    /// It accepts packets, and whether the peer has been told.
    ready: bool,
    told: bool,
    peer_ready: bool,
    /// Kernels may use it.
    published: bool,
    failed: bool,
}

/// All QPs of a PE. Fields drop in order: pairs before rails.
pub(crate) struct Links {
    links: Vec<Link>,
    rails: Vec<Rail>,
    /// Slots given out, by rail.
    used: Vec<u64>,
    cards: Vec<Card>,
    state: Arc<StateMap>,
    handshakes: Arc<Handshakes>,
    shape: Shape,
    me: u32,
    timeout: Duration,
}

impl Links {
    /// No connection yet. `cards` are those of all PEs.
    pub(crate) fn new(
        rails: Vec<Rail>,
        cards: Vec<Card>,
        state: Arc<StateMap>,
        handshakes: Arc<Handshakes>,
        shape: Shape,
        me: u32,
        timeout: Duration,
    ) -> Self {
        let links = (0..shape.qps()).map(|_| Link::default()).collect();
        let used = vec![0; rails.len()];
        Self { links, rails, used, cards, state, handshakes, shape, me, timeout }
    }

    /// The peer of QP `i`, and its set.
    fn place(&self, i: usize) -> (u32, u64) {
        let n = self.shape.n_pes as usize;
        ((i % n) as u32, (i / n) as u64)
    }

    /// What kernels must know of the QPs from the start.
    pub(crate) fn descriptors(&self) -> Vec<QpDesc> {
        let describe = |i: usize| {
            let (peer, set) = self.place(i);
            let rail = self.shape.rail(set);
            QpDesc {
                state: self.state.qp(i as u64),
                pe_state: self.state.device_state(),
                handshake: self.handshakes.addr(i),
                lkey: self.rails[rail].lkey(),
                rkey: self.cards[peer as usize].rails[rail].rkey,
                peer,
                log_depth: self.shape.log_depth().into(),
                flags: self.rails[rail].flags(),
                reserved: [0; 21],
            }
        };
        (0..self.links.len()).map(describe).collect()
    }

    /// QPs that kernels may want.
    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// True if kernels have all connections that they could use.
    pub(crate) fn complete(&self) -> bool {
        self.links.iter().all(|link| link.published)
    }

    /// QPs that kernels may use now.
    pub(crate) fn connected(&self) -> usize {
        self.links.iter().filter(|link| link.published).count()
    }

    /// The QPs that kernels want and nobody has begun to connect.
    ///
    /// # Errors
    /// If the kernels' words cannot be read.
    pub(crate) fn wanted(&self) -> Result<Vec<usize>> {
        let idle = self.links.iter().enumerate().filter(|(_, link)| link.pair.is_none() && !link.failed);
        let mut wanted = Vec::new();
        for (i, _) in idle {
            if self.handshakes.wanted(i)? {
                wanted.push(i);
            }
        }
        Ok(wanted)
    }

    /// Begins to connect QP `i`, unless that has begun.
    ///
    /// # Errors
    /// Why it cannot be connected; its kernels and its peer are told.
    pub(crate) fn want(&mut self, i: usize, post: &mut dyn FnMut(Outgoing)) -> Result<()> {
        let (peer, set) = self.place(i);
        if self.links[i].pair.is_some() || self.links[i].failed {
            return Ok(());
        }
        let outcome = self.make(i).and_then(|qpn| {
            if peer == self.me {
                self.connect(i, qpn)?;
                self.links[i].peer_ready = true;
                return self.publish_if_ready(i);
            }
            post((peer, Letter { set, news: News::Qp { qpn, ready: false } }));
            Ok(())
        });
        outcome.map_err(|error| self.fail(i, &error.to_string(), Some(post)))
    }

    /// Takes in what `from` says.
    ///
    /// # Errors
    /// Why a QP cannot be connected; its kernels and its peer are told.
    pub(crate) fn hear(&mut self, from: u32, letter: Letter, post: &mut dyn FnMut(Outgoing)) -> Result<()> {
        let i = letter.set.saturating_mul(self.shape.n_pes.into()).saturating_add(from.into()) as usize;
        if from >= self.shape.n_pes || i >= self.links.len() {
            let what = format!("PE {from} wants to connect QP set {}, which this job has not", letter.set);
            return Err(Error::Misuse { call: "connect", what });
        }
        if self.links[i].failed {
            return Ok(());
        }
        let (qpn, ready) = match letter.news {
            News::Qp { qpn, ready } => (qpn, ready),
            News::Failed { why } => {
                let why = format!("PE {from} says: {why}");
                return Err(self.fail(i, &why, None));
            }
        };
        let outcome = self.advance(i, qpn, ready, post);
        outcome.map_err(|error| self.fail(i, &error.to_string(), Some(post)))
    }

    fn advance(&mut self, i: usize, qpn: u32, ready: bool, post: &mut dyn FnMut(Outgoing)) -> Result<()> {
        let (peer, set) = self.place(i);
        let mine = self.make(i)?;
        if !self.links[i].ready {
            self.connect(i, qpn)?;
        }
        let link = &mut self.links[i];
        link.peer_ready |= ready;
        if !std::mem::replace(&mut link.told, true) {
            post((peer, Letter { set, news: News::Qp { qpn: mine, ready: true } }));
        }
        self.publish_if_ready(i)
    }

    /// The QP's number; makes it if need be.
    fn make(&mut self, i: usize) -> Result<u32> {
        if let Some((pair, _)) = &self.links[i].pair {
            return Ok(pair.qpn);
        }
        let rail = self.shape.rail(self.place(i).1);
        let (slot, slots) = (self.used[rail], self.shape.rail_slots());
        if slot >= slots {
            return Err(Error::QueueMemory { qps: slots, wanted: self.shape.qps() });
        }
        let pair = self.rails[rail].make(slot, i as u64)?;
        self.used[rail] += 1;
        let qpn = pair.qpn;
        self.links[i].pair = Some((pair, rail as u64 * slots + slot));
        Ok(qpn)
    }

    fn connect(&mut self, i: usize, remote_qpn: u32) -> Result<()> {
        let (peer, set) = self.place(i);
        let rail = self.shape.rail(set);
        if let Some((pair, _)) = &self.links[i].pair {
            let port = &self.cards[peer as usize].rails[rail].port;
            self.rails[rail].connect(pair, port, remote_qpn, self.timeout)?;
            tracing::debug!(pe = self.me, peer, set, qpn = pair.qpn, remote_qpn, "connected");
            self.links[i].ready = true;
        }
        Ok(())
    }

    fn publish_if_ready(&mut self, i: usize) -> Result<()> {
        let rail = self.shape.rail(self.place(i).1);
        let link = &mut self.links[i];
        if let Some((pair, words)) = &link.pair
            && link.ready
            && link.peer_ready
            && !link.published
        {
            let connection = self.rails[rail].connection(&self.state, pair, *words);
            self.handshakes.answer(i, Some(&connection))?;
            link.published = true;
        }
        Ok(())
    }

    /// Gives QP `i` up, and returns the error that says so.
    fn fail(&mut self, i: usize, why: &str, post: Option<&mut dyn FnMut(Outgoing)>) -> Error {
        let (peer, set) = self.place(i);
        self.links[i].failed = true;
        if let Err(error) = self.handshakes.answer(i, None) {
            tracing::error!("the kernels cannot be told that there is no connection: {error}");
        }
        if let Some(post) = post.filter(|_| peer != self.me) {
            post((peer, Letter { set, news: News::Failed { why: why.into() } }));
        }
        Error::NoConnection { pe: self.me, peer, why: why.into() }
    }
}
