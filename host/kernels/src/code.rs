//! Operation codes, which kernels take as plain integers.

use rushmem_device::Cmp;

/// An operation of [`rushmem_transfer`](crate::rushmem_transfer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Transfer {
    /// `put`.
    Put,
    /// `put_nbi`.
    PutNbi,
    /// `get`.
    Get,
    /// `get_nbi`.
    GetNbi,
}

/// An operation of [`rushmem_atomic`](crate::rushmem_atomic). All but the last have the codes of the device API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Atomic {
    /// Adds, wrapping.
    Add = 0,
    /// Bitwise and.
    And = 1,
    /// Bitwise or.
    Or = 2,
    /// Bitwise exclusive or.
    Xor = 3,
    /// Sets the word.
    Set = 4,
    /// Sets the word if it equals the comparand.
    CompareSwap = 5,
    /// Adds to a floating-point word.
    AddFloat = 6,
}

/// An operation of [`rushmem_order`](crate::rushmem_order).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Order {
    /// Nothing.
    Nothing,
    /// `fence`.
    Fence,
    /// `quiet`.
    Quiet,
    /// `quiet_pe`.
    QuietPe,
    /// `sync_all`.
    SyncAll,
    /// `barrier_all`.
    BarrierAll,
}

/// An operation of [`rushmem_wait_set`](crate::rushmem_wait_set).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WaitSetOp {
    /// `wait_until_all`.
    WaitAll,
    /// `wait_until_any`.
    WaitAny,
    /// `wait_until_some`.
    WaitSome,
    /// `test_all`.
    TestAll,
    /// `test_any`.
    TestAny,
    /// `test_some`.
    TestSome,
}

/// An operation of [`rushmem_collective`](crate::rushmem_collective).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Collective {
    /// `team_sync`.
    Sync,
    /// `barrier`.
    Barrier,
    /// `broadcast`.
    Broadcast,
    /// `fcollect`.
    Fcollect,
    /// `collect`.
    Collect,
    /// `alltoall`.
    Alltoall,
    /// `reduce`.
    Reduce,
    /// `reduce_scatter`.
    ReduceScatter,
    /// `sum_scan`.
    Scan,
}

/// Type of the words that [`rushmem_wait`](crate::rushmem_wait) and similar kernels compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WordKind {
    /// An unsigned word of 4 bytes.
    U32,
    /// A signed word of 4 bytes.
    I32,
    /// An unsigned word of 8 bytes.
    U64,
    /// A signed word of 8 bytes.
    I64,
}

/// Encodes a comparison.
pub const fn cmp(cmp: Cmp) -> u32 {
    cmp as u32
}

/// Decodes a comparison. Unknown codes are taken for the last one, since only the host passes them.
#[inline(always)]
pub(crate) fn cmp_of(number: u32) -> Cmp {
    match number {
        0 => Cmp::Eq,
        1 => Cmp::Ne,
        2 => Cmp::Gt,
        3 => Cmp::Ge,
        4 => Cmp::Lt,
        5 => Cmp::Le,
        _ => Cmp::Reached,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparison_codes_round_trip() {
        for c in [Cmp::Eq, Cmp::Ne, Cmp::Gt, Cmp::Ge, Cmp::Lt, Cmp::Le, Cmp::Reached] {
            assert_eq!(cmp_of(cmp(c)), c);
        }
    }
}
