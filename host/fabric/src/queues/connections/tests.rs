//! Tests of QP connections, with messages delivered by the test instead of service threads.

use std::collections::VecDeque;
use std::sync::MutexGuard;

use proptest::prelude::*;
use rushmem_config::{Config, Ordering, RelaxedOrdering};
use rushmem_machine::{Machine, Native};
use rushmem_native::Options;
use rushmem_softnic::{self as softnic, Nic};

use super::super::level::QueueLocation;
use super::*;
use crate::provider::{NicKind, Soft};
use crate::queues::connect_message::ConnectionPlace;

/// The connections of all PEs of a job. The test itself delivers the messages.
struct Job {
    connections: Vec<Connections>,
    /// Undelivered messages, by sender and receiver. Messages between the same two PEs keep their order.
    mail: Vec<VecDeque<ConnectMessage>>,
}

impl Job {
    fn new(n_pes: u32, config: &Config) -> Self {
        Self::with_orders(n_pes, config, |_| config.ordering)
    }

    /// Creates a job in which PE `pe` requests the WRITE order `order(pe)`.
    fn with_orders(n_pes: u32, config: &Config, order: impl Fn(u32) -> Ordering) -> Self {
        Self::with_shapes(n_pes, config, |pe, shape| shape.ordering = order(pe))
    }

    /// Creates a job in which `change` adjusts the queue shape of each PE.
    fn with_shapes(n_pes: u32, config: &Config, change: impl Fn(u32, &mut Shape)) -> Self {
        Self::on_nic(softnic::Config::default(), Some(Loop::OneQp), n_pes, config, change)
    }

    /// Like [`Job::with_shapes`], on a software ConnectX with the settings `nic` that poses as one with this loopback.
    fn on_nic(
        nic: softnic::Config,
        loopback: Option<Loop>,
        n_pes: u32,
        config: &Config,
        change: impl Fn(u32, &mut Shape),
    ) -> Self {
        let machine = Native::new(Options::default());
        let nic = Arc::new(Nic::start(nic).unwrap());
        let shape = Shape::new(config, n_pes);
        let rail = |pe| {
            let mut shape = shape;
            change(pe, &mut shape);
            let heap = machine.heap(shape.reserved(), false).unwrap();
            let nic = Arc::new(Soft::new(Arc::clone(&nic)));
            let mut rail = Rail::new(nic, &machine, &heap, shape, QueueLocation::Host, None).unwrap();
            loopback.into_iter().for_each(|qps| rail.set_loopback(qps));
            rail
        };
        let rails: Vec<Rail> = (0..n_pes).map(rail).collect();
        let nics: Vec<PeNics> = rails.iter().map(|rail| PeNics { rails: vec![rail.info()] }).collect();
        let connections = |(me, rail)| {
            let state = Arc::new(StateMap::new(&machine, shape).unwrap());
            let handshakes = Arc::new(Handshakes::new(&machine, shape).unwrap());
            Connections::new(vec![rail], &nics, state, handshakes, shape, me, RetryPolicy::new(config))
        };
        let connections = (0..).zip(rails).map(connections).collect();
        Self { connections, mail: vec![VecDeque::new(); (n_pes * n_pes) as usize] }
    }

    fn post(mail: &mut [VecDeque<ConnectMessage>], n: usize, from: usize, (to, message): Outgoing) {
        mail[from * n + to as usize].push_back(message);
    }

    fn request(&mut self, pe: usize, i: usize) -> Result<()> {
        let (n, mail) = (self.connections.len(), &mut self.mail);
        let epoch = self.connections[pe].epoch();
        self.connections[pe].request(i, epoch, &mut |message| Self::post(mail, n, pe, message))
    }

    fn qp(&self, pe: usize, i: usize) -> MutexGuard<'_, QpConnection> {
        lock(&self.connections[pe].connections[i])
    }

    /// Delivers one message, or returns `None` if there is none. `choice` selects among the non-empty queues.
    fn deliver(&mut self, choice: usize) -> Option<Result<()>> {
        let n = self.connections.len();
        let queues: Vec<usize> = (0..n * n).filter(|&queue| !self.mail[queue].is_empty()).collect();
        let queue = *queues.get(choice.checked_rem(queues.len())?)?;
        let message = self.mail[queue].pop_front()?;
        let (from, to, mail) = (queue / n, queue % n, &mut self.mail);
        Some(
            self.connections[to]
                .receive(from as u32, message, &mut |message| Self::post(mail, n, to, message)),
        )
    }

    /// Delivers all messages, including the replies.
    fn deliver_all(&mut self) {
        while let Some(outcome) = self.deliver(0) {
            outcome.unwrap();
        }
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

    /// For any initiators and any delivery order, each requested QP is connected exactly once on both sides.
    #[test]
    fn requested_qps_connect_on_both_sides(
        wants in prop::collection::vec((0usize..3, 0usize..6), 1..12),
        choices in prop::collection::vec(0usize..64, 64),
    ) {
        let config = config(&[("sq_depth", "4"), ("qps_per_peer", "2")]);
        let mut job = Job::new(3, &config);
        let mut choices = choices.into_iter().cycle();
        for &(pe, i) in &wants {
            job.request(pe, i).unwrap();
            // Some messages arrive between two requests, others later.
            if choices.next().is_some_and(|choice| choice % 2 == 0) {
                job.deliver(choices.next().unwrap()).transpose().unwrap();
            }
        }
        while let Some(outcome) = job.deliver(choices.next().unwrap()) {
            outcome.unwrap();
        }
        for (pe, i) in wants {
            let (peer, set) = (i % 3, i / 3);
            prop_assert!(job.qp(pe, i).published);
            prop_assert!(job.qp(peer, set * 3 + pe).published);
        }
        for connections in &job.connections {
            prop_assert!(connections.connections.iter().map(lock).all(|qp| qp.published == qp.pair.is_some()));
        }
    }
}

#[test]
fn packet_numbers_and_keys_are_random() {
    let mut job = Job::new(2, &config(&[("sq_depth", "4")]));
    job.request(0, 0).unwrap();
    job.request(0, 1).unwrap();
    job.deliver_all();
    let address = |pe: usize, i: usize| job.qp(pe, i).pair.as_ref().unwrap().0.address;
    let context = |pe: usize, i: usize| {
        let qp = job.qp(pe, i);
        let pair = &qp.pair.as_ref().unwrap().0;
        job.connections[pe].rails[0].context(pair).unwrap()
    };
    let all = [address(0, 0), address(0, 1), address(1, 0)];
    assert!(all[0].psn != all[1].psn || all[1].psn != all[2].psn, "{all:?}");
    let memory = Native::new(Options::default()).local(4096).unwrap();
    let keys: Vec<_> = (0..8).map(|_| job.connections[0].register(&memory).unwrap()).collect();
    let variants: Vec<u32> = keys[..].iter().map(|keys| keys[0].strict().rkey() & 0xff).collect();
    assert!(variants.iter().any(|variant| *variant != variants[0]), "{variants:x?}");
    for (pe, i) in [(0, 1), (1, 0)] {
        let (own, peer) = (context(pe, i), address(i, pe));
        assert_eq!((own.next_send_psn, own.next_rcv_psn), (address(pe, i).psn, peer.psn));
    }
}

#[test]
fn both_sides_use_the_same_ece_options() {
    let mut job = Job::new(2, &config(&[("sq_depth", "4")]));
    job.request(0, 1).unwrap();
    job.deliver_all();
    let in_force = |pe: usize, i: usize| {
        let qp = job.qp(pe, i);
        let pair = &qp.pair.as_ref().unwrap().0;
        job.connections[pe].rails[0].query_qp(pair).unwrap().ece
    };
    assert!(in_force(0, 1) != 0 && in_force(0, 1) == in_force(1, 0));
}

#[test]
fn qps_keep_to_the_limits_of_their_nic() {
    let nic = softnic::Config { log_max_reads: 2, real_time: true, ..softnic::Config::default() };
    let mut job = Job::on_nic(nic, Some(Loop::OneQp), 2, &config(&[("sq_depth", "4")]), |_, _| ());
    job.request(0, 1).unwrap();
    job.deliver_all();
    let qp = job.qp(0, 1);
    let context = job.connections[0].rails[0].context(&qp.pair.as_ref().unwrap().0).unwrap();
    assert_eq!((context.log_sra_max, context.log_rra_max), (2, 2));
}

fn job_without_loopback() -> Job {
    Job::on_nic(softnic::Config::default(), None, 2, &config(&[("sq_depth", "4")]), |_, _| ())
}

#[test]
fn pes_exchange_a_packet_if_a_nic_refuses_loopback() {
    for requests in [&[0][..], &[1], &[0, 1], &[1, 0]] {
        let mut job = job_without_loopback();
        requests.iter().for_each(|&pe| job.request(pe, 1 - pe).unwrap());
        // The peer must not post before the first exchange, which only PE 0 starts.
        while job.qp(0, 1).trial.is_some() || job.qp(0, 1).pair.is_none() {
            assert!(!job.qp(0, 1).published && !job.qp(1, 0).published, "{requests:?}");
            job.deliver(0).unwrap().unwrap();
        }
        job.deliver_all();
        for (pe, i) in [(0, 1), (1, 0)] {
            let qp = job.qp(pe, i);
            assert!(qp.published && qp.trial.is_none(), "{requests:?}: PE {pe}");
        }
    }
}

#[test]
fn a_failed_first_exchange_names_the_peer() {
    let mut job = job_without_loopback();
    job.connections[0].nics.get_mut().unwrap()[1].strict_rkey = 0xbad_0e11;
    job.request(1, 0).unwrap();
    let mut errors = Vec::new();
    while let Some(outcome) = job.deliver(0) {
        errors.extend(outcome.err().map(|error| error.to_string()));
    }
    let begin = "PE 0 cannot be connected to PE 1: the path from software ConnectX to PE 1 is not available: the first READ";
    assert!(errors.len() == 2 && errors[0].starts_with(begin), "{errors:?}");
    assert!(errors[1].starts_with("PE 1 cannot be connected to PE 0: PE 0 reports: "), "{errors:?}");
    assert!(!job.qp(0, 1).published && !job.qp(1, 0).published);
}

#[test]
fn one_unordered_side_makes_both_sides_unordered() {
    for unordered in [None, Some(0), Some(1)] {
        let order = |pe| if Some(pe) == unordered { Ordering::OutOfOrder } else { Ordering::Auto };
        let mut job = Job::with_orders(2, &config(&[("sq_depth", "4")]), order);
        job.request(0, 1).unwrap();
        job.deliver_all();
        for (pe, i) in [(0, 1), (1, 0)] {
            let connection = job.qp(pe, i);
            assert!(connection.published);
            assert_eq!(connection.unordered, unordered.is_some(), "PE {pe}, {unordered:?}");
        }
    }
}

#[test]
fn a_qp_is_relaxed_towards_a_peer_with_relaxed_keys() {
    let relax = |pe, shape: &mut Shape| {
        shape.relaxed_ordering = if pe == 1 { RelaxedOrdering::On } else { RelaxedOrdering::Off };
    };
    let job = Job::with_shapes(2, &config(&[("sq_depth", "4")]), relax);
    for connections in &job.connections {
        assert!(connections.has_relaxed_keys());
        assert_eq!([0, 1].map(|i| connections.weakness(i, &QpConnection::default())), [0, qp_flags::RELAXED]);
        let descs = connections.descriptors();
        assert_eq!([0, 1].map(|i: usize| descs[i].rkey == descs[i].strict_rkey), [true, false]);
        assert!(descs.iter().all(|desc| (desc.lkey == desc.strict_lkey) == (connections.pe() == 0)));
    }
}

#[test]
fn discards_messages_from_before_a_reset() {
    for delivered in 0..3 {
        let mut job = Job::new(2, &config(&[("sq_depth", "4")]));
        job.request(0, 1).unwrap();
        (0..delivered).for_each(|_| job.deliver(0).unwrap().unwrap());
        job.connections.iter_mut().for_each(|connections| connections.reset().unwrap());
        job.deliver_all();
        assert!(
            job.connections.iter().all(|connections| connections.connected() == 0
                && lock(&connections.connections[0]).pair.is_none())
        );

        job.request(1, 0).unwrap();
        job.deliver_all();
        assert!(job.connections.iter().all(|connections| connections.connected() == 1));
    }
}

#[test]
fn a_pe_that_cannot_connect_informs_its_peer() {
    let mut job = Job::new(2, &config(&[("sq_depth", "4")]));
    job.connections[1].nics.get_mut().unwrap()[0].port.kind = NicKind::Hardware;
    job.request(0, 1).unwrap();
    let errors = [job.deliver(0), job.deliver(0)].map(|outcome| outcome.unwrap().unwrap_err().to_string());
    assert!(errors[0].contains("PE 1 cannot be connected to PE 0: "), "{}", errors[0]);
    assert!(errors[1].contains("PE 0 cannot be connected to PE 1: PE 1 reports: "), "{}", errors[1]);
    assert!(job.deliver(0).is_none());
    assert!(job.qp(0, 1).failed && !job.qp(0, 1).published);
}

#[test]
fn late_connection_fails_with_its_state() {
    let states = ["waits for the number of the peer's QP", "but PE 0 has not told that its QP does"];
    for (delivered, (pe, peer), state) in [(0, (0, 1), states[0]), (1, (1, 0), states[1])] {
        let mut job = Job::new(2, &config(&[("sq_depth", "4")]));
        job.request(0, 1).unwrap();
        (0..delivered).for_each(|_| job.deliver(0).unwrap().unwrap());
        let mut told = 0;
        let mut give_up = |pe: usize, epoch| {
            job.connections[pe].give_up(peer, epoch, Duration::from_secs(7), &mut |_| told += 1)
        };
        give_up(pe, 1).unwrap();
        let error = give_up(pe, 0).unwrap_err().to_string();
        let begin = format!("PE {pe} cannot be connected to PE {peer}: no connection within 7s");
        assert!(error.starts_with(&begin) && error.contains(state), "{error}");
        give_up(pe, 0).unwrap();
        assert_eq!(told, 1, "the peer learns of it once");
        assert!(job.qp(pe, peer).failed);
    }
    let mut job = Job::new(2, &config(&[("sq_depth", "4")]));
    job.request(0, 1).unwrap();
    job.deliver_all();
    job.connections[0].give_up(1, 0, Duration::ZERO, &mut |_| panic!("it is connected")).unwrap();
}

#[test]
fn request_from_before_a_reset_is_ignored() {
    let job = Job::new(2, &config(&[("sq_depth", "4")]));
    job.connections[0].reset().unwrap();
    job.connections[0].request(1, 0, &mut |_| panic!("a message")).unwrap();
    assert!(job.qp(0, 1).pair.is_none());
}

#[test]
fn qps_of_a_pe_connect_at_the_same_time() {
    let job = Job::new(1, &config(&[("sq_depth", "4"), ("qps_per_peer", "16")]));
    let connections = &job.connections[0];
    let slots = |i: usize| lock(&connections.connections[i]).pair.as_ref().unwrap().1;
    std::thread::scope(|scope| {
        for first in 0..4 {
            scope.spawn(move || {
                for i in (first..16).step_by(4) {
                    connections.request(i, 0, &mut |_| panic!("a message to itself")).unwrap();
                }
            });
        }
    });
    assert!(connections.is_complete() && connections.connected() == 16);
    let all: std::collections::BTreeSet<u64> = (0..16).map(slots).collect();
    assert_eq!(all, (0..16).collect());
}

#[test]
fn lost_qp_is_reported_to_the_peer_once() {
    let mut job = Job::new(2, &config(&[("sq_depth", "4")]));
    job.request(0, 1).unwrap();
    job.deliver_all();
    let qps = job.connections[0].find(0, |_| true);
    assert_eq!((qps.as_slice(), job.connections[0].find(0, |pair| pair.cqn == 0)), (&[1][..], vec![]));
    let (n, mail) = (2, &mut job.mail);
    job.connections[0].lose(1, "its port is down", &mut |message| Job::post(mail, n, 0, message));
    let error = job.deliver(0).unwrap().unwrap_err();
    let told = "PE 1 lost its connection to PE 0: PE 0 reports: its port is down";
    assert!(matches!(error, Error::ConnectionLost { .. }) && error.to_string() == told, "{error}");
    assert!(job.deliver(0).is_none(), "no end reports the loss back");
}

#[test]
fn fuzz_corpus() {
    let qp = |ready| QpStatus::Qp {
        address: QpAddress { qpn: 0x1a7, psn: 0x12_3456, ece: 1, log_responses: 4 },
        ready,
        unordered: ready,
        trial: None,
        place: ConnectionPlace::default(),
    };
    let statuses = [qp(false), qp(true), QpStatus::Failed { why: "no memory".into() }];
    let messages = statuses.map(|status| ConnectMessage { epoch: 0, set: 0, status });
    let messages = messages.map(|message| message.encode());
    let jobs = std::cell::RefCell::new((0, Job::new(2, &config(&[("sq_depth", "4")]))));
    rushmem_corpus::target!("..", "connect").messages(messages).run(5000, |bytes| {
        let (count, job) = &mut *jobs.borrow_mut();
        *count += 1;
        // A failed QP ignores all messages, so start over from time to time.
        if *count % 16 == 0 {
            job.connections[0].reset().unwrap();
            job.connections[0].epoch = AtomicU64::new(0);
        }
        if let Some(message) = ConnectMessage::decode(bytes) {
            // Any outcome is fine as long as it does not panic.
            let _ = job.connections[0].receive(1, message, &mut |_| ());
        }
    });
}

#[test]
fn rejects_invalid_messages() {
    let job = Job::new(2, &config(&[("sq_depth", "4")]));
    let qp = QpStatus::Qp {
        address: QpAddress { qpn: 1, psn: 0, ece: 0, log_responses: 4 },
        ready: true,
        unordered: false,
        trial: None,
        place: ConnectionPlace::default(),
    };
    for (from, set) in [(2, 0), (0, 1), (1, u32::MAX), (u32::MAX, 0)] {
        let message = ConnectMessage { epoch: 0, set, status: qp.clone() };
        assert!(job.connections[0].receive(from, message, &mut |_| panic!("an answer")).is_err());
    }
}
