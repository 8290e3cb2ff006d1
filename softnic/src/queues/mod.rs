//! The queues of a QP: send and receive WQEs, their completions, and their flush after an error.

mod completion;
pub(crate) mod flush;
mod receive;
mod send;

pub(crate) use completion::{complete, fail, release};
pub(crate) use receive::{
    Origin, ReceivedMessage, complete_frame, complete_receive, fail_receive, take_receive,
};
pub(crate) use send::{BadWqe, MAX_SEGMENTS, PER_BLOCK, cq_reached, fetch, load, malformed, unparsed};
#[cfg(test)]
mod tests;
