//! Actors by number, and their steps.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Serialize};

/// The number of an actor. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub struct ActorId(pub(crate) u64);

/// The numbers of actors are less than this: a record of an access has 40 bits for them.
pub(crate) const ACTORS: u64 = 1 << 40;

/// A hasher for the numbers of actors.
#[derive(Debug, Default)]
pub(crate) struct ActorHasher(u64);

impl Hasher for ActorHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    /// Spreads a number over all bits: the odd factor is 2^64 divided by the golden ratio.
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(32);
    }
}

/// A map from actors.
pub(crate) type ActorMap<V> = HashMap<ActorId, V, BuildHasherDefault<ActorHasher>>;

/// A set of actors.
pub(crate) type ActorSet = HashSet<ActorId, BuildHasherDefault<ActorHasher>>;

/// A point in the program order of one actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub(crate) actor: ActorId,
    /// Counts from 1.
    pub(crate) count: u32,
}
