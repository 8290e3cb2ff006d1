//! Encoding of RDMA netlink messages and their attributes, in native byte order and padded to four bytes.

use super::abi::{Header, attribute, flag, message};
use crate::device::Device;
use crate::errno::Errno;
use crate::user;

const HEADER: usize = size_of::<Header>();
/// Length of an attribute's header, in bytes.
const ATTRIBUTE: usize = 4;
/// Mask of the attribute's type, without the flags in the upper bits.
const TYPE: u16 = 0x3fff;

const fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Message that a program has sent.
pub(super) struct Request<'a> {
    pub(super) header: Header,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Splits a datagram into messages. Like the kernel, stops at a message that exceeds the datagram.
    pub(super) fn split(mut datagram: &'a [u8]) -> impl Iterator<Item = Request<'a>> {
        std::iter::from_fn(move || {
            let header: Header = user::prefix(datagram.get(..HEADER)?);
            let len = header.len as usize;
            let body = datagram.get(HEADER..len)?;
            datagram = &datagram[padded(len).min(datagram.len())..];
            Some(Request { header, body })
        })
    }

    pub(super) fn has(&self, flags: u16) -> bool {
        self.header.flags & flags == flags
    }

    /// Returns the value of an attribute, the last one if it is repeated.
    fn find(&self, id: u16) -> Option<&'a [u8]> {
        let (mut rest, mut found) = (self.body, None);
        while let Some(head) = rest.first_chunk::<ATTRIBUTE>() {
            let [len, kind] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_ne_bytes);
            let Some(value) = rest.get(ATTRIBUTE..len.into()) else { break };
            if kind & TYPE == id {
                found = Some(value);
            }
            rest = &rest[padded(len.into()).min(rest.len())..];
        }
        found
    }

    /// Returns an attribute as a number, or `None` if it is absent. Fails with `EINVAL` if it is too short.
    pub(super) fn number(&self, id: u16) -> Result<Option<u32>, Errno> {
        let number = |value: &[u8]| value.first_chunk().copied().map(u32::from_ne_bytes);
        self.find(id).map(|value| number(value).ok_or(Errno::EINVAL)).transpose()
    }

    pub(super) fn text(&self, id: u16) -> Option<&'a str> {
        std::str::from_utf8(self.find(id)?).ok()?.split('\0').next()
    }
}

/// A message under construction, or attributes of one.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// Starts the response to a request from the program at `port`.
    pub(super) fn answer(request: &Header, port: u32, kind: u16, flags: u16) -> Writer {
        let header = Header { len: 0, kind, flags, sequence: request.sequence, port };
        Writer(bytemuck::bytes_of(&header).to_vec())
    }

    /// Starts a list of attributes with the index and the name of a device.
    pub(super) fn about(device: &Device) -> Writer {
        let mut writer = Writer::default();
        writer.u32(attribute::DEV_INDEX, device.index);
        writer.text(attribute::DEV_NAME, &device.name());
        writer
    }

    /// Returns the message that terminates a list.
    pub(super) fn done(request: &Header, port: u32) -> Vec<u8> {
        let mut writer = Writer::answer(request, port, message::DONE, flag::MULTI);
        writer.0.extend(0i32.to_ne_bytes());
        writer.finish()
    }

    /// Returns the acknowledgement of a request, with its error if any.
    pub(super) fn result(request: &Request, port: u32, result: Result<(), Errno>) -> Vec<u8> {
        let mut writer = Writer::answer(&request.header, port, message::ERROR, 0);
        writer.0.extend(result.map_or_else(|Errno(number)| -number, |()| 0).to_ne_bytes());
        writer.0.extend(bytemuck::bytes_of(&request.header));
        if result.is_err() {
            writer.0.extend(request.body);
        }
        writer.finish()
    }

    pub(super) fn bytes(&mut self, id: u16, value: &[u8]) {
        let len = (ATTRIBUTE + value.len()) as u16;
        self.0.extend([len, id].map(u16::to_ne_bytes).as_flattened());
        self.0.extend(value);
        self.0.resize(padded(self.0.len()), 0);
    }

    pub(super) fn u8(&mut self, id: u16, value: u8) {
        self.bytes(id, &[value]);
    }

    pub(super) fn u32(&mut self, id: u16, value: u32) {
        self.bytes(id, &value.to_ne_bytes());
    }

    pub(super) fn u64(&mut self, id: u16, value: u64) {
        self.bytes(id, &value.to_ne_bytes());
    }

    pub(super) fn text(&mut self, id: u16, value: &str) {
        self.bytes(id, &[value.as_bytes(), &[0]].concat());
    }

    pub(super) fn nest(&mut self, id: u16, fill: impl FnOnce(&mut Writer)) {
        let mut inner = Writer::default();
        fill(&mut inner);
        self.bytes(id, &inner.0);
    }

    pub(super) fn append(&mut self, attributes: &Writer) {
        self.0.extend(&attributes.0);
    }

    /// Completes the message by storing its length in the header.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let len = (self.0.len() as u32).to_ne_bytes();
        self.0[..len.len()].copy_from_slice(&len);
        self.0.resize(padded(self.0.len()), 0);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Header = Header { len: 0, kind: 0x1401, flags: flag::REQUEST, sequence: 7, port: 0 };

    fn message(fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::answer(&HEAD, 9, HEAD.kind, HEAD.flags);
        fill(&mut writer);
        writer.finish()
    }

    #[test]
    fn attributes_are_found_by_type() {
        let bytes = message(|writer| {
            writer.u8(1, 5);
            writer.text(2, "mlx5_0");
            writer.u32(3, 1);
            writer.u32(3, 2);
            writer.nest(4, |inner| inner.u64(5, 6));
        });
        let request = Request::split(&bytes).next().unwrap();
        assert_eq!((request.header.sequence, request.header.port), (7, 9));
        assert_eq!(request.number(1), Err(Errno::EINVAL), "one byte is no number");
        assert_eq!(request.text(2), Some("mlx5_0"));
        assert_eq!(request.number(3), Ok(Some(2)));
        assert_eq!(request.number(5), Ok(None), "a nested attribute belongs to its table");
        assert_eq!(request.find(4).map(<[u8]>::len), Some(12));
    }

    #[test]
    fn a_datagram_has_several_messages() {
        let two = [message(|writer| writer.u8(1, 5)), message(|_| {})].concat();
        assert_eq!(Request::split(&two).count(), 2);
        assert_eq!(Request::split(&two[..two.len() - 1]).count(), 1);
        let mut short = two;
        short[0] = 15;
        assert_eq!(Request::split(&short).count(), 0);
    }

    #[test]
    fn an_error_has_the_request() {
        let bytes = message(|writer| writer.u32(1, 5));
        let request = Request::split(&bytes).next().unwrap();
        let error = Writer::result(&request, 9, Err(Errno::EINVAL));
        assert_eq!(error[HEADER..HEADER + 4], (-libc::EINVAL).to_ne_bytes());
        assert_eq!(error[HEADER + 4..], bytes);
        assert_eq!(Writer::result(&request, 9, Ok(())).len(), HEADER + 4 + HEADER);
    }
}
