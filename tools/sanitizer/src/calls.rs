//! Interns function calls of the program, so accesses can store a small ID instead of name and source line.

use std::collections::HashMap;

use crate::access::{Call, CallId};

/// Number of recent calls whose IDs are cached.
const RECENT: usize = 64;

/// Table of the distinct function calls seen so far, of which a program has few.
#[derive(Debug)]
pub(crate) struct Calls {
    calls: Vec<Call>,
    ids: HashMap<Call, CallId>,
    /// Cache of recently used calls, indexed by line number modulo [`RECENT`].
    recent: [Option<(Call, CallId)>; RECENT],
}

impl Default for Calls {
    fn default() -> Self {
        Self { calls: Vec::new(), ids: HashMap::new(), recent: [None; RECENT] }
    }
}

impl Calls {
    /// Returns the ID of a call, adding it if it is new.
    pub(crate) fn id(&mut self, call: Call) -> CallId {
        let place = call.site.line as usize % RECENT;
        if let Some((known, id)) = self.recent[place]
            && is_same(&known, &call)
        {
            return id;
        }
        let next = CallId(self.calls.len() as u32);
        let id = *self.ids.entry(call).or_insert(next);
        if id == next {
            self.calls.push(call);
        }
        self.recent[place] = Some((call, id));
        id
    }

    /// Returns the index of a call, and whether it has just been added.
    pub(crate) fn number(&mut self, call: Call) -> (u32, bool) {
        let before = self.calls.len();
        let CallId(number) = self.id(call);
        (number, self.calls.len() > before)
    }

    pub(crate) fn get(&self, number: u32) -> Option<Call> {
        self.calls.get(number as usize).copied()
    }

    pub(crate) fn call(&self, CallId(number): CallId) -> Call {
        self.calls[number as usize]
    }
}

/// Whether two calls are the same, comparing names by address. A false negative only costs a search.
fn is_same(a: &Call, b: &Call) -> bool {
    a.site.line == b.site.line && std::ptr::eq(a.name, b.name) && std::ptr::eq(a.site.file, b.site.file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Site;

    #[test]
    fn equal_calls_have_one_number() {
        let mut calls = Calls::default();
        let call = |name, line| Call { name, site: Site { file: "test.rs", line } };
        let name: &'static str = String::from("load").leak();
        let (first, other, far) = (call("load", 1), call("store", 1), call("load", 1 + RECENT as u32));
        let ids = [first, other, far, call(name, 1), first].map(|call| calls.id(call));
        assert_eq!((ids[0], ids[0]), (ids[3], ids[4]));
        assert_eq!([0, 1, 2].map(|i| calls.call(ids[i])), [first, other, far]);
    }
}
