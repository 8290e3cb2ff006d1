//! Drops, duplicates, reorders, corrupts and delays outgoing packets at random, to test loss recovery.

use super::batch::{Batch, Entry};
use crate::config::Faults;
use crate::report::{Lookout, Observation, Stats};
use crate::rng::Rng;
use std::net::SocketAddrV4;
use std::time::Instant;

struct Held {
    due: Instant,
    qpn: u32,
    peer: SocketAddrV4,
    bytes: Vec<u8>,
}

/// Where injected faults are counted and reported to the observer.
pub(crate) struct Tally<'a> {
    pub(crate) stats: &'a mut Stats,
    pub(crate) lookout: &'a mut Lookout,
}

impl Tally<'_> {
    fn note(&mut self, qpn: u32, kind: &'static str) {
        self.stats.faults += 1;
        self.lookout.note(|| Observation::Fault { qpn: Some(qpn), kind });
    }
}

/// Injects faults into the outgoing packets, and drops packets while the port is down.
pub(crate) struct FaultStage {
    faults: Faults,
    active: bool,
    /// Set while the port carries no packets, because it is down, has no address or the adapter has failed.
    pub(crate) is_cut: bool,
    rng: Rng,
    held: Vec<Held>,
}

impl FaultStage {
    pub(crate) fn new(faults: Faults) -> FaultStage {
        let rates = [faults.drop, faults.duplicate, faults.reorder, faults.corrupt, faults.delay];
        let active = rates.iter().any(|rate| *rate > 0.0) || !faults.black_hole.is_empty();
        let rng = Rng::new(faults.seed);
        FaultStage { faults, active, is_cut: false, rng, held: Vec::new() }
    }

    /// Whether packets from peer `from` are dropped on arrival.
    pub(crate) fn hides(&self, from: SocketAddrV4) -> bool {
        self.is_cut || self.faults.black_hole.contains(from.ip())
    }

    /// Whether outgoing packets pass without any fault.
    pub(crate) fn passes_all(&self) -> bool {
        !self.active && !self.is_cut
    }

    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.held.iter().map(|held| held.due).min()
    }

    /// Applies faults to the datagrams of the batch from index `fresh` on, and adds delayed ones that are due.
    pub(crate) fn apply(&mut self, batch: &mut Batch, fresh: usize, now: Instant, mut tally: Tally<'_>) {
        if self.passes_all() {
            return;
        }
        let entries = batch.entries.split_off(fresh);
        let mut last_swapped = false;
        for entry in entries {
            self.apply_to(batch, entry, fresh, now, &mut tally, &mut last_swapped);
        }
        let (due, held) = std::mem::take(&mut self.held).into_iter().partition(|held| held.due <= now);
        self.held = held;
        let due: Vec<Held> = due;
        for held in due {
            batch.push((held.qpn, held.peer), held.bytes.len()).copy_from_slice(&held.bytes);
        }
    }

    fn apply_to(
        &mut self,
        batch: &mut Batch,
        entry: Entry,
        fresh: usize,
        now: Instant,
        tally: &mut Tally<'_>,
        last_swapped: &mut bool,
    ) {
        let Faults { drop, duplicate, reorder, corrupt, delay, delay_time, .. } = self.faults;
        let qpn = entry.qpn;
        if self.hides(entry.peer) {
            return tally.note(qpn, "black_hole");
        }
        if self.rng.chance(drop) {
            return tally.note(qpn, "drop");
        }
        if self.rng.chance(corrupt) {
            tally.note(qpn, "corrupt");
            let bit = self.rng.below(8 * entry.bytes.len() as u64);
            batch.arena[entry.bytes.start + (bit / 8) as usize] ^= 1 << (bit % 8);
        }
        if self.rng.chance(delay) {
            tally.note(qpn, "delay");
            let bytes = batch.arena[entry.bytes.clone()].to_vec();
            self.held.push(Held { due: now + delay_time, qpn, peer: entry.peer, bytes });
            return;
        }
        let twice = self.rng.chance(duplicate).then(|| entry.clone());
        let swap = self.rng.chance(reorder) && batch.entries.len() > fresh && !*last_swapped;
        batch.entries.push(entry);
        if swap {
            tally.note(qpn, "reorder");
            let last = batch.entries.len() - 1;
            batch.entries.swap(last, last - 1);
        }
        *last_swapped = swap;
        if let Some(copy) = twice {
            tally.note(qpn, "duplicate");
            batch.entries.push(copy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    /// Sends 500 numbered datagrams in batches of ten through a fault stage. Returns the surviving ones, and the number
    /// of faults.
    fn history(faults: Faults) -> (Vec<Vec<u8>>, u64) {
        let mut stage = FaultStage::new(faults);
        let (start, mut stats, mut lookout) = (Instant::now(), Stats::default(), Lookout::default());
        let mut sent = Vec::new();
        for round in 0..50u8 {
            let mut batch = Batch::default();
            for i in 0..10 {
                let peer = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
                batch.push((1, peer), 3).copy_from_slice(&[round, i, 0]);
            }
            // The test has its own clock, so delays are reproducible.
            let now = start + Duration::from_millis(round.into());
            stage.apply(&mut batch, 0, now, Tally { stats: &mut stats, lookout: &mut lookout });
            sent.extend(batch.entries.iter().map(|entry| batch.arena[entry.bytes.clone()].to_vec()));
        }
        (sent, stats.faults)
    }

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        let faults = |seed| Faults {
            seed,
            drop: 0.1,
            duplicate: 0.1,
            reorder: 0.1,
            corrupt: 0.1,
            delay: 0.1,
            ..Faults::default()
        };
        let first = history(faults(7));
        assert_eq!(first, history(faults(7)));
        assert_ne!(first, history(faults(8)));
        assert!(first.1 > 150, "{} faults", first.1);
    }

    #[test]
    fn each_fault_has_its_effect() {
        let clean = history(Faults::default()).0;
        assert_eq!(clean.len(), 500);
        assert_eq!(history(Faults { drop: 1.0, ..Faults::default() }), (vec![], 500));
        let twice = history(Faults { duplicate: 1.0, ..Faults::default() }).0;
        assert!(twice.chunks(2).zip(&clean).all(|(pair, one)| pair == [one.clone(), one.clone()]));
        let broken = history(Faults { corrupt: 1.0, ..Faults::default() }).0;
        let flipped =
            |(a, b): (&Vec<u8>, &Vec<u8>)| a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
        assert!(broken.iter().zip(&clean).map(flipped).all(|bits| bits == 1));
        let mut mixed = history(Faults { reorder: 0.5, ..Faults::default() }).0;
        assert_ne!(mixed, clean);
        mixed.sort();
        assert_eq!(mixed, clean, "nothing is lost by changing places");
        let late =
            history(Faults { delay: 1.0, delay_time: Duration::from_millis(3), ..Faults::default() }).0;
        assert_eq!(late, clean[..470], "three rounds are still under way");
        let hole = Faults { black_hole: vec![Ipv4Addr::LOCALHOST], ..Faults::default() };
        assert_eq!(history(hole).0.len(), 0);
    }
}
