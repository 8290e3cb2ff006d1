//! Delivers messages from one PE to another, outside of collective calls, to the receiver's callback.

use std::sync::Mutex;

use crate::error::Error;
use rushmem_base::lock;

/// A message that another PE of the job has sent with [`Bootstrap::send`](crate::Bootstrap::send).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerMessage {
    /// The sending PE.
    pub from: u32,
    /// Content of the message, as passed to `send`.
    pub bytes: Vec<u8>,
}

/// A callback for messages from other PEs. It must not block: it runs on the thread that receives all messages of this
/// PE or, in a job of threads, on the sender's thread.
pub type OnMessage = Box<dyn FnMut(PeerMessage) + Send>;

/// The inbox of a PE. Buffers messages until a callback is set.
pub(crate) struct Inbox(Mutex<State>);

enum State {
    Waiting(Vec<PeerMessage>),
    Delivering(OnMessage),
    Closed,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State::Waiting(Vec::new())))
    }

    pub(crate) fn deliver(&self, message: PeerMessage) {
        match &mut *lock(&self.0) {
            State::Waiting(waiting) => waiting.push(message),
            State::Delivering(callback) => callback(message),
            State::Closed => {}
        }
    }

    pub(crate) fn on_message(&self, mut callback: OnMessage) -> Result<(), Error> {
        let mut state = lock(&self.0);
        match &mut *state {
            State::Waiting(waiting) => {
                waiting.drain(..).for_each(&mut callback);
                *state = State::Delivering(callback);
                Ok(())
            }
            State::Delivering(_) => Err(Error::CallbackExists),
            State::Closed => Ok(()),
        }
    }

    /// Closes the inbox and drops the callback, which will not be called again.
    pub(crate) fn close(&self) {
        *lock(&self.0) = State::Closed;
    }
}
