//! Finds the symmetric object at an offset, for reports.

use std::collections::BTreeMap;

use crate::access::{Call, Memory, Span};
use crate::intervals::Bytes;
use crate::report::Object;

/// The named objects, by memory and start offset. A freed object keeps its name until its memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Objects(BTreeMap<(Memory, u64), (u64, Call)>);

impl Objects {
    pub(crate) fn add(&mut self, Span { memory, bytes: Bytes { start, end } }: Span, label: Call) {
        let inside = self.0.range((memory, start)..(memory, end)).map(|(key, _)| *key);
        inside.collect::<Vec<_>>().iter().for_each(|key| {
            self.0.remove(key);
        });
        self.0.insert((memory, start), (end, label));
    }

    /// Returns the object that contains a range of bytes, if any.
    pub(crate) fn at(&self, memory: Memory, bytes: Bytes) -> Option<Object> {
        let (span, label) = self.entry(memory, bytes)?;
        Some(Object { label, start: span.bytes.start })
    }

    /// Returns the range of the object that contains `bytes`, if any.
    pub(crate) fn around(&self, Span { memory, bytes }: Span) -> Option<Span> {
        self.entry(memory, bytes).map(|(span, _)| span)
    }

    fn entry(&self, memory: Memory, bytes: Bytes) -> Option<(Span, Call)> {
        let (&(of, start), &(end, label)) = self.0.range(..=(memory, bytes.start)).next_back()?;
        let span = Span { memory, bytes: Bytes { start, end } };
        (of == memory && bytes.end <= end).then_some((span, label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Site;

    #[test]
    fn bytes_have_the_object_that_was_allocated_last() {
        let mut objects = Objects::default();
        let label = |name, line| Call { name, site: Site { file: "src/main.rs", line } };
        let name_of =
            |objects: &Objects, span: Span| objects.at(span.memory, span.bytes).map(|o| o.to_string());
        objects.add(Span::heap(0, 128, 128), label("halo", 3));
        objects.add(Span::heap(0, 256, 64), label("", 4));
        assert_eq!(name_of(&objects, Span::heap(0, 136, 8)).unwrap(), "`halo`, allocated at src/main.rs:3");
        assert_eq!(name_of(&objects, Span::heap(0, 256, 8)).unwrap(), "allocated at src/main.rs:4");
        let outside =
            [Span::heap(0, 252, 8), Span::heap(0, 320, 8), Span::heap(1, 136, 8), Span::heap(0, 0, 8)];
        assert_eq!(outside.map(|span| name_of(&objects, span)), [const { None }; 4]);
        objects.add(Span::heap(0, 0, 512), label("all", 5));
        assert_eq!(name_of(&objects, Span::heap(0, 256, 8)).unwrap(), "`all`, allocated at src/main.rs:5");
    }
}
