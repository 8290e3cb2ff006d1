//! The numbers that tell a kernel what to do: a kernel's arguments are plain words.

use rushmem_device::Cmp;

/// What [`rushmem_transfer`](crate::rushmem_transfer) does.
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

/// What [`rushmem_atomic`](crate::rushmem_atomic) does to a word. The first are numbered as the device API has them.
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
    /// Writes it.
    Set = 4,
    /// Writes it if it holds the value to compare with.
    CompareSwap = 5,
    /// Adds to a float.
    AddFloat = 6,
}

/// What [`rushmem_order`](crate::rushmem_order) does.
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

/// What [`rushmem_words`](crate::rushmem_words) does with a set of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Set {
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

/// What [`rushmem_collective`](crate::rushmem_collective) does.
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

/// What a word is, for [`rushmem_wait`](crate::rushmem_wait) and its kin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Word {
    /// 4 bytes without sign.
    U32,
    /// 4 bytes with sign.
    I32,
    /// 8 bytes without sign.
    U64,
    /// 8 bytes with sign.
    I64,
}

/// The number of a comparison.
pub const fn cmp(cmp: Cmp) -> u32 {
    cmp as u32
}

/// The comparison with this number.
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
    fn comparisons_keep_their_numbers() {
        for c in [Cmp::Eq, Cmp::Ne, Cmp::Gt, Cmp::Ge, Cmp::Lt, Cmp::Le, Cmp::Reached] {
            assert_eq!(cmp_of(cmp(c)), c);
        }
    }
}
