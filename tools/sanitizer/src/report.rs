//! Races in the form in which they are reported to the user.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::access::{Call, Kind, Memory, Site, Span};
use crate::actor::Actor;
use crate::intervals::Bytes;
use crate::order::MissingOrder;

/// An access in a report: who made it, in which call, and how.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Party {
    /// The actor that made the access.
    pub actor: Actor,
    /// How the access uses the memory.
    pub kind: Kind,
    /// The call that made the access.
    pub call: Call,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} in `{}` at {}", self.actor, self.kind, self.call.name, self.call.site)
    }
}

/// A symmetric object of the program, as shown in a report.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Object {
    /// The name of the object, which may be empty, and the call that allocated it.
    pub label: Call,
    /// Offset of the object's first byte.
    pub start: u64,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label: Call { name, site }, .. } = self;
        if name.is_empty() {
            write!(f, "allocated at {site}")
        } else {
            write!(f, "`{name}`, allocated at {site}")
        }
    }
}

/// A range of memory, with the object that contains it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Named {
    /// The range of memory.
    pub span: Span,
    /// The object that contains the range, if known.
    pub object: Option<Object>,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { span: Span { memory: Memory { pe, space }, bytes }, object } = self;
        match object {
            Some(object) => {
                let (from, to) = (bytes.start - object.start, bytes.end - object.start);
                let unnamed = if object.label.name.is_empty() { "the object " } else { "" };
                write!(f, "bytes {from}..{to} of {unnamed}{object}, in PE {pe}")
            }
            None => write!(f, "{:#x}..{:#x} in the {space} of PE {pe}", bytes.start, bytes.end),
        }
    }
}

/// The word from which the actor of a race's second access last learned of other actors.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Seen {
    /// The word that was read.
    pub word: Named,
    /// The value that was read, if known.
    pub value: Option<u64>,
    /// The call that read the word.
    pub call: Call,
    /// The last write to the word.
    pub writer: Party,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { word, value, call, writer } = self;
        write!(f, "`{}` at {} saw ", call.name, call.site)?;
        if let Some(value) = value {
            write!(f, "{value} in ")?;
        }
        write!(f, "{word}\n  sender:  {writer}")
    }
}

/// Two conflicting accesses that are not ordered.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Race {
    /// The access that the sanitizer saw first.
    pub first: Party,
    /// The access that the sanitizer saw later.
    pub second: Party,
    /// The memory that both accesses use.
    pub memory: Memory,
    /// The bytes that both accesses use.
    pub bytes: Bytes,
    /// The object that contains the bytes, if known.
    pub object: Option<Object>,
    /// The word from which the second access's actor last learned of others, unless it learned by other means.
    pub seen: Option<Seen>,
    /// The synchronization that is missing between the two accesses.
    pub missing: MissingOrder,
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, second, memory, bytes, object, seen, missing } = self;
        let Memory { pe, space } = memory;
        writeln!(
            f,
            "race on {} bytes in the {space} of PE {pe}, {:#x}..{:#x}",
            bytes.len(),
            bytes.start,
            bytes.end
        )?;
        if let Some(object) = object {
            let (from, to) = (bytes.start - object.start, bytes.end - object.start);
            writeln!(f, "  object:  {object}, bytes {from}..{to} of it")?;
        }
        writeln!(f, "  first:   {first}")?;
        writeln!(f, "  second:  {second}")?;
        if let Some(seen) = seen {
            writeln!(f, "  wait:    {seen}")?;
        }
        writeln!(f, "  missing: {missing}")?;
        write!(f, "  remedy:  {}", missing.remedy())
    }
}

/// The races found so far, one for each pair of source lines.
#[derive(Debug, Default)]
pub(crate) struct Races {
    sites: HashSet<(Site, Site)>,
    new: Vec<Race>,
    count: usize,
}

impl Races {
    /// Whether a race between these lines has been reported.
    pub(crate) fn has(&self, [first, second]: [Site; 2]) -> bool {
        self.sites.contains(&(first, second)) || self.sites.contains(&(second, first))
    }

    /// Adds a race, unless one between the same lines has been reported.
    pub(crate) fn add(&mut self, race: Race) {
        let (first, second) = (race.first.call.site, race.second.call.site);
        if !self.has([first, second]) && self.sites.insert((first, second)) {
            self.new.push(race);
            self.count += 1;
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Race> {
        std::mem::take(&mut self.new)
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }
}
