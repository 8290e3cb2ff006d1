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

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use rushmem_device::abi::{QpDesc, qp_flags};

use super::drain::drain;
use super::info::QpInfo;
use super::rail::{Pair, Rail, RailCard, Tries};
use super::{Handshakes, Shape, StateMap};
use crate::machine::Region;
use crate::provider::Key;
use crate::{Error, Result};

/// What a PE tells the others at start.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Card {
    pub(crate) rails: Vec<RailCard>,
}

/// What PEs say to each other about the QP of a set between them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Letter {
    /// How often connections had begun anew when it was written: one from before is for nobody.
    era: u64,
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
    /// A kernel has asked for it that must not have it.
    refused: bool,
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
    tries: Tries,
    /// PEs that no kernel posts to.
    direct: Vec<bool>,
    /// By QP: true if no kernel may post to it, though the peer may use it the other way.
    closed: Vec<bool>,
    /// How often connections have begun anew.
    era: u64,
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
        tries: Tries,
    ) -> Self {
        let links: Vec<Link> = (0..shape.qps()).map(|_| Link::default()).collect();
        let closed = vec![false; links.len()];
        let used = vec![0; rails.len()];
        let direct = vec![false; shape.n_pes as usize];
        Self { links, rails, used, cards, state, handshakes, shape, me, tries, direct, closed, era: 0 }
    }

    /// The same without connections to the PEs that are true in `direct`: no kernel posts to these.
    pub(crate) fn without(mut self, direct: Vec<bool>) -> Self {
        self.direct = direct;
        self
    }

    /// No kernel may post by these QPs to other PEs than `peers`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if one can already.
    pub(super) fn limit(&mut self, qps: Range<usize>, peers: &[u32]) -> Result<()> {
        let others: Vec<usize> = qps.filter(|&i| !peers.contains(&self.place(i).0)).collect();
        if let Some(&i) = others.iter().find(|&&i| self.links[i].published) {
            let why = format!("the queue to PE {} is there; set RUSHMEM_CONNECT=lazy", self.place(i).0);
            return Err(Error::Unavailable { what: "a context that leads to some PEs only".into(), why });
        }
        others.into_iter().for_each(|i| self.closed[i] = true);
        Ok(())
    }

    /// True if no kernel posts to QP `i`.
    fn is_unused(&self, i: usize) -> bool {
        self.closed[i] || self.direct[self.place(i).0 as usize]
    }

    /// True if queues of a rail lie in GPU memory.
    pub(crate) fn on_gpu(&self) -> bool {
        self.rails.iter().any(|rail| rail.flags() & qp_flags::ON_GPU != 0)
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
                pe_state: self.state.device_state(),
                handshake: self.handshakes.addr(i),
                lkey: self.rails[rail].lkey(),
                rkey: self.cards[peer as usize].rails[rail].rkey,
                peer,
                log_depth: self.shape.log_depth().into(),
                flags: self.rails[rail].flags(),
                rail: rail as u32,
                reserved: [0; 22],
            }
        };
        (0..self.links.len()).map(describe).collect()
    }

    /// Ends all connections: what kernels and NICs know of QPs is as at the start. No kernel runs on any PE.
    ///
    /// # Errors
    /// If the machine cannot write its memory.
    pub(super) fn reset(&mut self) -> Result<()> {
        self.era += 1;
        self.links.iter_mut().for_each(|link| *link = Link::default());
        for (rail, used) in self.rails.iter().zip(&mut self.used) {
            (0..std::mem::take(used)).try_for_each(|slot| rail.clear(slot))?;
        }
        self.handshakes.clear()?;
        self.state.clear_slots()?;
        self.state.describe_qps(&self.descriptors())
    }

    /// A key of each NIC over `memory`.
    ///
    /// # Errors
    /// What a NIC refuses.
    pub(super) fn register(&self, memory: &Region) -> Result<Vec<Box<dyn Key>>> {
        self.rails.iter().map(|rail| rail.register(memory)).collect()
    }

    /// The QPs that kernels may want.
    pub(crate) fn usable(&self) -> Vec<usize> {
        (0..self.links.len()).filter(|&i| !self.is_unused(i)).collect()
    }

    /// True if kernels have all connections that they could use.
    pub(crate) fn complete(&self) -> bool {
        self.links.iter().enumerate().all(|(i, link)| link.published || self.is_unused(i))
    }

    /// Completes what kernels have posted to QP `i`.
    ///
    /// # Errors
    /// As of [`drain`].
    pub(crate) fn drain(&self, i: usize, until: Instant) -> Result<()> {
        match &self.links[i].pair {
            Some((pair, _)) => {
                let rail = &self.rails[self.shape.rail(self.place(i).1)];
                drain(&self.state, i as u64, rail, pair, until)
            }
            None => Ok(()),
        }
    }

    /// QPs that kernels may use now.
    pub(crate) fn connected(&self) -> usize {
        self.links.iter().filter(|link| link.published).count()
    }

    /// A QP that an error has ended, if there is one: its peer, and its number.
    ///
    /// # Errors
    /// If the kernels' words cannot be read.
    pub(super) fn poisoned(&self) -> Result<Option<(u32, u32)>> {
        for (i, link) in self.links.iter().enumerate().filter(|(_, link)| link.published) {
            if let Some((pair, _)) = &link.pair
                && self.state.read_qp(i as u64)?.poison.word != 0
            {
                return Ok(Some((self.place(i).0, pair.qpn)));
            }
        }
        Ok(None)
    }

    /// What the NICs say of the QPs that kernels may use now.
    ///
    /// # Errors
    /// What a NIC refuses.
    pub(crate) fn query(&self) -> Result<Vec<QpInfo>> {
        let mut all = Vec::new();
        for (i, link) in self.links.iter().enumerate().filter(|(_, link)| link.published) {
            let (peer, set) = self.place(i);
            if let Some((pair, _)) = &link.pair {
                all.push(self.rails[self.shape.rail(set)].query(pair, peer)?);
            }
        }
        Ok(all)
    }

    /// The QPs that kernels want and nobody has begun to connect.
    ///
    /// # Errors
    /// If the kernels' words cannot be read.
    pub(crate) fn wanted(&self) -> Result<Vec<usize>> {
        let asks = |(i, link): &(usize, &Link)| {
            (link.pair.is_none() || self.closed[*i]) && !link.failed && !link.refused
        };
        let idle = self.links.iter().enumerate().filter(asks);
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
        let ((peer, set), era) = (self.place(i), self.era);
        if self.closed[i] {
            self.links[i].refused = true;
            return Err(self.deny(i, "the context leads to other PEs only: see `Pe::context_to`"));
        }
        if self.links[i].pair.is_some() || self.links[i].failed {
            return Ok(());
        }
        let outcome = self.make(i).and_then(|qpn| {
            if peer == self.me {
                self.connect(i, qpn)?;
                self.links[i].peer_ready = true;
                return self.publish_if_ready(i);
            }
            post((peer, Letter { era, set, news: News::Qp { qpn, ready: false } }));
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
        if self.links[i].failed || letter.era != self.era {
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
        let ((peer, set), era) = (self.place(i), self.era);
        let mine = self.make(i)?;
        if !self.links[i].ready {
            self.connect(i, qpn)?;
        }
        let link = &mut self.links[i];
        link.peer_ready |= ready;
        if !std::mem::replace(&mut link.told, true) {
            post((peer, Letter { era, set, news: News::Qp { qpn: mine, ready: true } }));
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
            self.rails[rail].connect(pair, port, remote_qpn, self.tries)?;
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
            && !self.closed[i]
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
        let error = self.deny(i, why);
        if let Some(post) = post.filter(|_| peer != self.me) {
            post((peer, Letter { era: self.era, set, news: News::Failed { why: why.into() } }));
        }
        error
    }

    /// Tells the kernels that they do not get QP `i`, and returns the error that says so.
    fn deny(&self, i: usize, why: &str) -> Error {
        if let Err(error) = self.handshakes.answer(i, None) {
            tracing::error!("the kernels cannot be told that there is no connection: {error}");
        }
        Error::NoConnection { pe: self.me, peer: self.place(i).0, why: why.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use rushmem_softnic::{self as softnic, Nic};

    use super::*;
    use crate::config::{Config, QueuePlace};
    use crate::machine::{Machine, Native};
    use crate::native::Options;
    use crate::provider::Soft;

    /// A job's links without its threads: the test carries the letters.
    struct Job {
        links: Vec<Links>,
        /// Letters on their way, by sender and receiver; only those of one sender to one receiver keep their order.
        mail: Vec<VecDeque<Letter>>,
    }

    impl Job {
        fn new(n_pes: u32, config: &Config) -> Self {
            let machine = Native::new(Options::default(), 1);
            let nic = Arc::new(Nic::start(softnic::Config::default()).unwrap());
            let shape = Shape::new(config, n_pes);
            let rail = |_| {
                let heap = machine.heap(shape.reserved(), false).unwrap();
                let nic = Box::new(Soft::new(Arc::clone(&nic)));
                Rail::new(nic, &machine, &heap, shape, QueuePlace::Host).unwrap()
            };
            let rails: Vec<Rail> = (0..n_pes).map(rail).collect();
            let cards: Vec<Card> = rails.iter().map(|rail| Card { rails: vec![rail.card()] }).collect();
            let links = |(me, rail)| {
                let state = Arc::new(StateMap::new(&machine, shape).unwrap());
                let handshakes = Arc::new(Handshakes::new(&machine, shape).unwrap());
                Links::new(vec![rail], cards.clone(), state, handshakes, shape, me, Tries::new(config))
            };
            let links = (0..).zip(rails).map(links).collect();
            Self { links, mail: vec![VecDeque::new(); (n_pes * n_pes) as usize] }
        }

        fn post(mail: &mut [VecDeque<Letter>], n: usize, from: usize, (to, letter): Outgoing) {
            mail[from * n + to as usize].push_back(letter);
        }

        fn want(&mut self, pe: usize, i: usize) -> Result<()> {
            let (n, mail) = (self.links.len(), &mut self.mail);
            self.links[pe].want(i, &mut |letter| Self::post(mail, n, pe, letter))
        }

        /// Delivers a letter of the non-empty way that `choice` falls on; `false` if there is none.
        fn deliver(&mut self, choice: usize) -> Option<Result<()>> {
            let n = self.links.len();
            let ways: Vec<usize> = (0..n * n).filter(|&way| !self.mail[way].is_empty()).collect();
            let way = *ways.get(choice.checked_rem(ways.len())?)?;
            let letter = self.mail[way].pop_front()?;
            let (from, to, mail) = (way / n, way % n, &mut self.mail);
            Some(self.links[to].hear(from as u32, letter, &mut |letter| Self::post(mail, n, to, letter)))
        }
    }

    fn config(settings: &[(&str, &str)]) -> Config {
        let mut config = Config::default();
        for (key, value) in settings {
            config.set(key, value).unwrap();
        }
        config
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        /// Whoever begins, and in whatever order letters arrive: what one side wants is connected on both, once.
        #[test]
        fn both_sides_end_connected(
            wants in prop::collection::vec((0usize..3, 0usize..6), 1..12),
            choices in prop::collection::vec(0usize..64, 64),
        ) {
            let config = config(&[("sq_depth", "4"), ("qps_per_peer", "2")]);
            let mut job = Job::new(3, &config);
            let mut choices = choices.into_iter().cycle();
            for &(pe, i) in &wants {
                job.want(pe, i).unwrap();
                // Some letters arrive between two wishes, others later.
                if choices.next().is_some_and(|choice| choice % 2 == 0) {
                    job.deliver(choices.next().unwrap()).transpose().unwrap();
                }
            }
            while let Some(outcome) = job.deliver(choices.next().unwrap()) {
                outcome.unwrap();
            }
            for (pe, i) in wants {
                let (peer, set) = (i % 3, i / 3);
                prop_assert!(job.links[pe].links[i].published);
                prop_assert!(job.links[peer].links[set * 3 + pe].published);
            }
            for links in &job.links {
                prop_assert!(links.links.iter().all(|link| link.published == link.pair.is_some()));
            }
        }
    }

    #[test]
    fn letters_of_before_are_for_nobody() {
        for delivered in 0..3 {
            let mut job = Job::new(2, &config(&[("sq_depth", "4")]));
            job.want(0, 1).unwrap();
            (0..delivered).for_each(|_| job.deliver(0).unwrap().unwrap());
            job.links.iter_mut().for_each(|links| links.reset().unwrap());
            while let Some(outcome) = job.deliver(0) {
                outcome.unwrap();
            }
            assert!(job.links.iter().all(|links| links.connected() == 0 && links.links[0].pair.is_none()));

            job.want(1, 0).unwrap();
            while let Some(outcome) = job.deliver(0) {
                outcome.unwrap();
            }
            assert!(job.links.iter().all(|links| links.connected() == 1));
        }
    }

    #[test]
    fn a_side_without_memory_tells_the_other() {
        let config = config(&[("sq_depth", "4"), ("queue_memory", "1")]);
        let mut job = Job::new(3, &config);
        // PE 1 has room for one QP, and PE 2 takes it.
        job.want(2, 1).unwrap();
        while let Some(outcome) = job.deliver(0) {
            outcome.unwrap();
        }
        job.want(0, 1).unwrap();
        let told = [job.deliver(0), job.deliver(0)].map(|outcome| outcome.unwrap().unwrap_err().to_string());
        assert!(told[0].contains("PE 1 cannot be connected to PE 0: the queue memory"), "{}", told[0]);
        assert!(
            told[1].contains("PE 0 cannot be connected to PE 1: PE 1 says: the queue memory"),
            "{}",
            told[1]
        );
        assert!(job.deliver(0).is_none());
        assert!(job.links[0].links[1].failed && !job.links[0].links[1].published);
    }

    #[test]
    fn letters_that_make_no_sense_are_errors() {
        let mut job = Job::new(2, &config(&[("sq_depth", "4")]));
        let qp = News::Qp { qpn: 1, ready: true };
        for (from, set) in [(2, 0), (0, 1), (1, u64::MAX), (u32::MAX, 0)] {
            let letter = Letter { era: 0, set, news: qp.clone() };
            assert!(job.links[0].hear(from, letter, &mut |_| panic!("an answer")).is_err());
        }
    }
}
