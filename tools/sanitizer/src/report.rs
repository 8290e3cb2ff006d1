//! Races as a user reads them.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::access::{Call, Kind, Memory, Site, Span};
use crate::actor::Actor;
use crate::intervals::Bytes;
use crate::order::MissingOrder;

/// One of the two accesses of a race.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Party {
    /// The actor.
    pub actor: Actor,
    /// Its access.
    pub kind: Kind,
    /// Its call.
    pub call: Call,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} in `{}` at {}", self.actor, self.kind, self.call.name, self.call.site)
    }
}

/// An object of the program.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Object {
    /// Its name, which may be empty, and the call that allocated it.
    pub label: Call,
    /// The offset of its first byte.
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

/// Memory, with the object that it belongs to if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Named {
    /// The memory.
    pub span: Span,
    /// The object.
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

/// The word through which the second side of a race last learned of others.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Seen {
    /// The word.
    pub word: Named,
    /// The value that it had, if it is known.
    pub value: Option<u64>,
    /// The call that read it.
    pub call: Call,
    /// Its last writer.
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

/// Two accesses that conflict and have no order.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Race {
    /// The access that the sanitizer met first.
    pub first: Party,
    /// The other access.
    pub second: Party,
    /// The memory.
    pub memory: Memory,
    /// The bytes in common.
    pub bytes: Bytes,
    /// The object that the bytes belong to, if it is known.
    pub object: Option<Object>,
    /// The word through which the second one last learned of others, if it did so by a word.
    pub seen: Option<Seen>,
    /// The order that they lack.
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

/// The races so far. Each pair of lines is reported once.
#[derive(Debug, Default)]
pub(crate) struct Races {
    sites: HashSet<(Site, Site)>,
    new: Vec<Race>,
    count: usize,
}

impl Races {
    /// Returns whether a race of these lines is known.
    pub(crate) fn has(&self, [first, second]: [Site; 2]) -> bool {
        self.sites.contains(&(first, second)) || self.sites.contains(&(second, first))
    }

    /// Adds a race, unless its lines are known.
    pub(crate) fn add(&mut self, race: Race) {
        let (first, second) = (race.first.call.site, race.second.call.site);
        if !self.has([first, second]) && self.sites.insert((first, second)) {
            self.new.push(race);
            self.count += 1;
        }
    }

    /// Returns the races since the last call.
    pub(crate) fn take(&mut self) -> Vec<Race> {
        std::mem::take(&mut self.new)
    }

    /// Returns the number of races so far.
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}
