//! The communication sanitizer.
#![forbid(unsafe_code)]

mod access;
mod actors;
mod clock;
mod deadlock;
mod engine;
mod intervals;
mod meetings;
mod order;
mod post;
mod queues;
mod report;
mod shadow;
mod words;

pub use access::{Call, Kind, Memory, Site, Space, Span};
pub use actors::{Actor, Transfer};
pub use clock::ActorId;
pub use deadlock::{Deadlock, Stuck, Until, Wait};
pub use engine::{Acquire, Buffers, Engine, Token};
pub use intervals::Bytes;
pub use meetings::MeetingId;
pub use order::MissingOrder;
pub use post::Post;
pub use queues::Context;
pub use report::{Party, Race};
