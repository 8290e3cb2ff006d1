//! Epochs: what the PEs of a job agree on after a loss.

/// An agreed list of the PEs that are alive. PEs that get an epoch of the same number get the same list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// Number of the epoch in its job, from 1.
    pub number: u32,
    /// The PEs of the epoch, in ascending order.
    pub pes: Vec<u32>,
    /// Those of `pes` whose processes have replaced lost ones since the epoch before, in ascending order.
    pub joined: Vec<u32>,
}
