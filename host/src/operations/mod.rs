//! Operations of the device API, initiated by the host or queued on a stream.
//!
//! Each operation is a kernel of `rushmem-runtime-kernels` that makes the device call of the same name. A host
//! operation runs immediately, and the caller waits for it ([`Pe::initiate`]). A stream operation is appended to a
//! launch queue or recorded in a graph. Host, streams and kernels share the PE's default context, so ordering and
//! completion span all three.
//!
//! [`Operations`] has the operations that exist in both forms. Operations that return a value exist for the host only
//! (`host`, `wait_set`).

mod clock;
mod describe;
mod host;
mod issue;
mod small;
mod wait_set;

use bytemuck::Pod;
use rushmem_device::amo::{Addend, Amo, AmoWord};
use rushmem_device::{
    Cmp, Element, Reduce, Scalar, Scan, SignalOp, SignalUpdate, Strided, Sym, SymSlice, Team,
};
use rushmem_runtime_kernels::code::{Atomic, Collective, Order, Transfer, WaitSetOp};

use issue::Issue;
pub use wait_set::WaitSet;

#[cfg(doc)]
use crate::Error;
use crate::launch_queue::NO_BYTES;
use crate::{Pe, Result, Stream};

use describe::one;

/// Operations that a [`Pe`] initiates immediately, or a [`Stream`] queues.
///
/// | | on a [`Pe`] | on a [`Stream`] |
/// |---|---|---|
/// | returns | when the device call of the same name would return | immediately |
/// | runs | on the calling thread, concurrently with streams and launches | after the stream's previous operation |
/// | reports failures | from the call | from [`Stream::wait`] |
///
/// A stream operation finishes when the device call would return: a `put` once its source may be reused, and a
/// `put_nbi` once it is posted. Both forms use the PE's default context; [`Stream::with_context`] selects another one.
/// Any number of threads may call at the same time. Lengths are in elements, and PEs are identified by their number in
/// the job.
///
/// A collective call that moves more than 8 KiB per member runs on several blocks. Their number is limited to what all
/// PEs can have resident on their GPUs. The blocks wait for other members, so kernels that run at the same time should
/// leave room for them.
///
/// [`fence`](Operations::fence) and [`quiet`](Operations::quiet) cover the default context: operations of the host, of
/// streams, and of kernels that have finished. They do not cover contexts that a kernel takes itself.
///
/// ```no_run
/// use rushmem::{Job, Operations};
///
/// # fn main() -> Result<(), rushmem::Error> {
/// Job::new()?.run(|pe| {
///     let (dst, src) = (pe.alloc::<u32>(4)?, pe.alloc::<u32>(4)?);
///     pe.write(src, &[pe.my_pe(); 4])?;
///     let next = (pe.my_pe() + 1) % pe.n_pes();
///     // Initiated by the host: returns once `src` may be reused.
///     pe.put(dst, src, next)?;
///     // Completes the put, then waits for all PEs.
///     pe.barrier_all()?;
///     // The same on a stream: queued now, and done after `wait`.
///     let stream = pe.stream()?;
///     stream.put(dst, src, next)?;
///     stream.barrier_all()?;
///     stream.wait()
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// On a [`Pe`]:
/// - [`Error::Misuse`] for invalid arguments: a PE that does not exist, an object that is not allocated, different
///   lengths.
/// - [`Error::Operation`] with the error of the operation.
/// - [`Error::PeerLost`] if a PE is lost.
/// - [`Error::Unavailable`] if too many host operations are in progress.
///
/// On a [`Stream`]:
/// - [`Error::Misuse`] as above, and for a destroyed context.
/// - [`Error::Cuda`] or [`Error::Native`] if the operation cannot be queued.
pub trait Operations: Issue {
    /// Copies `src` on this PE to `dst` on `pe`. Finishes once `src` may be reused.
    ///
    /// [`quiet`](Operations::quiet) completes the put, and [`fence`](Operations::fence) orders it. OpenSHMEM 1.6
    /// section 9.5, `shmem_put`; NVSHMEM's `nvshmemx_put_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn put<T: Pod>(&self, dst: SymSlice<T>, src: SymSlice<T>, pe: u32) -> Result<()> {
        self.issue(|host| host.op_transfer("put", Transfer::Put, dst, src, pe))
    }

    /// Starts to copy `src` on this PE to `dst` on `pe`. Finishes once the copy is posted.
    ///
    /// `src` must not be modified until [`quiet`](Operations::quiet) has completed the copy. OpenSHMEM 1.6 section 9.6,
    /// `shmem_put_nbi`; NVSHMEM's `nvshmemx_put_nbi_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn put_nbi<T: Pod>(&self, dst: SymSlice<T>, src: SymSlice<T>, pe: u32) -> Result<()> {
        self.issue(|host| host.op_transfer("put_nbi", Transfer::PutNbi, dst, src, pe))
    }

    /// Copies `src` on `pe` to `dst` on this PE. Finishes once the data has arrived.
    ///
    /// OpenSHMEM 1.6 section 9.5, `shmem_get`; NVSHMEM's `nvshmemx_get_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn get<T: Pod>(&self, dst: SymSlice<T>, src: SymSlice<T>, pe: u32) -> Result<()> {
        self.issue(|host| host.op_transfer("get", Transfer::Get, src, dst, pe))
    }

    /// Starts to copy `src` on `pe` to `dst` on this PE. [`quiet`](Operations::quiet) completes the copy.
    ///
    /// OpenSHMEM 1.6 section 9.6, `shmem_get_nbi`; NVSHMEM's `nvshmemx_get_nbi_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn get_nbi<T: Pod>(&self, dst: SymSlice<T>, src: SymSlice<T>, pe: u32) -> Result<()> {
        self.issue(|host| host.op_transfer("get_nbi", Transfer::GetNbi, src, dst, pe))
    }

    /// Copies the blocks of `src` on this PE to the blocks of `dst` on `pe`. Finishes once `src` may be reused.
    ///
    /// OpenSHMEM 1.6 section 9.5, `shmem_iput`, and `shmem_ibput` for blocks of several elements; NVSHMEM's
    /// `nvshmemx_iput_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn iput<T: Pod>(&self, dst: Strided<T>, src: Strided<T>, pe: u32) -> Result<()> {
        self.issue(|host| host.op_strided("iput", Transfer::Put, dst, src, pe))
    }

    /// Copies the blocks of `src` on `pe` to the blocks of `dst` on this PE. Finishes once the data has arrived.
    ///
    /// OpenSHMEM 1.6 section 9.5, `shmem_iget`, and `shmem_ibget` for blocks of several elements; NVSHMEM's
    /// `nvshmemx_iget_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn iget<T: Pod>(&self, dst: Strided<T>, src: Strided<T>, pe: u32) -> Result<()> {
        self.issue(|host| host.op_strided("iget", Transfer::Get, src, dst, pe))
    }

    /// Writes `value` to `dst` on `pe`. [`quiet`](Operations::quiet) completes the write. A stream stores the value
    /// when the operation is queued.
    ///
    /// OpenSHMEM 1.6 section 9.5, `shmem_p`; NVSHMEM's `nvshmemx_p_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn p<T: Scalar>(&self, dst: Sym<T>, value: T, pe: u32) -> Result<()> {
        self.issue(|host| host.op_p("p", dst, value, pe))
    }

    /// Copies `src` on this PE to `dst` on `pe`, and then applies `update` there. Finishes once `src` may be reused.
    ///
    /// Whoever sees the new value of the signal also sees the data. OpenSHMEM 1.6 section 9.8.2, `shmem_put_signal`;
    /// NVSHMEM's `nvshmemx_put_signal_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn put_signal<T: Pod>(
        &self,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        update: SignalUpdate,
        pe: u32,
    ) -> Result<()> {
        self.issue(|host| host.op_put_signal("put_signal", false, dst, src, update, pe))
    }

    /// Starts to copy `src` on this PE to `dst` on `pe`, and then to apply `update` there. Finishes once both are
    /// posted.
    ///
    /// `src` must not be modified until [`quiet`](Operations::quiet) has completed the copy. OpenSHMEM 1.6 section
    /// 9.8.3, `shmem_put_signal_nbi`; NVSHMEM's `nvshmemx_put_signal_nbi_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn put_signal_nbi<T: Pod>(
        &self,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        update: SignalUpdate,
        pe: u32,
    ) -> Result<()> {
        self.issue(|host| host.op_put_signal("put_signal_nbi", true, dst, src, update, pe))
    }

    /// Applies `update` to a signal on `pe`.
    ///
    /// Only a [`fence`](Operations::fence) or [`quiet`](Operations::quiet) in between orders it after earlier puts.
    /// NVSHMEM's `nvshmemx_signal_op` and `nvshmemx_signal_op_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn signal_op(&self, update: SignalUpdate, pe: u32) -> Result<()> {
        let SignalUpdate { signal, op, value } = update;
        let atomic = if op == SignalOp::Set { Atomic::Set } else { Atomic::Add };
        self.issue(|host| host.op_atomic("signal_op", atomic, None, signal, value, pe))
    }

    /// Waits until `word` on this PE meets the condition that `cmp` and `value` express. See [`WaitSet`] for several
    /// words.
    ///
    /// Other streams keep running. OpenSHMEM 1.6 section 9.10, `shmem_wait_until`; NVSHMEM's
    /// `nvshmemx_wait_until_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    /// - `WaitTimeout` in [`Error::Operation`] if the deadline (setting `timeout`) expires.
    #[track_caller]
    fn wait_until<T: Amo + PartialOrd>(&self, word: Sym<T>, cmp: Cmp, value: T) -> Result<()> {
        self.issue(|host| host.op_wait("wait_until", None, word, cmp, value))
    }

    /// Waits until each word of the set has met its condition at some point. Returns immediately for an empty set.
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_wait_until_all` and `shmem_wait_until_all_vector`; NVSHMEM's
    /// `nvshmemx_wait_until_all_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    /// - `WaitTimeout` in [`Error::Operation`] if the deadline (setting `timeout`) expires.
    #[track_caller]
    fn wait_until_all<T: Amo + PartialOrd>(&self, words: &WaitSet<T>) -> Result<()> {
        self.issue(|host| host.op_wait_set("wait_until_all", WaitSetOp::WaitAll, NO_BYTES.cast(), words))
    }

    /// Orders delivery: earlier operations to any PE are delivered before later operations to the same PE.
    ///
    /// Does not complete anything. OpenSHMEM 1.6 section 9.11, `shmem_fence`.
    ///
    /// # Errors
    /// - The [errors of all operations](Operations#errors).
    #[track_caller]
    fn fence(&self) -> Result<()> {
        self.issue(|host| Ok(host.op_order("fence", Order::Fence)))
    }

    /// Completes all earlier operations in the context: puts have been delivered and are visible, and the data of gets
    /// has arrived.
    ///
    /// OpenSHMEM 1.6 section 9.11, `shmem_quiet`; NVSHMEM's `nvshmemx_quiet_on_stream`.
    ///
    /// # Errors
    /// - The [errors of all operations](Operations#errors).
    #[track_caller]
    fn quiet(&self) -> Result<()> {
        self.issue(|host| Ok(host.op_order("quiet", Order::Quiet)))
    }

    /// Completes all earlier operations as [`quiet`](Operations::quiet) does, then waits until all PEs have made the
    /// call. Collective.
    ///
    /// It matches `barrier_all` calls by the hosts, streams and kernels of other PEs. On the same PE, at most one of
    /// them may be in the call at any time. OpenSHMEM 1.6 section 9.9, `shmem_barrier_all`; NVSHMEM's
    /// `nvshmemx_barrier_all_on_stream`.
    ///
    /// # Errors
    /// - The [errors of all operations](Operations#errors).
    #[track_caller]
    fn barrier_all(&self) -> Result<()> {
        self.issue(|host| Ok(host.op_order("barrier_all", Order::BarrierAll)))
    }

    /// Waits until all PEs have made the call, without completing operations. Collective.
    ///
    /// Calls are matched as for [`barrier_all`](Operations::barrier_all). OpenSHMEM 1.6 section 9.9, `shmem_sync_all`;
    /// NVSHMEM's `nvshmemx_sync_all_on_stream`.
    ///
    /// # Errors
    /// - The [errors of all operations](Operations#errors).
    #[track_caller]
    fn sync_all(&self) -> Result<()> {
        self.issue(|host| Ok(host.op_order("sync_all", Order::SyncAll)))
    }

    /// Completes all earlier operations in the context to `pes`, as [`quiet`](Operations::quiet) does for all PEs.
    ///
    /// OpenSHMEM 1.6 section 9.11, `shmem_pe_quiet`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn quiet_pes(&self, pes: &[u32]) -> Result<()> {
        pes.iter().try_for_each(|&pe| self.issue(|host| host.op_quiet_pe("quiet_pes", pe)))
    }

    /// Waits until all members of `team` have made the call, without completing operations. Collective over the team.
    ///
    /// OpenSHMEM 1.6 section 9.9, `shmem_team_sync`; NVSHMEM's `nvshmemx_team_sync_on_stream`.
    ///
    /// # Errors
    /// - The [errors of all operations](Operations#errors).
    #[track_caller]
    fn team_sync(&self, team: Team) -> Result<()> {
        self.issue(|host| Ok(host.op_team_sync("team_sync", Collective::Sync, team)))
    }

    /// Completes all earlier operations in the context, then waits until all members of `team` have made the call.
    /// Collective over the team.
    ///
    /// OpenSHMEM 1.6 section 9.9, `shmem_barrier`; NVSHMEM's `nvshmemx_barrier_on_stream`.
    ///
    /// # Errors
    /// - The [errors of all operations](Operations#errors).
    #[track_caller]
    fn team_barrier(&self, team: Team) -> Result<()> {
        self.issue(|host| Ok(host.op_team_sync("team_barrier", Collective::Barrier, team)))
    }

    /// Copies `src` on member `root` to `dst` on every member, including the root.
    ///
    /// Collective over the team. At most one collective call of a team may be in progress on each PE, be it from the
    /// host, a stream or a kernel. See [`Ctx`](rushmem_device::Ctx) for the rules about sources and destinations.
    /// OpenSHMEM 1.6 section 9.9, `shmem_broadcast`; NVSHMEM's `nvshmemx_broadcast_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn broadcast<T: Pod>(&self, team: Team, dst: SymSlice<T>, src: SymSlice<T>, root: u32) -> Result<()> {
        self.issue(|host| host.op_collective("broadcast", Collective::Broadcast, team, dst, src, root))
    }

    /// Concatenates the `src` of all members, in team order, in `dst` on every member.
    ///
    /// All sources must have the same length. Collective over the team. At most one collective call of a team may be in
    /// progress on each PE, be it from the host, a stream or a kernel. See [`Ctx`](rushmem_device::Ctx) for the rules
    /// about sources and destinations. OpenSHMEM 1.6 section 9.9, `shmem_fcollect`; NVSHMEM's
    /// `nvshmemx_fcollect_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn fcollect<T: Pod>(&self, team: Team, dst: SymSlice<T>, src: SymSlice<T>) -> Result<()> {
        self.issue(|host| host.op_collective("fcollect", Collective::Fcollect, team, dst, src, 0))
    }

    /// Concatenates the `src` of all members, in team order, in `dst` on every member.
    ///
    /// Sources may have different lengths, including 0. Collective over the team. At most one collective call of a team
    /// may be in progress on each PE, be it from the host, a stream or a kernel. See [`Ctx`](rushmem_device::Ctx) for
    /// the rules about sources and destinations. OpenSHMEM 1.6 section 9.9, `shmem_collect`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn collect<T: Pod>(&self, team: Team, dst: SymSlice<T>, src: SymSlice<T>) -> Result<()> {
        self.issue(|host| host.op_collective("collect", Collective::Collect, team, dst, src, 0))
    }

    /// Sends part `j` of `src` to member `j`, and stores the part received from member `i` as part `i` of `dst`.
    ///
    /// Collective over the team. At most one collective call of a team may be in progress on each PE, be it from the
    /// host, a stream or a kernel. See [`Ctx`](rushmem_device::Ctx) for the rules about sources and destinations.
    /// OpenSHMEM 1.6 section 9.9, `shmem_alltoall`; NVSHMEM's `nvshmemx_alltoall_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn alltoall<T: Pod>(&self, team: Team, dst: SymSlice<T>, src: SymSlice<T>) -> Result<()> {
        self.issue(|host| host.op_collective("alltoall", Collective::Alltoall, team, dst, src, 0))
    }

    /// Combines the elements of all members' `src` with `op`, index by index, and stores the results in every member's
    /// `dst`.
    ///
    /// Collective over the team. At most one collective call of a team may be in progress on each PE, be it from the
    /// host, a stream or a kernel. See [`Ctx`](rushmem_device::Ctx) for the rules about sources and destinations.
    /// OpenSHMEM 1.6 section 9.9, `shmem_sum_reduce` and the other reductions; NVSHMEM's
    /// `nvshmemx_sum_reduce_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn reduce<T: Element>(&self, team: Team, op: Reduce, dst: SymSlice<T>, src: SymSlice<T>) -> Result<()> {
        self.issue(|host| host.op_reduction("reduce", Collective::Reduce, team, op as u32, dst, src))
    }

    /// Combines elements as [`reduce`](Operations::reduce) does, and stores part `i` of the result in `dst` on member
    /// `i`.
    ///
    /// Collective over the team. At most one collective call of a team may be in progress on each PE, be it from the
    /// host, a stream or a kernel. See [`Ctx`](rushmem_device::Ctx) for the rules about sources and destinations.
    /// NVSHMEM's `nvshmem_sum_reducescatter` and `nvshmemx_sum_reducescatter_on_stream`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn reduce_scatter<T: Element>(
        &self,
        team: Team,
        op: Reduce,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result<()> {
        self.issue(|pe| {
            pe.op_reduction("reduce_scatter", Collective::ReduceScatter, team, op as u32, dst, src)
        })
    }

    /// Stores in `dst` the sums, index by index, of the elements of all members up to this one, excluding this one if
    /// `op` is exclusive.
    ///
    /// Collective over the team. At most one collective call of a team may be in progress on each PE, be it from the
    /// host, a stream or a kernel. See [`Ctx`](rushmem_device::Ctx) for the rules about sources and destinations.
    /// OpenSHMEM 1.6 section 9.9, `shmem_sum_inscan` and `shmem_sum_exscan`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn sum_scan<T: Element>(&self, team: Team, op: Scan, dst: SymSlice<T>, src: SymSlice<T>) -> Result<()> {
        self.issue(|host| host.op_reduction("sum_scan", Collective::Scan, team, op as u32, dst, src))
    }

    /// Sets `word` on `pe` to `value`. Only posts the update; [`quiet`](Operations::quiet) completes it.
    ///
    /// The word has 4 or 8 bytes. OpenSHMEM 1.6 section 9.7, `shmem_atomic_set`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn atomic_set<T: AmoWord>(&self, word: Sym<T>, value: T, pe: u32) -> Result<()> {
        self.issue(|host| host.op_atomic("atomic_set", Atomic::Set, None, word, value, pe))
    }

    /// Sets `word` on `pe` to `value`. Stores the old value in `result` on this PE.
    ///
    /// The result is available after [`quiet`](Operations::quiet), and to later operations in the same stream.
    /// OpenSHMEM 1.6 section 9.8, `shmem_atomic_swap_nbi`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn atomic_swap_nbi<T: AmoWord>(&self, result: Sym<T>, word: Sym<T>, value: T, pe: u32) -> Result<()> {
        self.issue(|host| host.op_atomic("atomic_swap_nbi", Atomic::Set, Some(result), word, value, pe))
    }

    /// Adds `value` to `word` on `pe`. Integers wrap, floats round. Only posts the update; [`quiet`](Operations::quiet)
    /// completes it.
    ///
    /// The word has 4 or 8 bytes. OpenSHMEM 1.6 section 9.7, `shmem_atomic_add`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn atomic_add<T: Addend>(&self, word: Sym<T>, value: T, pe: u32) -> Result<()> {
        self.issue(|host| host.op_atomic("atomic_add", Atomic::Add, None, word, value, pe))
    }

    /// Adds `value` to `word` on `pe`. Integers wrap, floats round. Stores the old value in `result` on this PE.
    ///
    /// The result is available after [`quiet`](Operations::quiet), and to later operations in the same stream.
    /// OpenSHMEM 1.6 section 9.8, `shmem_atomic_fetch_add_nbi`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn atomic_fetch_add_nbi<T: Addend>(&self, result: Sym<T>, word: Sym<T>, value: T, pe: u32) -> Result<()> {
        self.issue(|host| host.op_atomic("atomic_fetch_add_nbi", Atomic::Add, Some(result), word, value, pe))
    }

    /// Replaces `word` on `pe` by its bitwise AND with `value`. Only posts the update; [`quiet`](Operations::quiet)
    /// completes it.
    ///
    /// The word has 4 or 8 bytes. OpenSHMEM 1.6 section 9.7, `shmem_atomic_and`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn atomic_and<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<()> {
        self.issue(|host| host.op_atomic("atomic_and", Atomic::And, None, word, value, pe))
    }

    /// Replaces `word` on `pe` by its bitwise AND with `value`. Stores the old value in `result` on this PE.
    ///
    /// The result is available after [`quiet`](Operations::quiet), and to later operations in the same stream.
    /// OpenSHMEM 1.6 section 9.8, `shmem_atomic_fetch_and_nbi`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn atomic_fetch_and_nbi<T: Amo>(&self, result: Sym<T>, word: Sym<T>, value: T, pe: u32) -> Result<()> {
        self.issue(|host| host.op_atomic("atomic_fetch_and_nbi", Atomic::And, Some(result), word, value, pe))
    }

    /// Replaces `word` on `pe` by its bitwise OR with `value`. Only posts the update; [`quiet`](Operations::quiet)
    /// completes it.
    ///
    /// The word has 4 or 8 bytes. OpenSHMEM 1.6 section 9.7, `shmem_atomic_or`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn atomic_or<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<()> {
        self.issue(|host| host.op_atomic("atomic_or", Atomic::Or, None, word, value, pe))
    }

    /// Replaces `word` on `pe` by its bitwise OR with `value`. Stores the old value in `result` on this PE.
    ///
    /// The result is available after [`quiet`](Operations::quiet), and to later operations in the same stream.
    /// OpenSHMEM 1.6 section 9.8, `shmem_atomic_fetch_or_nbi`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn atomic_fetch_or_nbi<T: Amo>(&self, result: Sym<T>, word: Sym<T>, value: T, pe: u32) -> Result<()> {
        self.issue(|host| host.op_atomic("atomic_fetch_or_nbi", Atomic::Or, Some(result), word, value, pe))
    }

    /// Replaces `word` on `pe` by its bitwise XOR with `value`. Only posts the update; [`quiet`](Operations::quiet)
    /// completes it.
    ///
    /// The word has 4 or 8 bytes. OpenSHMEM 1.6 section 9.7, `shmem_atomic_xor`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn atomic_xor<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<()> {
        self.issue(|host| host.op_atomic("atomic_xor", Atomic::Xor, None, word, value, pe))
    }

    /// Replaces `word` on `pe` by its bitwise XOR with `value`. Stores the old value in `result` on this PE.
    ///
    /// The result is available after [`quiet`](Operations::quiet), and to later operations in the same stream.
    /// OpenSHMEM 1.6 section 9.8, `shmem_atomic_fetch_xor_nbi`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn atomic_fetch_xor_nbi<T: Amo>(&self, result: Sym<T>, word: Sym<T>, value: T, pe: u32) -> Result<()> {
        self.issue(|host| host.op_atomic("atomic_fetch_xor_nbi", Atomic::Xor, Some(result), word, value, pe))
    }

    /// Adds 1 to `word` on `pe`, wrapping around. Only posts the update; [`quiet`](Operations::quiet) completes it.
    ///
    /// OpenSHMEM 1.6 section 9.7, `shmem_atomic_inc`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn atomic_inc<T: Amo>(&self, word: Sym<T>, pe: u32) -> Result<()> {
        self.issue(|host| host.op_atomic("atomic_inc", Atomic::Add, None, word, one(), pe))
    }

    /// Adds 1 to `word` on `pe`, wrapping around. Stores the old value in `result` on this PE.
    ///
    /// The result is available after [`quiet`](Operations::quiet), and to later operations in the same stream.
    /// OpenSHMEM 1.6 section 9.8, `shmem_atomic_fetch_inc_nbi`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn atomic_fetch_inc_nbi<T: Amo>(&self, result: Sym<T>, word: Sym<T>, pe: u32) -> Result<()> {
        self.issue(|host| host.op_atomic("atomic_fetch_inc_nbi", Atomic::Add, Some(result), word, one(), pe))
    }

    /// Reads `word` on `pe` atomically into `result` on this PE.
    ///
    /// The result is available after [`quiet`](Operations::quiet), and to later operations in the same stream.
    /// OpenSHMEM 1.6 section 9.8, `shmem_atomic_fetch_nbi`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn atomic_fetch_nbi<T: AmoWord>(&self, result: Sym<T>, word: Sym<T>, pe: u32) -> Result<()> {
        self.issue(|host| host.op_atomic_fetch("atomic_fetch_nbi", result, word, pe))
    }

    /// Sets `word` on `pe` to `value` if it holds `compare`. Stores the old value in `result` on this PE.
    ///
    /// The result is available after [`quiet`](Operations::quiet), and to later operations in the same stream.
    /// OpenSHMEM 1.6 section 9.8, `shmem_atomic_compare_swap_nbi`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](Operations#errors).
    #[track_caller]
    fn atomic_compare_swap_nbi<T: Amo>(
        &self,
        result: Sym<T>,
        word: Sym<T>,
        compare: T,
        value: T,
        pe: u32,
    ) -> Result<()> {
        self.issue(|host| host.op_compare_swap("atomic_compare_swap_nbi", result, word, compare, value, pe))
    }
}

impl Operations for Pe {}

impl Operations for Stream<'_> {}
