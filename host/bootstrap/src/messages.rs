//! Letters from one PE to another, outside of any collective call.

use std::sync::Mutex;

use crate::error::Error;
use rushmem_base::lock;

/// A letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMessage {
    /// The PE that sent it.
    pub from: u32,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// Called with each letter, on the thread that receives it: it must not wait for anything.
pub type OnMessage = Box<dyn FnMut(PeerMessage) + Send>;

/// Where a PE's letters arrive. They wait until there is somebody who reads them.
pub(crate) struct Inbox(Mutex<State>);

enum State {
    Unread(Vec<PeerMessage>),
    Read(OnMessage),
    Closed,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State::Unread(Vec::new())))
    }

    pub(crate) fn deliver(&self, mail: PeerMessage) {
        match &mut *lock(&self.0) {
            State::Unread(waiting) => waiting.push(mail),
            State::Read(callback) => callback(mail),
            State::Closed => {}
        }
    }

    pub(crate) fn on_message(&self, mut callback: OnMessage) -> Result<(), Error> {
        let mut state = lock(&self.0);
        match &mut *state {
            State::Unread(waiting) => {
                waiting.drain(..).for_each(&mut callback);
                *state = State::Read(callback);
                Ok(())
            }
            State::Read(_) => Err(Error::Watched),
            State::Closed => Ok(()),
        }
    }

    /// No callback begins after this, and the callback is gone.
    pub(crate) fn close(&self) {
        *lock(&self.0) = State::Closed;
    }
}
