//! The type [`Pe`]: facts about the PE and its peers, its QPs, and the protocol of collective calls.
//!
//! The parts of `Pe` that allocate and register memory, and the bring-up, are in the submodules. Kernel launches,
//! streams, teams and operations are in their own modules of the crate.

mod memory;
mod register;

mod clocks;
mod contexts;
mod costs;
mod kernels;
mod outcome;
mod rings;
mod start;
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

use crate::bootstrap::{Bootstrap, END, Gathered, PeerLost};
use crate::config::{Config, ConnectKind};
use crate::contexts::Contexts;
use crate::launch_queue::{LaunchId, LaunchQueues, LaunchResources};
use crate::modules::Modules;
use crate::teams::Teams;
use crate::test_loop::TestLoop;
use crate::{Error, Result};

pub use self::costs::ControlCosts;
pub use self::kernels::Kernels;
pub use self::memory::Hints;
pub use self::register::{RegisteredBuffer, UnregisterError, Window};

/// One PE (processing element) of a job.
///
/// [`Job::run`](crate::Job::run) passes it to the application. Each PE has a part of the symmetric heap, queues to the
/// other PEs, and a machine for its kernels: a GPU, a share of one, or the native GPU emulator. The methods that move
/// data between PEs are in the trait [`Operations`](crate::Operations).
///
/// # Collective calls
/// All PEs must make the calls marked *collective*, in the same order and with the same arguments. If a PE differs, the
/// others return [`Error::Mismatch`] with its number. A NIC of this PE that fails during the call may keep completed puts
/// away from memory; the call then returns [`Error::Unavailable`].
///
/// # Threads
/// Any thread of the process may call any method. The program must keep the order of collective calls.
///
/// # Examples
/// Every PE reads the number of the next one from its heap:
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
    // Fields drop in order. Kernels end first; memory keys end before their NICs, and QPs before the heap.
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
    /// The number of collective calls so far.
    collectives: Mutex<u64>,
    pub(crate) teams: Teams,
    pub(crate) contexts: Contexts,
    lost: Lost,
    watchdog: Arc<Watchdog>,
    machine: Arc<dyn Machine>,
    bootstrap: Arc<dyn Bootstrap>,
    config: Config,
    /// The names of its NICs, separated by commas.
    nics: String,
    /// Whether kernels may use the software ConnectX.
    uses_soft_nic: bool,
    /// The number of blocks that all PEs can run at once.
    pub(crate) collective_blocks: u32,
    pub(crate) watch: PeWatch,
    pub(crate) trace: PeTrace,
    waits: Arc<Waits>,
}

/// The first PE that was lost, if any.
type Lost = Arc<Mutex<Option<PeerLost>>>;

// `THREAD_LEVEL` promises it.
const _: () = {
    const fn any_thread<T: Send + Sync>() {}
    any_thread::<Pe>();
};

/// # The PE and its job
///
/// Numbers, routes to peers, and calls that concern the whole job.
impl Pe {
    /// Returns the number of this PE, from 0. OpenSHMEM 1.6 section 9.1, `shmem_my_pe`.
    pub fn my_pe(&self) -> u32 {
        self.bootstrap.pe()
    }

    /// Returns the number of PEs in the job. OpenSHMEM 1.6 section 9.1, `shmem_n_pes`.
    pub fn n_pes(&self) -> u32 {
        self.bootstrap.n_pes()
    }

    /// Returns the settings of the job, with the values that the launcher and the bootstrap have filled in.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns a description of the machine that runs this PE's kernels, for users: one line of text.
    pub fn machine(&self) -> String {
        self.machine.describe()
    }

    /// Returns whether kernels run on a GPU. Otherwise they run in the native GPU emulator.
    pub fn is_gpu(&self) -> bool {
        self.machine.is_gpu()
    }

    /// Returns the number of the GPU that runs this PE's kernels, or `None` natively.
    ///
    /// CUDA and other libraries know the GPU by this number, as in `CudaContext::new`. CUDA's `cudaGetDevice`.
    pub fn gpu(&self) -> Option<u32> {
        self.machine.gpu()
    }

    /// Returns a grid that fills this PE's share of the machine, with all blocks running at once.
    ///
    /// Kernels with blocks that wait for each other must not use more blocks. [`Pe::launch_collective`] checks this for
    /// a given kernel. If the software ConnectX accesses GPU memory during kernels, the grid leaves it a multiprocessor.
    pub fn grid(&self) -> LaunchConfig {
        self.machine.grid(self.uses_soft_nic)
    }

    /// Returns the route to each PE, in the order of their numbers: P2P or NIC, and the reason.
    pub fn peer_routes(&self) -> Vec<PeerRoute> {
        self.peer_map.routes(&self.config, &self.nics)
    }

    /// Returns whether the job has a PE with this number. Operations can target every PE of the job, by P2P or by NIC.
    /// OpenSHMEM 1.6 section 9.3.1, `shmem_pe_accessible`.
    pub fn pe_accessible(&self, pe: u32) -> bool {
        pe < self.n_pes()
    }

    /// Returns whether operations can target `object` on `pe`: the PE exists, and the object is allocated.
    ///
    /// OpenSHMEM 1.6 section 9.3.2, `shmem_addr_accessible`. The handle replaces the address, since only symmetric
    /// memory has handles.
    pub fn addr_accessible<T: Pod>(&self, object: SymSlice<T>, pe: u32) -> bool {
        self.pe_accessible(pe) && self.memory.locate(object.handle()).is_ok()
    }

    /// Returns the address of `object` on member `index` of `team`, like [`Pe::ptr`].
    ///
    /// Returns `None` if this PE cannot load and store there, or if the team, the member or the object does not exist.
    /// OpenSHMEM 1.6 section 9.2, `shmem_team_ptr`.
    pub fn team_ptr<T: Pod>(&self, team: Team, object: SymSlice<T>, index: u32) -> Option<*mut T> {
        self.ptr(object, self.team_translate_pe(team, index, Team::WORLD)?)
    }

    /// Returns the number of QPs that are connected now.
    ///
    /// With the setting `connect=lazy`, a QP is connected when a kernel first posts to it. With `connect=eager`, all
    /// QPs are connected at the start of the job.
    pub fn connected_qps(&self) -> usize {
        self.service.connected()
    }

    /// Queries the NICs for the connected QPs: their numbers, states, depths, and connection parameters.
    ///
    /// # Errors
    /// - [`Error::Nic`] if a NIC refuses the query.
    pub fn qps(&self) -> Result<Vec<QpInfo>> {
        self.service.query()
    }

    /// Ends all QPs of the job. New QPs replace them when they are used, so the job can go on after an error has ended
    /// some of them. Collective.
    ///
    /// Every PE must have waited for all its launches and streams, and must launch nothing before the call returns.
    /// Postings that are not complete may or may not have been delivered.
    ///
    /// The call does not change memory, and that includes the state of teams. It does not repair a team with a
    /// collective call that kernels have abandoned.
    ///
    /// # Errors
    /// - [`Error::Misuse`] on all PEs if a launch or stream of one PE has not been waited for. Nothing has changed
    ///   then.
    /// - [`Error::Mismatch`] if a PE makes another collective call.
    /// - [`Error::Bootstrap`] or [`Error::PeerLost`] if a PE does not come, or is lost.
    /// - [`Error::Nic`], [`Error::SoftNic`], [`Error::Memory`] or [`Error::Cuda`] if a NIC or the machine fails.
    /// - The errors of [`Pe::host_sync`].
    #[track_caller]
    pub fn reset_queues(&self) -> Result<()> {
        let _site = call_site::enter();
        self.wait_for_dropped();
        let (_, busy) = self.agree_with("reset_queues", "", &[self.service.is_busy().into()])?;
        if let Some(pe) = busy.iter().position(|busy| *busy == [1]) {
            let what = format!("kernels of PE {pe} may be running; wait for its launches and streams first");
            return Err(Error::misuse("reset_queues", what));
        }
        let reset = self.service.reset();
        // No PE may connect before all have reset.
        self.host_sync()?;
        reset?;
        match self.config.connect {
            ConnectKind::Eager => self.service.connect_all(self.config.bootstrap_timeout),
            ConnectKind::Lazy => Ok(()),
        }
    }

    /// Waits on the host until all PEs have called it. Collective.
    ///
    /// The call uses the bootstrap network. It does not complete communication:
    /// [`barrier_all`](crate::Operations::barrier_all) does. Puts that their PE has completed before, by `quiet`, are
    /// visible afterwards: to [`Pe::read`] and to kernels launched then. All collective calls of the host give that.
    ///
    /// # Errors
    /// - [`Error::Bootstrap`] if a PE does not come, or the job's server is lost.
    /// - [`Error::Unavailable`] if a NIC of this PE fails, so that completed puts may not be in memory.
    #[doc(alias = "barrier")]
    #[track_caller]
    pub fn host_sync(&self) -> Result<()> {
        let _site = call_site::enter();
        let _span = self.trace.call("host_sync");
        self.wait_for_dropped();
        let _call = self.waits.known.host_call("host_sync", Some(Location::caller()));
        self.watch.meet(|| self.bootstrap.barrier("host_sync"))?;
        self.flush()
    }

    /// Waits until puts that peers have completed are in this PE's memory. Each exchange over the bootstrap network needs
    /// it: a message there does not pass through the NIC, so it may overtake data on its way from the NIC to memory.
    fn flush(&self) -> Result<()> {
        let until = Instant::now() + self.config.timeout;
        self.service.flush(|rail| self.memory.ends(self.my_pe(), rail), until)
    }

    /// Sends the bytes `mine` to every PE. Returns the bytes of each PE, in the order of their numbers. Collective.
    ///
    /// The call uses the bootstrap network and is meant for small data. The lengths may differ. It makes completed puts
    /// visible, like [`Pe::host_sync`].
    ///
    /// # Errors
    /// - The errors of [`Pe::host_sync`].
    #[track_caller]
    pub fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let _site = call_site::enter();
        let _span = self.trace.call("allgather");
        self.wait_for_dropped();
        let _call = self.waits.known.host_call("allgather", Some(Location::caller()));
        let all = self.watch.meet(|| self.bootstrap.allgather("allgather", mine))?;
        self.flush()?;
        Ok(Arc::unwrap_or_clone(all))
    }

    /// Ends all processes of the job with exit code `code`, this one first.
    ///
    /// Only this PE makes the call. The other processes end within seconds, even if they wait, and a launcher returns
    /// the code. Nothing is completed or freed. OpenSHMEM 1.6 section 9.1.5, `shmem_global_exit`.
    pub fn global_exit(&self, code: u8) -> ! {
        end_job(&*self.bootstrap, code)
    }

    /// Returns the context that kernels of this PE get, for tests.
    #[doc(hidden)]
    pub fn ctx_parts(&self) -> CtxParts {
        self.memory.current().0
    }

    /// Makes kernels use a wrong key for the heap of `pe`, for tests.
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

    /// Returns the number of the next collective call, from 1. It is the same on all PEs.
    fn next_collective(&self) -> u64 {
        let mut n = lock(&self.collectives);
        *n += 1;
        *n
    }

    /// Exchanges the bytes `mine` for collective call number `n`, which is a part of `call`.
    ///
    /// PEs in different calls must meet, so the exchange has the name of the number. Errors name the call.
    fn allgather_for(&self, n: u64, call: &str, mine: &[u8]) -> Result<Gathered> {
        self.wait_for_dropped();
        let _call = self.waits.known.host_call(call, None);
        let number = format!("collective call {n}");
        let all = self.watch.meet(|| self.bootstrap.allgather(&number, mine));
        let all = all.map_err(|error| error.with_call(&number, call))?;
        self.flush()?;
        Ok(all)
    }

    /// Ends a collective call after all PEs have come. Returns the value of `mine` if all have succeeded.
    ///
    /// # Errors
    /// - The error of `mine`.
    /// - [`Error::Elsewhere`] if only another PE has failed.
    pub(crate) fn conclude<R>(&self, call: &'static str, mine: Result<R>) -> Result<R> {
        let message = mine.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let all = self.allgather_for(self.next_collective(), call, message.as_bytes())?;
        let value = mine?;
        match all.iter().position(|theirs| !theirs.is_empty()) {
            None => Ok(value),
            Some(pe) => {
                let why = String::from_utf8_lossy(&all[pe]).into_owned();
                Err(Error::Elsewhere { pe: pe as u32, call, why, site: CallSite::current() })
            }
        }
    }

    /// Checks that all PEs make this collective call with the same arguments. Returns the number of the call.
    ///
    /// # Errors
    /// - [`Error::Mismatch`] if a PE differs.
    pub(crate) fn agree(&self, call: &str, arguments: &str) -> Result<u64> {
        self.agree_with(call, arguments, &[]).map(|(n, _)| n)
    }

    /// Checks the call like [`Pe::agree`], and exchanges `data`, which may differ. Returns the number of the call and
    /// the data of each PE.
    pub(crate) fn agree_with(&self, call: &str, arguments: &str, data: &[u8]) -> Result<(u64, Vec<Vec<u8>>)> {
        let n = self.next_collective();
        let mine = format!("{call}({arguments})");
        let message = [mine.as_bytes(), b"\0", data].concat();
        let all = self.allgather_for(n, call, &message)?;
        let mut parts = Vec::new();
        for (pe, message) in all.iter().enumerate() {
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
            parts.push(message.get(end + 1..).unwrap_or_default().to_vec());
        }
        Ok((n, parts))
    }

    /// Checks the memory arguments of `call`. Returns the context for its launch, and the resources that the launch
    /// must keep.
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

    /// Takes the errors that kernels have recorded since the last call.
    ///
    /// Ends the job if a kernel has requested it.
    pub(crate) fn take_errors(&self) -> Result<Option<Error>> {
        let mut page = Box::new(ControlPage::zeroed());
        self.control.read(0, bytemuck::bytes_of_mut(&mut *page))?;
        if page.exit != 0 {
            self.global_exit(page.exit as u8);
        }
        let mut errors = recorded(&page);
        if errors.is_empty() {
            return Ok(None);
        }
        for error in &mut errors {
            error.set_objects(self.memory.names());
            if let Some((qpn, index)) = error.failed_wqe()
                && let Some(peer) = self.service.peer_of_wqe(qpn, index)?
            {
                error.set_peer(peer);
            }
        }
        self.waits.known.keep_ended(&errors);
        let counted = self.state.take_record_count()?.max(errors.len() as u64);
        let zeros = vec![0u8; size_of::<ErrorRecord>() * rushmem_device::abi::RECORDS];
        self.control.write(std::mem::offset_of!(ControlPage, records) as u64, &zeros)?;
        let Some(mut first) = errors.into_iter().min_by_key(DeviceError::distance) else { return Ok(None) };
        if first.is_deadline() {
            first.set_failed_qp(self.service.failed_qp()?);
        }
        Ok(Some(Error::Device { first: Box::new(first), others: counted - 1 }))
    }

    pub(crate) fn bootstrap(&self) -> &dyn Bootstrap {
        &*self.bootstrap
    }

    pub(crate) fn lost(&self) -> Option<PeerLost> {
        lock(&self.lost).clone()
    }

    /// Logs a warning if kernels have printed lines without room for them.
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

    /// Ends this PE. Collective if `outcome` is a success. Sends an error to the other PEs, which ends them.
    ///
    /// # Errors
    /// - The error of `outcome`.
    /// - The error of a launch that the program has dropped.
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
                self.bootstrap.barrier(END)?;
                drop(waits);
                // Nothing may land any more once the memory is freed.
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

    /// Ends the waits of this PE's kernels, and sends `error` to the other PEs as the cause.
    fn fail(&self, error: &Error) {
        self.watch.job_failed();
        let is_own = matches!(error, Error::App(_) | Error::Panic(_)) && self.waits.known.has_ended();
        if self.lost().is_none() && (error.is_deadline() || is_own) {
            self.waits.report_deadline(&*self.bootstrap, || self.service.look_at_waits());
        }
        self.end_kernels(format!("PE {} failed: {error}", self.my_pe()));
        self.bootstrap.abort(&error.abort_reason());
    }
}
