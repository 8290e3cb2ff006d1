//! Messages on a socket, with the files that accompany them.

use super::Error;
use super::message::Header;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send};
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Maximum number of files that accompany a message.
pub(super) const MAX_FILES: usize = 8;

/// Maximum length of the data of a read or write of a region.
pub(super) const MAX_DATA: usize = 1 << 20;

/// Maximum length of a message.
const MAX_MESSAGE: usize = MAX_DATA + 4096;

/// A message, without its header.
pub(super) struct Message {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    pub(super) files: VecDeque<OwnedFd>,
}

/// Receives the next message. Returns `None` if the peer has closed the connection.
pub(super) fn receive(socket: &UnixStream) -> Result<Option<Message>, Error> {
    let mut head = [0; size_of::<Header>()];
    let mut files = VecDeque::new();
    let mut done = 0;
    while done < head.len() {
        // Files accompany the first byte of a message.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut head[done..])];
        let got = match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            got => got?.bytes,
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                files.extend(received);
            }
        }
        match (got, done) {
            (0, 0) => return Ok(None),
            (0, _) => return Err(Error::Message("the connection ends in a message")),
            _ => done += got,
        }
    }
    let header: Header = bytemuck::pod_read_unaligned(&head);
    let len = (header.len as usize).checked_sub(head.len()).filter(|len| *len <= MAX_MESSAGE);
    let len = len.ok_or(Error::Message("the length of a message is out of range"))?;
    let mut payload = vec![0; len];
    let mut done = 0;
    while done < len {
        match recv(socket, &mut payload[done..], RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            Ok((0, _)) => return Err(Error::Message("the connection ends in a message")),
            got => done += got?.0,
        }
    }
    Ok(Some(Message { header, payload, files }))
}

/// Sends a message.
pub(super) fn transmit(socket: &UnixStream, bytes: &[u8]) -> Result<(), Error> {
    let mut done = 0;
    while done < bytes.len() {
        match send(socket, &bytes[done..], SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => done += sent?,
        }
    }
    Ok(())
}
