//! Actor IDs, and the numbered steps of actors.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Serialize};

/// ID of a host, stream, GPU thread or operation. IDs are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub struct ActorId(pub(crate) u64);

/// Exclusive upper bound of actor IDs, which are stored in 40 bits.
pub(crate) const ACTORS: u64 = 1 << 40;

/// Fast hasher for actor IDs and other integers.
#[derive(Debug, Default)]
pub(crate) struct ActorHasher(u64);

impl Hasher for ActorHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    /// Fibonacci hashing: the factor is 2^64 divided by the golden ratio, made odd.
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(32);
    }
}

pub(crate) type ActorMap<V> = HashMap<ActorId, V, BuildHasherDefault<ActorHasher>>;

pub(crate) type ActorSet = HashSet<ActorId, BuildHasherDefault<ActorHasher>>;

/// One step in the program order of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub(crate) actor: ActorId,
    /// Step of the actor, starting at 1.
    pub(crate) count: u32,
}
