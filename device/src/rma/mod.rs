//! Remote memory access: puts and gets, strided and batched ones, and handles of transfers.

mod put_get;
mod strided;

mod batch;
mod pending;

pub(crate) mod copy;

pub use batch::{Batch, Batchable};
pub use pending::Pending;
pub use put_get::Scalar;
pub(crate) use put_get::{
    Direction, End, Form, MAX_MESSAGE, NicTransfer, Unit, end_of, fetch, send, send_to, unit_of, word_at,
};
