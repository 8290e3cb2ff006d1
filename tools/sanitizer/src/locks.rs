//! Tracks which actor holds each distributed lock, for deadlock reports.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::access::{Call, Space, Span};
use crate::actor::Actor;

/// The holder of a lock, as shown in a deadlock report.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Holder {
    /// The actor that holds the lock.
    pub actor: Actor,
    /// The call that acquired the lock.
    pub call: Call,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, by `{}` at {}", self.actor, self.call.name, self.call.site)
    }
}

/// Locks that are currently held, by kind of memory and start offset, which are equal on every PE.
#[derive(Debug, Default)]
pub(crate) struct Locks(BTreeMap<(Space, u64), (u64, Holder)>);

impl Locks {
    pub(crate) fn hold(&mut self, Span { memory, bytes }: Span, holder: Holder) {
        self.0.insert((memory.space, bytes.start), (bytes.end, holder));
    }

    pub(crate) fn let_go(&mut self, Span { memory, bytes }: Span) {
        self.0.remove(&(memory.space, bytes.start));
    }

    /// Returns the holder of the lock that contains a word, or `None` if there is no lock or it is free.
    pub(crate) fn holder(&self, Span { memory, bytes }: Span) -> Option<Holder> {
        let (&(space, _), &(end, holder)) = self.0.range(..=(memory.space, bytes.start)).next_back()?;
        (space == memory.space && bytes.end <= end).then_some(holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Site;

    #[test]
    fn the_words_of_a_lock_have_its_holder_in_each_pe() {
        let actor = Actor::Host { pe: 1, thread: 0 };
        let call = Call { name: "set_lock", site: Site { file: "test.rs", line: 3 } };
        let mut locks = Locks::default();
        locks.hold(Span::heap(1, 128, 32), Holder { actor, call });
        let holders = |locks: &Locks| {
            let words = [(0, 128), (2, 144), (1, 160), (1, 120)];
            words.map(|(pe, start)| locks.holder(Span::heap(pe, start, 8)).is_some())
        };
        assert_eq!(holders(&locks), [true, true, false, false]);
        assert_eq!(
            locks.holder(Span::heap(0, 144, 8)).unwrap().to_string(),
            "PE 1 host, by `set_lock` at test.rs:3"
        );
        locks.let_go(Span::heap(0, 128, 32));
        assert_eq!(holders(&locks), [false; 4]);
    }
}
