//! Property tests of [`Flight`] against a model of the peer, over links that lose, duplicate and reorder packets.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A request in transit: its PSN relative to [`FIRST`], the number of PSNs it covers, and whether it asks for data.
type Request = (u32, u32, bool);

#[derive(Clone, Debug)]
enum Answer {
    Data(u32),
    Ack(u32),
    Report(u32, [u8; BITS]),
}

/// Model of a peer, which executes and answers requests in order.
#[derive(Default)]
struct Peer {
    expected: u32,
    kept: BTreeMap<u32, Request>,
    answers: VecDeque<Answer>,
}

impl Peer {
    fn take(&mut self, request: Request) {
        let (psn, count, fetches) = request;
        if psn > self.expected {
            if psn - self.expected <= REORDER_WINDOW as u32 {
                self.kept.insert(psn, request);
            }
            return self.report();
        }
        if fetches {
            self.answers.extend((psn..psn + count).map(Answer::Data));
        }
        self.expected = self.expected.max(psn + count);
        if !fetches {
            self.answers.push_back(Answer::Ack(self.expected - 1));
        }
        let expected = self.expected;
        if let Some(next) = self.kept.remove(&expected) {
            return self.take(next);
        }
        self.kept.retain(|psn, _| *psn > expected);
        if !self.kept.is_empty() {
            self.report();
        }
    }

    fn report(&mut self) {
        let mut bits = [0; BITS];
        for psn in self.kept.keys() {
            let i = (psn - self.expected - 1) as usize;
            bits[i / 8] |= 1 << (i % 8);
        }
        self.answers.push_back(Answer::Report(self.expected, bits));
    }
}

/// The first PSN, chosen to make PSNs wrap around.
const FIRST: u32 = 0xff_fff0;

fn at(number: u32) -> Psn {
    Psn::new(FIRST).plus(number)
}

fn number(psn: Psn) -> u32 {
    psn.since(at(0)) as u32
}

/// Model of a requester, its peer, and the links between them.
struct World {
    flight: Flight,
    peer: Peer,
    /// All requests of the test, in the order in which they are made.
    requests: Vec<Request>,
    made: usize,
    there: VecDeque<Request>,
    back: VecDeque<Answer>,
    arrived: BTreeSet<u32>,
    /// Number of packets that the links have lost.
    lost: u32,
    repeated: u32,
    doubts: u32,
}

impl World {
    fn new(kinds: &[u8]) -> World {
        let mut next = 0;
        let requests = kinds.iter().map(|kind| {
            let (fetches, count) = (kind % 2 == 1, if kind % 2 == 1 { 1 + u32::from(kind / 2) } else { 1 });
            next += count;
            (next - count, count, fetches)
        });
        World {
            requests: requests.collect(),
            flight: Flight::starting_at(at(0)),
            peer: Peer::default(),
            made: 0,
            there: VecDeque::new(),
            back: VecDeque::new(),
            arrived: BTreeSet::new(),
            lost: 0,
            repeated: 0,
            doubts: 0,
        }
    }

    /// Executes `steps` by [`World::step`], and continues until all requests are done.
    fn played(kinds: &[u8], steps: Vec<(u8, u8)>) -> World {
        let mut world = World::new(kinds);
        for (choice, fate) in steps {
            world.step(choice, fate);
        }
        world.finish();
        world
    }

    fn end(&self) -> u32 {
        self.requests.last().map_or(0, |(psn, count, _)| psn + count)
    }

    fn position(&self) -> Psn {
        at(self.requests.get(self.made).map_or(self.end(), |(psn, ..)| *psn))
    }

    fn make(&mut self) {
        if let Some((psn, count, fetches)) = self.requests.get(self.made).copied()
            && psn + count - number(self.flight.base()) <= REORDER_WINDOW as u32
        {
            self.made += 1;
            self.flight.note_sent(at(psn), count, fetches);
            self.there.push_back((psn, count, fetches));
        }
    }

    fn repair(&mut self) {
        let mut from = self.flight.base();
        while let Some((psn, run)) = self.flight.next_due(from, 32) {
            let begin = number(psn);
            let holds = |(psn, count, _): &&Request| *psn <= begin && begin < psn + count;
            let (first, whole, fetches) = self.requests.iter().find(holds).copied().unwrap();
            let count = run.min(first + whole - begin);
            self.flight.note_sent(psn, count, fetches);
            self.there.push_back((begin, count, fetches));
            self.repeated += count;
            from = psn.plus(count);
        }
    }

    /// Executes the step that `choice` selects. A `fate` of 0 loses the packet, 1 duplicates it, and 2 lets the next
    /// one overtake it.
    fn step(&mut self, choice: u8, fate: u8) {
        match choice % 4 {
            0 => self.make(),
            1 => {
                if fate == 2 && self.there.len() > 1 {
                    self.there.swap(0, 1);
                }
                if let Some(request) = self.there.pop_front() {
                    match fate {
                        0 => self.lost += request.1,
                        1 => [request; 2].into_iter().for_each(|request| self.peer.take(request)),
                        _ => self.peer.take(request),
                    }
                }
                self.back.append(&mut self.peer.answers);
            }
            2 => {
                if fate == 2 && self.back.len() > 1 {
                    self.back.swap(0, 1);
                }
                if let Some(answer) = self.back.pop_front() {
                    match fate {
                        0 => self.lost += 1,
                        1 => [answer.clone(), answer].into_iter().for_each(|answer| self.hear(&answer)),
                        _ => self.hear(&answer),
                    }
                }
            }
            _ => self.repair(),
        }
    }

    fn hear(&mut self, answer: &Answer) {
        match answer {
            Answer::Data(psn) => {
                self.arrived.insert(*psn);
                self.flight.take_data(at(*psn));
            }
            Answer::Ack(psn) => self.flight.acknowledge(at(*psn)),
            Answer::Report(first, bits) => self.flight.take_report(at(*first), bits),
        }
        self.flight.find_missing(self.position());
        self.check();
    }

    /// Checks that the flight's view agrees with the model, and that its counters are consistent.
    fn check(&self) {
        let base = number(self.flight.base());
        for (psn, count, fetches) in &self.requests[..self.made] {
            for psn in *psn..psn + count {
                let is_done = if *fetches { self.arrived.contains(&psn) } else { psn < self.peer.expected };
                assert!(is_done || !self.flight.is_done(at(psn)), "{psn} is not done, the base is {base}");
            }
        }
        let count =
            |test: fn(Slot) -> bool| self.flight.slots.iter().filter(|slot| test(**slot)).count() as u32;
        assert_eq!(count(Slot::is_received), self.flight.received());
        assert_eq!(count(Slot::is_due), self.flight.due());
    }

    /// Runs until all requests are done. When nothing is in transit, the requester probes.
    fn finish(&mut self) {
        for round in 0.. {
            assert!(round < 100_000, "no progress at {:?}", self.flight);
            if number(self.flight.base()) == self.end() {
                return;
            }
            self.make();
            self.repair();
            if self.there.is_empty() && self.back.is_empty() {
                self.doubts += 1;
                self.flight.doubt();
            }
            self.step(1, 9);
            self.step(2, 9);
        }
    }
}

#[test]
fn lost_answers_to_kept_requests_are_missed() {
    let mut flight = Flight::starting_at(at(0));
    flight.note_sent(at(0), 1, false);
    flight.note_sent(at(1), 1, false);
    let mut bits = [0; BITS];
    bits[0] = 1;
    flight.take_report(at(0), &bits);
    flight.find_missing(at(2));
    assert_eq!(flight.next_due(at(0), 32), Some((at(0), 1)), "the peer keeps the second one");
    flight.note_sent(at(0), 1, false);
    flight.acknowledge(at(0));
    assert_eq!((flight.base(), flight.due()), (at(1), 0));
    flight.doubt();
    assert_eq!(flight.next_due(at(1), 32), Some((at(1), 1)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn everything_gets_done(
        kinds in proptest::collection::vec(0u8..40, 1..60),
        steps in proptest::collection::vec((any::<u8>(), 0u8..10), 0..600),
    ) {
        World::played(&kinds, steps);
    }

    #[test]
    fn nothing_is_sent_again_without_a_loss(
        kinds in proptest::collection::vec(0u8..40, 1..60),
        steps in proptest::collection::vec((any::<u8>(), 3u8..10), 0..600),
    ) {
        let world = World::played(&kinds, steps);
        prop_assert_eq!((world.repeated, world.doubts), (0, 0));
    }

    #[test]
    fn a_lost_packet_alone_is_sent_again(
        kinds in proptest::collection::vec(0u8..40, 2..60),
        position in any::<prop::sample::Index>(),
    ) {
        let mut world = World::new(&kinds);
        let lost = position.index(kinds.len() - 1);
        for i in 0..kinds.len() {
            world.make();
            if world.made <= i {
                // The flight is full.
                break;
            }
            world.step(1, if i == lost { 0 } else { 9 });
        }
        while !world.back.is_empty() {
            world.step(2, 9);
        }
        world.finish();
        prop_assert_eq!(world.repeated, world.lost);
    }
}

#[test]
fn a_late_answer_to_the_first_transmission_affects_nothing_else() {
    let mut flight = Flight::starting_at(at(0));
    flight.peer_keeps = true;
    for i in 0..20 {
        flight.note_sent(at(i), 1, false);
    }
    flight.doubt();
    assert_eq!(flight.next_due(at(0), 32), Some((at(0), 1)));
    assert_eq!(flight.next_due(at(1), 32), Some((at(19), 1)));
    flight.note_sent(at(0), 1, false);
    flight.note_sent(at(19), 1, false);
    flight.acknowledge(at(3));
    assert_eq!((flight.find_missing(at(20)), flight.base(), flight.due()), (None, at(4), 0));
}

#[test]
fn a_report_names_the_packets_to_repair() {
    let mut flight = Flight::starting_at(at(0));
    for i in 0..20 {
        flight.note_sent(at(i), 1, false);
    }
    flight.take_report(at(2), &[0b0001_0110]);
    assert_eq!(flight.find_missing(at(20)), Some(at(2)));
    let missing: Vec<u32> = (0..20).filter(|i| flight.next_due(at(*i), 1) == Some((at(*i), 1))).collect();
    assert_eq!((missing, flight.received()), (vec![2, 3, 6], 3));
    // A retransmission counts as sent until something later arrives.
    for i in [2, 3, 6] {
        flight.note_sent(at(i), 1, false);
    }
    flight.take_report(at(2), &[0b0001_0110]);
    assert_eq!(flight.find_missing(at(20)), None);
    flight.take_report(at(2), &[0b0001_0111]);
    assert_eq!(flight.find_missing(at(20)), Some(at(2)));
    // Packet 3 was sent again after all the others but 6.
    assert_eq!((flight.due(), flight.next_due(at(3), 32)), (1 + 12, Some((at(8), 12))));
}

#[test]
fn a_peer_that_keeps_nothing_gets_no_repairs() {
    let mut flight = Flight::starting_at(at(0));
    for i in 0..8 {
        flight.note_sent(at(i), 1, i == 2);
    }
    // The answer to an atomic was lost, but the acknowledgement after it was not.
    flight.acknowledge(at(5));
    assert_eq!((flight.find_missing(at(8)), flight.base()), (Some(at(2)), at(2)));
    assert_eq!((flight.due(), flight.next_due(at(2), 32)), (1, Some((at(2), 1))));
    flight.rewind();
    assert!(!flight.has(at(2)) && flight.has(at(5)) && !flight.has(at(6)));
}
