//! Codes of operations, which the kernels for host operations take as plain integers.

use rushmem_device::Cmp;

/// Code of a transfer, for [`rushmem_transfer`](crate::rushmem_transfer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Transfer {
    /// Calls [`Ctx::put`](rushmem_device::Ctx::put).
    Put,
    /// Calls [`Ctx::put_nbi`](rushmem_device::Ctx::put_nbi).
    PutNbi,
    /// Calls [`Ctx::get`](rushmem_device::Ctx::get).
    Get,
    /// Calls [`Ctx::get_nbi`](rushmem_device::Ctx::get_nbi).
    GetNbi,
}

/// Code of an atomic operation, for [`rushmem_atomic`](crate::rushmem_atomic). All but the last are those of the device
/// API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Atomic {
    /// Adds to an integer word, wrapping.
    Add = 0,
    /// Replaces the word by its bitwise and with the operand.
    And = 1,
    /// Replaces the word by its bitwise or with the operand.
    Or = 2,
    /// Replaces the word by its bitwise exclusive or with the operand.
    Xor = 3,
    /// Replaces the word by the operand.
    Set = 4,
    /// Sets the word if it equals the comparand.
    CompareSwap = 5,
    /// Adds to a floating-point word.
    AddFloat = 6,
}

/// Code of an ordering call or barrier, for [`rushmem_order`](crate::rushmem_order).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Order {
    /// Does nothing.
    Nothing,
    /// Calls [`Ctx::fence`](rushmem_device::Ctx::fence).
    Fence,
    /// Calls [`Ctx::quiet`](rushmem_device::Ctx::quiet).
    Quiet,
    /// Calls [`Ctx::quiet_pe`](rushmem_device::Ctx::quiet_pe).
    QuietPe,
    /// Calls [`Ctx::sync_all`](rushmem_device::Ctx::sync_all).
    SyncAll,
    /// Calls [`Ctx::barrier_all`](rushmem_device::Ctx::barrier_all).
    BarrierAll,
    /// Calls [`Ctx::is_lost`](rushmem_device::Ctx::is_lost), which connects the queues that all threads share to a process that has
    /// replaced the PE.
    Meet,
}

/// Code of a wait or test on several words, for [`rushmem_wait_set`](crate::rushmem_wait_set).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WaitSetOp {
    /// Calls [`Ctx::wait_until_all`](rushmem_device::Ctx::wait_until_all).
    WaitAll,
    /// Calls [`Ctx::wait_until_any`](rushmem_device::Ctx::wait_until_any).
    WaitAny,
    /// Calls [`Ctx::wait_until_some`](rushmem_device::Ctx::wait_until_some).
    WaitSome,
    /// Calls [`Ctx::test_all`](rushmem_device::Ctx::test_all).
    TestAll,
    /// Calls [`Ctx::test_any`](rushmem_device::Ctx::test_any).
    TestAny,
    /// Calls [`Ctx::test_some`](rushmem_device::Ctx::test_some).
    TestSome,
}

/// Code of a collective, for [`rushmem_collective`](crate::rushmem_collective).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Collective {
    /// Calls [`Ctx::team_sync`](rushmem_device::Ctx::team_sync).
    Sync,
    /// Calls [`Ctx::barrier`](rushmem_device::Ctx::barrier).
    Barrier,
    /// Calls [`Ctx::broadcast`](rushmem_device::Ctx::broadcast).
    Broadcast,
    /// Calls [`Ctx::fcollect`](rushmem_device::Ctx::fcollect).
    Fcollect,
    /// Calls [`Ctx::collect`](rushmem_device::Ctx::collect).
    Collect,
    /// Calls [`Ctx::alltoall`](rushmem_device::Ctx::alltoall).
    Alltoall,
    /// Calls [`Ctx::reduce`](rushmem_device::Ctx::reduce).
    Reduce,
    /// Calls [`Ctx::reduce_scatter`](rushmem_device::Ctx::reduce_scatter).
    ReduceScatter,
    /// Calls [`Ctx::sum_scan`](rushmem_device::Ctx::sum_scan).
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

/// Encodes a comparison operator for the kernels that take one.
pub const fn cmp(cmp: Cmp) -> u32 {
    cmp as u32
}

/// Decodes a comparison operator. Unknown codes become [`Cmp::Reached`]; the host never passes any.
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
