//! The PE as applications see it: the type [`Pe`], its peers and QPs, and the protocol of collective calls.
//!
//! Submodules contain start-up, and the methods that allocate and register memory. Kernel launches, streams, teams and
//! operations have their own modules in the crate.

mod memory;
mod register;
mod resident;

mod clocks;
mod contexts;
mod costs;
mod greeting;
mod guard;
mod kernels;
mod membership;
mod outcome;
mod rings;
mod start;
mod storage;
mod summary;
mod teams;

use std::panic::Location;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytemuck::{Pod, Zeroable};
use rushmem_base::lock;
use rushmem_device::abi::{ControlPage, CtxParts, ErrorRecord, ctx_flags};
use rushmem_device::{LocalBuffer, SymSlice, Team};
use rushmem_error::call_site::CallSite;
use rushmem_error::{DeviceError, call_site, recorded};
use rushmem_fabric::queues::{QpInfo, Service, Shape, StateMap};
use rushmem_machine::waits::Waits;
use rushmem_machine::{LaunchConfig, Machine, Region, Watchdog, end_job};
use rushmem_memory::Memory;
use rushmem_memory::p2p::{PeerMap, PeerRoute};
use rushmem_observe::sanitize::PeWatch;
use rushmem_observe::trace::PeTrace;

use crate::bootstrap::{Bootstrap, Gathered};
use crate::config::{Config, ConnectKind};
use crate::contexts::Contexts;
use crate::launch_queue::{LaunchId, LaunchQueues, LaunchResources};
use crate::membership::Membership;
use crate::modules::Modules;
use crate::teams::Teams;
use crate::test_loop::TestLoop;
use crate::{Error, Result};

pub use self::costs::ControlCosts;
pub use self::guard::MemoryGuard;
pub use self::kernels::Kernels;
pub use self::memory::Hints;
pub use self::register::{RegisteredBuffer, UnregisterError, Window};
pub use self::storage::Checkpoint;

/// A PE (processing element) of a job.
///
/// [`Job::run`](crate::Job::run) passes it to the application. Each PE has its part of the symmetric heap, queues to
/// the other PEs, and a machine that runs its kernels: a GPU, a share of one, or the native GPU emulator. The methods
/// that move data between PEs are in the trait [`Operations`](crate::Operations).
///
/// # Collective calls
/// All PEs must make the calls marked *collective*, in the same order and with the same arguments. If they do not,
/// every PE returns [`Error::Mismatch`], which names a PE that differs. If a NIC of this PE fails during the call,
/// completed puts may be missing from memory; the call then returns [`Error::Unavailable`].
///
/// # Threads
/// Any thread of the process may call any method. The program must ensure the order of collective calls.
///
/// # Examples
/// Every PE reads a value from the heap of the next PE:
///
/// ```no_run
/// use rushmem::{Error, Job};
///
/// fn main() -> Result<(), Error> {
///     Job::new()?.run(|pe| {
///         let number = pe.alloc_one::<u32>()?;
///         pe.write(number.as_slice(), &[pe.my_pe()])?;
///         pe.host_sync()?;
///         let next = (pe.my_pe() + 1) % pe.n_pes();
///         assert_eq!(pe.g(number, next)?, next);
///         pe.free(number.as_slice())
///     })?;
///     Ok(())
/// }
/// ```
pub struct Pe {
    // Fields drop in order: first whatever runs kernels; memory keys before their NICs, and QPs before the heap.
    launch_queues: LaunchQueues,
    modules: Modules,
    memory: Memory,
    service: Service,
    state: Arc<StateMap>,
    shape: Shape,
    peer_map: PeerMap,
    heap: Region,
    control: Region,
    pub(crate) test_loop: TestLoop,
    collectives: Mutex<u64>,
    pub(crate) teams: Teams,
    pub(crate) contexts: Contexts,
    membership: Membership,
    watchdog: Arc<Watchdog>,
    machine: Arc<dyn Machine>,
    bootstrap: Arc<dyn Bootstrap>,
    config: Config,
    /// Names of the PE's NICs, separated by commas.
    nics: String,
    /// Whether kernels may reach a peer through the software ConnectX.
    uses_soft_nic: bool,
    /// Number of thread blocks that every PE can have resident at the same time.
    pub(crate) collective_blocks: u32,
    pub(crate) watch: PeWatch,
    pub(crate) trace: PeTrace,
    waits: Arc<Waits>,
}

// Promised by `THREAD_LEVEL`.
const _: () = {
    const fn any_thread<T: Send + Sync>() {}
    any_thread::<Pe>();
};

/// # The PE and its job
///
/// PE numbers, routes to peers, and calls that concern the whole job.
impl Pe {
    /// Returns the number of this PE, in `0..n_pes`. OpenSHMEM 1.6 section 9.1, `shmem_my_pe`.
    pub fn my_pe(&self) -> u32 {
        self.bootstrap.pe()
    }

    /// Returns the number of PEs in the job. OpenSHMEM 1.6 section 9.1, `shmem_n_pes`.
    pub fn n_pes(&self) -> u32 {
        self.bootstrap.n_pes()
    }

    /// Returns the settings of the job, including the values supplied by the launcher and the bootstrap.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Describes the machine that runs this PE's kernels, in one line for users.
    pub fn machine(&self) -> String {
        self.machine.describe()
    }

    /// Returns whether kernels run on a GPU. If not, they run in the native GPU emulator.
    pub fn is_gpu(&self) -> bool {
        self.machine.is_gpu()
    }

    /// Returns the ordinal of the GPU that runs this PE's kernels, or `None` if they run natively.
    ///
    /// CUDA and other libraries identify the GPU by this number, as in `CudaContext::new`. CUDA's `cudaGetDevice`.
    pub fn gpu(&self) -> Option<u32> {
        self.machine.gpu()
    }

    /// Returns the largest grid whose blocks are all resident at the same time on this PE's share of the machine.
    ///
    /// Kernels whose blocks wait for each other must not use more blocks. [`Pe::launch_collective`] checks this for a
    /// given kernel. If the software ConnectX accesses GPU memory while kernels run, the grid leaves one multiprocessor
    /// to it.
    pub fn grid(&self) -> LaunchConfig {
        self.machine.grid(self.uses_soft_nic)
    }

    /// Returns for each PE, by PE number, the route to it (P2P or a NIC) and the reason.
    pub fn peer_routes(&self) -> Vec<PeerRoute> {
        self.peer_map.routes(&self.config, &self.nics)
    }

    /// Returns whether the job has PE `pe`. Operations can target every PE of the job, by P2P or through the NIC.
    /// OpenSHMEM 1.6 section 9.3.1, `shmem_pe_accessible`.
    pub fn pe_accessible(&self, pe: u32) -> bool {
        pe < self.n_pes()
    }

    /// Returns whether operations can target `object` on `pe`: the PE exists, and the object is allocated.
    ///
    /// OpenSHMEM 1.6 section 9.3.2, `shmem_addr_accessible`. Takes a handle rather than an address, since only
    /// symmetric memory has handles.
    pub fn addr_accessible<T: Pod>(&self, object: SymSlice<T>, pe: u32) -> bool {
        self.pe_accessible(pe) && self.memory.locate(object.handle()).is_ok()
    }

    /// Returns the address at which kernels of this PE load and store the copy of `object` on member `index` of `team`.
    /// See [`Pe::ptr`].
    ///
    /// Returns `None` if the memory is not mapped into this PE, or if the team, the member or the object does not
    /// exist. OpenSHMEM 1.6 section 9.2, `shmem_team_ptr`.
    pub fn team_ptr<T: Pod>(&self, team: Team, object: SymSlice<T>, index: u32) -> Option<*mut T> {
        self.ptr(object, self.team_translate_pe(team, index, Team::WORLD)?)
    }

    /// Returns the number of QPs that are currently connected.
    ///
    /// With the setting `connect=lazy`, a QP is connected when a kernel first posts to it. With `connect=eager`, all
    /// QPs are connected when the job starts.
    pub fn connected_qps(&self) -> usize {
        self.service.connected()
    }

    /// Queries the NICs for the connected QPs: QPNs, states, depths and connection parameters. Costs one command per
    /// QP.
    ///
    /// # Errors
    /// - [`Error::Nic`] if a NIC refuses the query.
    pub fn qps(&self) -> Result<Vec<QpInfo>> {
        self.service.query()
    }

    /// Destroys all QPs of the job. They are created again on their next use, so the job can go on after an error has
    /// stopped some of them. Collective.
    ///
    /// Before the call, every PE must have waited for all its launches and streams. It must not launch anything until
    /// the call returns. Operations that were not complete may or may not have been delivered.
    ///
    /// The call does not change memory, including the state of teams. In particular, it does not repair a team in which
    /// kernels have abandoned a collective call.
    ///
    /// # Errors
    /// - [`Error::Misuse`] on all PEs if any PE has not waited for a launch or stream. Nothing is changed in this case.
    /// - [`Error::Mismatch`] if a PE makes another collective call.
    /// - [`Error::Bootstrap`] or [`Error::PeerLost`] if a PE never makes the call, or is lost.
    /// - [`Error::Nic`], [`Error::SoftNic`], [`Error::Memory`] or [`Error::Cuda`] if a NIC or the machine fails.
    /// - The errors of [`Pe::host_sync`].
    #[track_caller]
    pub fn reset_queues(&self) -> Result<()> {
        let _site = call_site::enter();
        self.wait_for_dropped();
        // All PEs learn the state of all others, so either all of them reset their QPs or none does.
        let (_, busy) = self.agree_with("reset_queues", "", &[self.service.is_busy().into()])?;
        if let Some(pe) = busy.iter().position(|busy| *busy == [1]) {
            let what = format!("kernels of PE {pe} may be running; wait for its launches and streams first");
            return Err(Error::misuse("reset_queues", what));
        }
        let reset = self.service.reset();
        // A connection needs the same epoch on both PEs, so none may be started before all PEs have reset.
        self.host_sync()?;
        reset?;
        match self.config.connect {
            // Lost PEs accept no connection.
            ConnectKind::Eager if self.needs_all_pes().is_ok() => {
                self.service.connect_all(self.config.bootstrap_timeout)
            }
            ConnectKind::Eager | ConnectKind::Lazy => Ok(()),
        }
    }

    /// Waits on the host until all PEs have made the call. Collective.
    ///
    /// The call uses the bootstrap network, not the NICs. It does not complete communication as
    /// [`barrier_all`](crate::Operations::barrier_all) does. But puts that a PE completed by `quiet` before its call
    /// are visible afterwards, to [`Pe::read`] and to kernels launched from then on. The same holds for all other
    /// collective calls of the host.
    ///
    /// # Errors
    /// - [`Error::Bootstrap`] if a PE never makes the call, or the connection to the job's server is lost.
    /// - [`Error::PeerLost`] in a job with live membership that has lost a PE since the last [`Pe::shrink`].
    /// - [`Error::Unavailable`] if a NIC of this PE fails. Completed puts may then be missing from memory.
    #[doc(alias = "barrier")]
    #[track_caller]
    pub fn host_sync(&self) -> Result<()> {
        let _site = call_site::enter();
        let _span = self.trace.call("host_sync");
        self.wait_for_dropped();
        self.check_joined("host_sync")?;
        let _call = self.waits.known.host_call("host_sync", Some(Location::caller()));
        self.watch.meet(|| self.bootstrap.barrier("host_sync")).map_err(|error| self.failed(error))?;
        self.flush()
    }

    /// Waits until puts that peers have completed are in this PE's memory.
    ///
    /// Required after each exchange over the bootstrap network: its messages do not pass through the NIC, and may
    /// overtake data that is still on its way from the NIC to memory.
    fn flush(&self) -> Result<()> {
        let until = Instant::now() + self.config.timeout;
        self.service.flush(|rail| self.memory.ends(self.my_pe(), rail), until)
    }

    /// Sends the bytes `mine` to every PE, and returns the bytes of all PEs, by PE number. Collective.
    ///
    /// The call uses the bootstrap network and is meant for small data. Lengths may differ between PEs. It makes
    /// completed puts visible, as [`Pe::host_sync`] does.
    ///
    /// # Errors
    /// - The errors of [`Pe::host_sync`].
    #[track_caller]
    pub fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let _site = call_site::enter();
        let _span = self.trace.call("allgather");
        self.wait_for_dropped();
        self.check_joined("allgather")?;
        let _call = self.waits.known.host_call("allgather", Some(Location::caller()));
        let all = self.watch.meet(|| self.bootstrap.allgather("allgather", mine));
        let all = all.map_err(|error| self.failed(error))?;
        self.flush()?;
        Ok(Arc::unwrap_or_clone(all))
    }

    /// Terminates all processes of the job with exit code `code`, this one first.
    ///
    /// Not collective: the call of a single PE suffices. The other processes exit within seconds, even if they are
    /// waiting, and the launcher returns the code. Nothing is completed or freed. OpenSHMEM 1.6 section 9.1.5,
    /// `shmem_global_exit`.
    pub fn global_exit(&self, code: u8) -> ! {
        end_job(&*self.bootstrap, code)
    }

    /// Aborts the job because of `cause`: the waits of all PEs fail, on the host and in kernels. Not collective.
    ///
    /// The PE must still be shut down. For programs that must interrupt calls which other threads of the process are
    /// making. Others return an error from their application.
    pub fn abort(&self, cause: &Error) {
        self.fail(cause);
    }

    /// Returns the context with which kernels of this PE are launched. For tests.
    #[doc(hidden)]
    pub fn ctx_parts(&self) -> CtxParts {
        self.memory.current().0
    }

    /// Overwrites the rkey with which kernels access the heap of `pe` with an invalid one. For tests.
    ///
    /// # Errors
    /// - [`Error::Memory`] or [`Error::Cuda`] if the machine cannot write the key.
    #[doc(hidden)]
    pub fn corrupt_rkey(&self, pe: u32) -> Result<()> {
        self.state.corrupt_rkey(pe)
    }

    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// Counts a collective call, and returns its sequence number, starting at 1. Equal on all PEs.
    fn next_collective(&self) -> u64 {
        let mut n = lock(&self.collectives);
        *n += 1;
        *n
    }

    /// Exchanges the bytes `mine` in the collective call with sequence number `n`, which is part of `call`.
    ///
    /// The exchange is named by `n` rather than by `call`, because PEs that make different calls must take part in the
    /// same exchange to find the mismatch. Errors name the call.
    fn allgather_for(&self, n: u64, call: &str, mine: &[u8]) -> Result<Gathered> {
        self.wait_for_dropped();
        self.check_joined(call)?;
        let _call = self.waits.known.host_call(call, None);
        let number = format!("collective call {n}");
        let all = self.watch.meet(|| self.bootstrap.allgather(&number, mine));
        let all = all.map_err(|error| self.failed(error.with_call(&number, call)))?;
        self.flush()?;
        Ok(all)
    }

    /// Checks that the collective call `call` is not made too early by a process that replaces a lost PE: the others are in other
    /// calls, which it would make fail for good.
    fn check_joined(&self, call: &str) -> Result<()> {
        if !self.membership.has_joined() {
            return Ok(());
        }
        let what = format!("this process replaces a lost PE, and must call it before {call}");
        Err(Error::misuse("grow", what))
    }

    /// Exchanges the outcomes of a collective call, and returns the value of `mine` only if all PEs have succeeded.
    ///
    /// # Errors
    /// - The error of `mine`.
    /// - [`Error::Elsewhere`] if only other PEs have failed.
    pub(crate) fn conclude<R>(&self, call: &'static str, mine: Result<R>) -> Result<R> {
        let message = mine.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let all = self.allgather_for(self.next_collective(), call, message.as_bytes())?;
        let value = mine?;
        match first_failure(&all) {
            None => Ok(value),
            Some((pe, why)) => Err(Error::Elsewhere { pe, call, why, site: CallSite::current() }),
        }
    }

    /// Checks that all PEs make the collective call `call` with the same arguments. Returns the call's sequence number.
    ///
    /// # Errors
    /// - [`Error::Mismatch`] if a PE differs.
    pub(crate) fn agree(&self, call: &str, arguments: &str) -> Result<u64> {
        self.agree_with(call, arguments, &[]).map(|(n, _)| n)
    }

    /// Checks a collective call as [`Pe::agree`] does, and also exchanges `data`, which may differ. Returns the call's
    /// sequence number and the data of each PE, empty for lost PEs.
    pub(crate) fn agree_with(&self, call: &str, arguments: &str, data: &[u8]) -> Result<(u64, Vec<Vec<u8>>)> {
        let n = self.next_collective();
        let mine = format!("{call}({arguments})");
        let message = [mine.as_bytes(), b"\0", data].concat();
        let all = self.allgather_for(n, call, &message)?;
        let mut parts = vec![Vec::new(); all.len()];
        for (pe, message) in all.iter().enumerate().filter(|(pe, _)| self.is_member(*pe as u32)) {
            // The description contains no zero byte, so the first one separates it from the data.
            let end = message.iter().position(|&byte| byte == 0).unwrap_or(message.len());
            if message[..end] != *mine.as_bytes() {
                let theirs = String::from_utf8_lossy(&message[..end]).into_owned();
                return Err(Error::Mismatch {
                    pe: pe as u32,
                    call: call.into(),
                    theirs,
                    mine,
                    site: CallSite::current(),
                });
            }
            parts[pe] = message.get(end + 1..).unwrap_or_default().to_vec();
        }
        Ok((n, parts))
    }

    /// Checks the memory arguments of the kernel call `call`. Returns the context for its launch, and the resources to
    /// keep until it completes.
    pub(crate) fn launch_context(
        &self,
        call: &rushmem_device::kernel::Call,
    ) -> Result<(CtxParts, LaunchResources)> {
        self.wait_for_dropped();
        for &handle in call.handles() {
            self.memory.check(handle).map_err(|why| {
                Error::misuse(
                    "launch",
                    format!(
                        "an argument of {}, {} bytes at {:#x}, {why}",
                        call.name(),
                        handle.bytes,
                        handle.offset
                    ),
                )
            })?;
        }
        let module = self.modules.of(&*self.machine, call.name())?;
        self.watch.set_addresses(|| self.memory.addresses());
        let (mut ctx, table) = self.memory.current();
        if call.uses_per_block() {
            ctx.flags |= ctx_flags::PER_BLOCK;
        }
        Ok((ctx, LaunchResources { table, module }))
    }

    pub(crate) fn modules(&self) -> &Modules {
        &self.modules
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn heap(&self) -> &Region {
        &self.heap
    }

    pub(crate) fn launch_queues(&self) -> &LaunchQueues {
        &self.launch_queues
    }

    pub(crate) fn machine_ref(&self) -> &dyn Machine {
        &*self.machine
    }

    /// Returns the errors that kernels have recorded since the last call, as one error. Losses of peers count only if
    /// the kernel `failed`; otherwise it has handled them.
    ///
    /// Exits the job if a kernel has requested it.
    pub(crate) fn take_errors(&self, failed: bool) -> Result<Option<Error>> {
        let mut page = Box::new(ControlPage::zeroed());
        self.control.read(0, bytemuck::bytes_of_mut(&mut *page))?;
        if page.exit != 0 {
            self.global_exit(page.exit as u8);
        }
        let mut errors = recorded(&page);
        if errors.is_empty() {
            return Ok(None);
        }
        // Kernels know only offsets and WQEs. Complete their records with the names of objects, and the peer that a DC
        // initiator's WQE was for.
        for error in &mut errors {
            error.set_objects(self.memory.names());
            if let Some(pe) = error.lost_team().and_then(|slot| self.membership.lost_member(slot)) {
                error.set_peer(pe);
            }
            if let Some((qpn, index)) = error.failed_wqe()
                && let Some(peer) = self.service.peer_of_wqe(qpn, index)?
            {
                error.set_peer(peer);
            }
        }
        self.waits.known.keep_ended(&errors);
        // There are more claims than records if the page was full.
        let counted = self.state.take_record_count()?.max(errors.len() as u64);
        let zeros = vec![0u8; size_of::<ErrorRecord>() * rushmem_device::abi::RECORDS];
        self.control.write(std::mem::offset_of!(ControlPage, records) as u64, &zeros)?;
        // One failure usually entails deadlines elsewhere. The error nearest to the cause is reported first.
        let counts = |error: &DeviceError| failed || !error.is_survivable();
        let errors = errors.into_iter().filter(counts);
        let Some(mut first) = errors.min_by_key(DeviceError::distance) else { return Ok(None) };
        if first.is_loss() {
            // The lost PE may have been replaced since.
            let lost = first.peer().and_then(|pe| self.membership.past_loss_of(pe));
            if let Some(lost) = lost.or_else(|| self.membership.any_loss()) {
                return Ok(Some(Error::PeerLost(lost)));
            }
        }
        // A deadline may hide the failure of a QP whose error no kernel has seen.
        if first.is_deadline() {
            first.set_failed_qp(self.service.failed_qp()?);
        }
        Ok(Some(Error::Device { first: Box::new(first), others: counted - 1 }))
    }

    pub(crate) fn bootstrap(&self) -> &dyn Bootstrap {
        &*self.bootstrap
    }

    /// Warns if lines that kernels printed were lost because the print buffer was full.
    fn report_lost_lines(&self) {
        let pe = self.my_pe();
        match self.state.lost_lines() {
            Ok(0) => {}
            Ok(lost) => tracing::warn!(
                pe,
                "{lost} lines of kernels found no room; print less, or raise RUSHMEM_PRINT_BUFFER ({} bytes now)",
                self.config.print_buffer.0.map_or(0, |bytes| bytes.0)
            ),
            Err(error) => tracing::debug!(pe, "the number of lost lines cannot be read: {error}"),
        }
    }

    /// Shuts this PE down. Collective if `outcome` is `Ok`. An error is sent to the other PEs, and aborts them.
    ///
    /// # Errors
    /// - The error of `outcome`.
    /// - The error of a launch that the program dropped without waiting for it.
    pub(crate) fn finish<T>(self, outcome: Result<T>) -> Result<T> {
        let outcome = outcome.inspect_err(|error| self.fail(error));
        self.wait_for_dropped();
        self.report_lost_lines();
        self.watch.end();
        self.waits.hide();
        let table = &self.launch_queues.table;
        self.trace.keep_names(self.memory.names());
        self.trace.read_gpu(|mark| LaunchId::from_word(mark).map_or("?", |launch_id| table.name(launch_id)));
        match (outcome, self.launch_queues.unreported.take()) {
            (Ok(value), None) => {
                let waits = self.waits.known.host_call("the end of the job", None);
                self.meet_at_end()?;
                drop(waits);
                // The memory is freed next. Nothing may land in it afterwards.
                let flushed = self.flush();
                self.bootstrap.finish()?;
                flushed.map(|()| value)
            }
            (Ok(_), Some(error)) => {
                self.fail(&error);
                Err(error)
            }
            (Err(error), unreported) => {
                if let Some(also) = unreported.filter(|also| !also.is_aborted()) {
                    let pe = self.my_pe();
                    tracing::error!(pe, "a launch failed, and the program did not wait for it: {also}");
                }
                Err(error)
            }
        }
    }

    /// Aborts the waits of this PE's kernels, and aborts the other PEs with `error` as the reason.
    fn fail(&self, error: &Error) {
        self.watch.job_failed();
        let is_own = matches!(error, Error::App(_) | Error::Panic(_)) && self.waits.known.has_ended();
        if self.membership.fatal().is_none() && (error.is_deadline() || is_own) {
            self.waits.report_deadline(&*self.bootstrap, || self.service.look_at_waits());
        }
        self.end_kernels(format!("PE {} failed: {error}", self.my_pe()));
        self.bootstrap.abort(&error.abort_reason());
    }
}

/// Returns the first PE that reports a failure, and the reason, given the reports of all PEs. The report of a success is empty.
fn first_failure(reports: &[Vec<u8>]) -> Option<(u32, String)> {
    let (pe, why) = (0..).zip(reports).find(|(_, report)| !report.is_empty())?;
    Some((pe, String::from_utf8_lossy(why).into_owned()))
}
