//! Serialization of requests and replies, for a connection between two processes.
//!
//! Both sides number the calls of the program in the order of their first use, so the name and file of a call are sent
//! only once. serde cannot pass this table to the implementations for [`Call`], which therefore find it in a
//! thread-local variable.

use std::cell::RefCell;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::access::{Call, Site};
use crate::calls::Calls;
use crate::request::{Reply, Request};
use crate::text::{self, Text};

thread_local! {
    /// The call table of the connection whose message this thread is encoding or decoding.
    static CALLS: RefCell<Box<Calls>> = RefCell::default();
}

/// Encoder or decoder for the requests of one process. Requests must be decoded in the order in which they were
/// encoded.
#[derive(Debug, Default)]
pub struct Wire(Box<Calls>);

/// The bytes are not a valid message.
#[derive(Debug)]
pub struct Malformed(postcard::Error);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed message: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

impl Wire {
    /// Appends a request to a message.
    ///
    /// # Errors
    /// - [`Malformed`] if the request cannot be encoded.
    pub fn encode(&mut self, request: &Request, to: &mut Vec<u8>) -> Result<(), Malformed> {
        *to = self.with_calls(|| postcard::to_extend(request, std::mem::take(to)).map_err(Malformed))?;
        Ok(())
    }

    /// Decodes the first request of a message. Returns it with the rest of the message.
    ///
    /// # Errors
    /// - [`Malformed`] if the bytes do not start with a request.
    pub(crate) fn decode<'a>(&mut self, from: &'a [u8]) -> Result<(Request, &'a [u8]), Malformed> {
        self.with_calls(|| postcard::take_from_bytes(from).map_err(Malformed))
    }

    /// Runs `code` while [`CALLS`] contains the call table of this connection.
    fn with_calls<R>(&mut self, code: impl FnOnce() -> R) -> R {
        let swap = |calls: &mut _| CALLS.with_borrow_mut(|current| std::mem::swap(current, calls));
        swap(&mut self.0);
        let result = code();
        swap(&mut self.0);
        result
    }
}

impl Reply {
    /// Encodes the reply. Replies are rare, so each has the complete text of its calls.
    ///
    /// # Errors
    /// - [`Malformed`] if it cannot be encoded.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        Wire::default().with_calls(|| postcard::to_extend(self, Vec::new()).map_err(Malformed))
    }

    /// Decodes a reply.
    ///
    /// # Errors
    /// - [`Malformed`] if the bytes are not a reply.
    pub fn decode(from: &[u8]) -> Result<Self, Malformed> {
        Wire::default().with_calls(|| postcard::from_bytes(from).map_err(Malformed))
    }
}

/// A call with its name and file as text, as in a report or when the call is first sent.
#[derive(Deserialize, Serialize)]
#[serde(rename = "Call")]
struct Spelled {
    #[serde(deserialize_with = "text::intern")]
    name: Text,
    site: Site,
}

#[derive(Deserialize, Serialize)]
enum Sent {
    /// A call that is sent for the first time, and gets the next number.
    New(Spelled),
    Known(u32),
}

impl Serialize for Call {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { name, site } = *self;
        let spelled = Spelled { name, site };
        if to.is_human_readable() {
            return spelled.serialize(to);
        }
        let (number, is_new) = CALLS.with_borrow_mut(|calls| calls.number(*self));
        let sent = if is_new { Sent::New(spelled) } else { Sent::Known(number) };
        sent.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Call {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let spelled = |Spelled { name, site }| Self { name, site };
        if from.is_human_readable() {
            return Spelled::deserialize(from).map(spelled);
        }
        match Sent::deserialize(from)? {
            Sent::New(new) => {
                let call = spelled(new);
                CALLS.with_borrow_mut(|calls| calls.number(call));
                Ok(call)
            }
            Sent::Known(number) => CALLS
                .with_borrow(|calls| calls.get(number))
                .ok_or_else(|| D::Error::custom("a call that has not been sent")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::ActorId;

    fn load(call: Call) -> Request {
        Request::Load { actor: ActorId(1 << 39), span: crate::Span::heap(1, 64, 8), call }
    }

    fn decode(wire: &mut Wire, mut from: &[u8]) -> Result<Vec<Request>, Malformed> {
        let mut requests = Vec::new();
        while !from.is_empty() {
            let (request, rest) = wire.decode(from)?;
            requests.push(request);
            from = rest;
        }
        Ok(requests)
    }

    #[test]
    fn texts_of_a_call_are_sent_once() {
        let call = |line| Call { name: "load", site: Site { file: "a/long/path/of/a/file.rs", line } };
        let (mut sender, mut receiver) = (Wire::default(), Wire::default());
        let mut lengths = Vec::new();
        for line in [7, 7, 8, 7] {
            let mut bytes = Vec::new();
            sender.encode(&load(call(line)), &mut bytes).unwrap();
            lengths.push(bytes.len());
            let decoded = decode(&mut receiver, &bytes).unwrap();
            assert!(matches!(decoded[..], [Request::Load { call: found, .. }] if found == call(line)));
        }
        assert!(lengths[0] > 40 && lengths[1] < 20, "{lengths:?}");
        assert_eq!((lengths[0], lengths[1]), (lengths[2], lengths[3]));
    }

    #[test]
    fn a_message_of_several_requests_keeps_their_order() {
        let call = Call { name: "load", site: Site { file: "test.rs", line: 1 } };
        let (mut sender, mut bytes) = (Wire::default(), Vec::new());
        for request in [load(call), Request::End(ActorId(3)), load(call)] {
            sender.encode(&request, &mut bytes).unwrap();
        }
        let decoded = decode(&mut Wire::default(), &bytes).unwrap();
        assert!(matches!(
            decoded[..],
            [Request::Load { .. }, Request::End(ActorId(3)), Request::Load { .. }]
        ));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_requests_or_an_error(bytes: Vec<u8>) {
            let _ = decode(&mut Wire::default(), &bytes);
            let _ = Reply::decode(&bytes);
        }
    }

    #[test]
    fn rejects_unknown_calls_and_cut_messages() {
        let call = Call { name: "load", site: Site { file: "test.rs", line: 1 } };
        let (mut sender, mut first, mut second) = (Wire::default(), Vec::new(), Vec::new());
        sender.encode(&load(call), &mut first).unwrap();
        sender.encode(&load(call), &mut second).unwrap();
        assert!(decode(&mut Wire::default(), &second).is_err());
        for length in 1..first.len() {
            assert!(decode(&mut Wire::default(), &first[..length]).is_err(), "{length} bytes");
        }
    }
}
