//! A PE: its heap, its queues, its kernels.

mod memory;
mod register;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytemuck::{Pod, Zeroable};
use rushmem_base::lock;
use rushmem_device::abi::{ControlPage, CtxParts, ErrorRecord, Header, LAYOUT, MAGIC, VERSION, ctx_flags};
use rushmem_device::{Error as Code, LocalBuffer, SymSlice, Team};

use crate::bootstrap::{self, Bootstrap, PeerLost};
use crate::config::{Config, ConnectKind, QueueMemory};
use crate::contexts::Contexts;
use crate::exit::{end_job, end_process};
use crate::launch_queue::{HostScratch, LaunchQueues, LaunchResources};
use crate::machine::{Grid, Machine, Region};
use crate::memory::Memory;
use crate::modules::Modules;
use crate::p2p::{self, PeerMap, PeerRoute};
use crate::provider::Provider;
use crate::queues::{
    Connections, Handshakes, PeNics, QpInfo, Rail, RetryPolicy, Service, Shape, StateMap, probe,
};
use crate::report::recorded;
use crate::teams::{Inbox, PeLocation, TeamTable, Teams, predefined};
use crate::{Error, Result};

/// One PE of a job. An application gets it from [`Job::run`](crate::Job::run).
///
/// All PEs must make the calls marked *collective*, in the same order and with the same arguments. The errors of the other
/// PEs name a PE that differs.
pub struct Pe {
    // Fields drop in order: kernels end before all that they use goes, keys before the NICs that they are of, the QPs
    // before the heap that they reach.
    launch_queues: LaunchQueues,
    modules: Modules,
    memory: Memory,
    service: Service,
    state: Arc<StateMap>,
    peer_map: PeerMap,
    heap: Region,
    control: Region,
    collectives: Mutex<u64>,
    pub(crate) teams: Teams,
    pub(crate) contexts: Contexts,
    lost: Lost,
    machine: Arc<dyn Machine>,
    bootstrap: Arc<dyn Bootstrap>,
    config: Config,
    /// Names of its NICs.
    nics: String,
}

pub use self::memory::Hints;
pub use self::register::{RegisteredBuffer, UnregisterError, Window};

type Lost = Arc<Mutex<Option<PeerLost>>>;

impl Pe {
    /// Brings a PE up: collective.
    pub(crate) fn start(
        config: Config,
        bootstrap: Arc<dyn Bootstrap>,
        machine: Arc<dyn Machine>,
        modules: Modules,
        nics: Vec<Box<dyn Provider>>,
    ) -> Result<Self> {
        let (me, n_pes) = (bootstrap.pe(), bootstrap.n_pes());
        let control = machine.shared(size_of::<ControlPage>() as u64)?;
        let lost = watch(&bootstrap, &control)?;

        let shape = Shape::new(&config, n_pes);
        let first = shape.reserved() + HostScratch::BYTES;
        let bytes = config.heap_bytes.0.next_multiple_of(4096) + first;
        let heap = p2p::heap(&config, &*machine, bytes, n_pes)?;
        let state = Arc::new(StateMap::new(&*machine, shape)?);
        let rails = rails(nics, &*machine, &heap, shape, config.queues)?;
        let names: Vec<String> = rails.iter().map(|rail| rail.nic().name()).collect();
        let nics = names.join(", ");

        let card = PeNics { rails: rails.iter().map(Rail::info).collect() };
        let cards = exchange(&*bootstrap, &card, &config)?;
        let peer_map = PeerMap::new(&config, &*machine, &*bootstrap, &heap)?;
        let handshakes = Arc::new(Handshakes::new(&*machine, shape)?);
        let connections = Connections::new(
            rails,
            cards,
            Arc::clone(&state),
            handshakes,
            shape,
            me,
            RetryPolicy::new(&config),
        )
        .without_p2p_peers(peer_map.without_nic());
        let peers = peer_map.descriptors(&config, heap.addr);
        let table = TeamTable::new(&*machine, &heap, shape)?;
        state.write_pe(me, control.addr, config.timeout)?;
        state.describe_qps(&connections.descriptors())?;
        state.describe_peers(&peers)?;
        let flags = if connections.on_gpu() { ctx_flags::GPU_QUEUES } else { 0 };
        let launch_queues = LaunchQueues::new(&*machine, shape.reserved())?;
        let inbox = Inbox::default();
        let service = Service::start(connections, Arc::clone(&bootstrap), control.clone(), inbox.clone())?;
        if config.connect == ConnectKind::Eager {
            service.connect_all(config.bootstrap_timeout)?;
        }

        let mut parts = CtxParts {
            header: Header { magic: MAGIC, version: VERSION, layout: LAYOUT, control: control.addr },
            state: state.device_state(),
            heap: heap.addr,
            heap_bytes: bytes,
            peers: state.peer_table(),
            qps: state.qp_table(),
            pe: me,
            n_pes,
            first_set: 0,
            n_sets: shape.shared_sets * shape.rails,
            block_sets: shape.block_sets,
            exclusive_sets: shape.exclusive_sets,
            context_sets: shape.context_sets,
            rails: shape.rails,
            flags,
            ..Zeroable::zeroed()
        };
        peer_map.describe(&mut parts, &peers);
        table.describe(&mut parts);
        let place = PeLocation {
            node: config.node.unwrap_or(0),
            local: config.local_pe.unwrap_or(me),
            direct: (0..n_pes).filter(|&pe| pe == me || peer_map.mapped(pe).is_some()).collect(),
        };
        let members = predefined(&*bootstrap, &place)?;
        let teams = Teams::new(table, inbox, shape.teams, me, members)?;
        let max = config.heap_max.0.map(|max| max.0);
        let job = job_number(&*bootstrap)?;
        let memory = Memory::new(heap.clone(), first, parts, job, max, Arc::clone(&machine))?;
        bootstrap.barrier("rushmem.up")?;
        tracing::info!(pe = me, n_pes, machine = machine.describe(), nics, queues = %shape, "up");
        Ok(Self {
            launch_queues,
            modules,
            memory,
            service,
            state,
            peer_map,
            heap,
            control,
            collectives: Mutex::new(0),
            teams,
            contexts: Contexts::new(shape),
            lost,
            machine,
            bootstrap,
            config,
            nics,
        })
    }

    /// The number of this PE, from 0.
    pub fn my_pe(&self) -> u32 {
        self.bootstrap.pe()
    }

    /// PEs in the job.
    pub fn n_pes(&self) -> u32 {
        self.bootstrap.n_pes()
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What executes this PE's kernels, as a line for users.
    pub fn machine(&self) -> String {
        self.machine.describe()
    }

    /// True if kernels run on a GPU.
    pub fn is_gpu(&self) -> bool {
        self.machine.is_gpu()
    }

    /// A grid that fills this PE's share of the machine, and whose blocks all run at once: kernels that wait for
    /// each other must not be launched with more.
    pub fn grid(&self) -> Grid {
        self.machine.grid()
    }

    /// How each PE is reached, and why.
    pub fn peer_routes(&self) -> Vec<PeerRoute> {
        self.peer_map.routes(&self.config, &self.nics)
    }

    /// True if there is such a PE: every PE of the job can be the target of every operation, by one path or another.
    /// OpenSHMEM 1.6 section 9.2, `shmem_pe_accessible`.
    pub fn accessible(&self, pe: u32) -> bool {
        pe < self.n_pes()
    }

    /// [`Pe::ptr`] of what is member `index` of `team`; `None` also if there is no such member or team. OpenSHMEM 1.6
    /// section 9.2, `shmem_team_ptr`.
    pub fn team_ptr<T: Pod>(&self, team: Team, object: SymSlice<T>, index: u32) -> Option<*mut T> {
        self.ptr(object, self.team_translate_pe(team, index, Team::WORLD)?)
    }

    /// QPs towards peers that exist now: they are made when a kernel first posts to a peer, or all at start, as the
    /// setting `connect` says.
    pub fn connected_qps(&self) -> usize {
        self.service.connected()
    }

    /// What the NICs say of those QPs: number, state, depth, and the fabric's parameters in force.
    ///
    /// # Errors
    /// [`Error::Nic`] if one refuses to tell.
    pub fn qps(&self) -> Result<Vec<QpInfo>> {
        self.service.query()
    }

    /// Ends all QPs of the job, and lets them be made anew as they are used: after an error that has ended some of them, the
    /// job can go on. Collective. All launches and streams of all PEs have been waited for, and nothing is launched before it
    /// returns; what was posted and is not complete may have arrived or not. Memory keeps what it holds, the words of teams
    /// included: a collective call of kernels that was given up halfway is not mended by this.
    ///
    /// # Errors
    /// [`Error::Misuse`] on all PEs, if a launch or a stream of one of them has not been waited for; nothing has changed then.
    /// [`Error::Mismatch`] if a PE calls something else, [`Error::Bootstrap`], [`Error::PeerLost`]; what a NIC or the machine
    /// refuses.
    pub fn reset_queues(&self) -> Result<()> {
        let (_, busy) = self.agree_with("reset_queues", "", &[self.service.is_busy().into()])?;
        if let Some(pe) = busy.iter().position(|busy| *busy == [1]) {
            let what = format!("kernels of PE {pe} may run: wait for its launches and streams first");
            return Err(Error::Misuse { call: "reset_queues", what });
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
    /// It goes through the bootstrap and neither completes nor orders communication: [`barrier_all`](crate::Operations::barrier_all) does both.
    ///
    /// # Errors
    /// - [`Error::Bootstrap`] if a PE does not come, or the job's server is lost.
    pub fn host_sync(&self) -> Result<()> {
        Ok(self.bootstrap.barrier("rushmem.barrier")?)
    }

    /// Sends `mine` to every PE and returns the bytes of each PE, in the order of their numbers. Collective.
    ///
    /// It goes through the bootstrap and is meant for small data.
    ///
    /// # Errors
    /// - [`Error::Bootstrap`] if a PE does not come, or the job's server is lost.
    pub fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(self.bootstrap.allgather("rushmem.allgather", mine)?)
    }

    /// Ends all processes of the job with `code`, without their help, and this one first. Whatever they wait for, they
    /// end within seconds, and a launcher returns the code. Nothing is completed or freed. OpenSHMEM 1.6 section 9.1.5,
    /// `shmem_global_exit`.
    pub fn global_exit(&self, code: u8) -> ! {
        end_job(&*self.bootstrap, code)
    }

    /// Whether there is a PE with this number: every one of the job can be reached. OpenSHMEM 1.6 section 9.3.1,
    /// `shmem_pe_accessible`.
    pub fn pe_accessible(&self, pe: u32) -> bool {
        pe < self.n_pes()
    }

    /// Whether `pe` exists and the object is allocated, so that it can be the target of communication there. OpenSHMEM
    /// 1.6 section 9.3.2, `shmem_addr_accessible`; there is no handle of anything but symmetric memory to ask about.
    pub fn addr_accessible<T: Pod>(&self, object: SymSlice<T>, pe: u32) -> bool {
        self.pe_accessible(pe) && self.memory.locate(object.handle()).is_ok()
    }

    /// Returns the context that kernels of this PE get, for tests.
    #[doc(hidden)]
    pub fn ctx_parts(&self) -> CtxParts {
        self.memory.current().0
    }

    /// Makes kernels use a wrong key for the heap of `pe`, for tests.
    #[doc(hidden)]
    pub fn corrupt_rkey(&self, pe: u32) -> Result<()> {
        self.state.corrupt_rkey(pe)
    }

    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// The number of the next collective call, from 1; the same on all PEs.
    fn next_collective(&self) -> u64 {
        let mut n = lock(&self.collectives);
        *n += 1;
        *n
    }

    fn next_tag(&self) -> String {
        format!("rushmem.{}", self.next_collective())
    }

    /// Ends a collective call: what this PE has if all have succeeded, else an error on every one. Nobody returns before
    /// all have come.
    pub(crate) fn conclude<R>(&self, call: &'static str, mine: Result<R>) -> Result<R> {
        let told = mine.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let all = self.bootstrap.allgather(&self.next_tag(), told.as_bytes())?;
        let value = mine?;
        match all.iter().position(|theirs| !theirs.is_empty()) {
            None => Ok(value),
            Some(pe) => {
                let why = String::from_utf8_lossy(&all[pe]).into_owned();
                Err(Error::Elsewhere { pe: pe as u32, call, why })
            }
        }
    }

    /// Proves that all PEs make this collective call with the same arguments; its number.
    pub(crate) fn agree(&self, call: &str, arguments: &str) -> Result<u64> {
        self.agree_with(call, arguments, &[]).map(|(n, _)| n)
    }

    /// As [`Pe::agree`]; returns what each PE gave along, which may differ.
    pub(crate) fn agree_with(
        &self,
        call: &str,
        arguments: &str,
        along: &[u8],
    ) -> Result<(u64, Vec<Vec<u8>>)> {
        let n = self.next_collective();
        let mine = format!("{call}({arguments})");
        let letter = [mine.as_bytes(), b"\0", along].concat();
        let mut all = self.bootstrap.allgather(&format!("rushmem.{n}"), &letter)?;
        for (pe, letter) in all.iter_mut().enumerate() {
            let end = letter.iter().position(|&byte| byte == 0).unwrap_or(letter.len());
            if letter[..end] != *mine.as_bytes() {
                let theirs = String::from_utf8_lossy(&letter[..end]).into_owned();
                return Err(Error::Mismatch { pe: pe as u32, call: call.into(), theirs, mine });
            }
            letter.drain(..(end + 1).min(letter.len()));
        }
        Ok((n, all))
    }

    /// The context for a launch with these arguments, and what the launch must keep.
    pub(crate) fn launch_context(
        &self,
        call: &rushmem_device::kernel::Call,
    ) -> Result<(CtxParts, LaunchResources)> {
        for &handle in call.handles() {
            self.memory.check(handle).map_err(|why| Error::Misuse {
                call: "launch",
                what: format!(
                    "an argument of {}, {} bytes at {:#x}, {why}",
                    call.name(),
                    handle.bytes,
                    handle.offset
                ),
            })?;
        }
        let module = self.modules.of(&*self.machine, call.name())?;
        let (ctx, table) = self.memory.current();
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

    /// How long a kernel may go on after its last sign: every call in it has a deadline, but it may make many.
    pub(crate) fn patience(&self) -> Duration {
        self.config.timeout.saturating_mul(1000)
    }

    /// What kernels have recorded since the last look.
    pub(crate) fn take_errors(&self) -> Result<Option<Error>> {
        let mut page = Box::new(ControlPage::zeroed());
        self.control.read(0, bytemuck::bytes_of_mut(&mut *page))?;
        if page.exit != 0 {
            self.global_exit(page.exit as u8);
        }
        let errors = recorded(&page);
        if errors.is_empty() {
            return Ok(None);
        }
        let counted = self.state.take_record_count()?.max(errors.len() as u64);
        let zeros = vec![0u8; size_of::<ErrorRecord>() * rushmem_device::abi::RECORDS];
        self.control.write(std::mem::offset_of!(ControlPage, records) as u64, &zeros)?;
        // The cause before its consequences.
        let first = errors.iter().find(|e| e.code() != Some(Code::Aborted)).unwrap_or(&errors[0]);
        Ok(Some(Error::Device { first: Box::new(*first), others: counted - 1 }))
    }

    pub(crate) fn bootstrap(&self) -> &dyn Bootstrap {
        &*self.bootstrap
    }

    pub(crate) fn lost(&self) -> Option<PeerLost> {
        lock(&self.lost).clone()
    }

    /// Ends this PE: collective if `outcome` is good; tells the others why if it is not.
    pub(crate) fn finish<T>(self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Ok(value) => {
                self.bootstrap.barrier("rushmem.down")?;
                self.bootstrap.finish()?;
                Ok(value)
            }
            Err(error) => {
                self.bootstrap.abort(&error.to_string());
                Err(error)
            }
        }
    }
}

/// A number that PE 0 has drawn for the job.
fn job_number(bootstrap: &dyn Bootstrap) -> Result<u32> {
    let mut mine = [0; 4];
    getrandom::fill(&mut mine).map_err(|error| bootstrap::Error::Random(error.to_string()))?;
    let all = bootstrap.allgather("rushmem.job", &mine)?;
    let drawn = all.first().and_then(|bytes| bytes.as_slice().try_into().ok()).unwrap_or(mine);
    Ok(u32::from_le_bytes(drawn))
}

/// Sets the control page's abort word when a PE is lost, and remembers which; ends the process if that PE ends the job.
fn watch(bootstrap: &Arc<dyn Bootstrap>, control: &Region) -> Result<Lost> {
    let lost = Lost::default();
    // Weakly: the bootstrap's thread may keep the callback for longer than the PE has its memory.
    let (slot, page, connection) =
        (Arc::clone(&lost), Arc::downgrade(&control.memory), Arc::downgrade(bootstrap));
    bootstrap.on_peer_lost(Box::new(move |peer| {
        tracing::warn!("{peer}");
        if let Some(code) = peer.exit {
            // Where the job's server is, the others hear of it first.
            match connection.upgrade() {
                Some(connection) => end_job(&*connection, code),
                None => end_process(code),
            }
        }
        lock(&slot).get_or_insert(peer);
        let Some(page) = page.upgrade() else { return };
        let abort = std::mem::offset_of!(ControlPage, abort) as u64;
        if let Err(error) = page.write(abort, bytemuck::bytes_of(&1u32)).and_then(|()| page.flush()) {
            tracing::error!("the kernels cannot be told: {error}");
        }
    }))?;
    Ok(lost)
}

/// As many NICs as the settings ask for, each of which has passed its probe. One that has not makes room for the next.
fn rails(
    nics: Vec<Box<dyn Provider>>,
    machine: &dyn Machine,
    heap: &Region,
    shape: Shape,
    place: QueueMemory,
) -> Result<Vec<Rail>> {
    let mut rails = Vec::new();
    let found = nics.len();
    let mut last = None;
    for nic in nics {
        if rails.len() == shape.rails as usize {
            break;
        }
        match Rail::new(nic, machine, heap, shape, place).and_then(|rail| probe(&rail, heap).map(|()| rail)) {
            Ok(rail) => rails.push(rail),
            Err(error) => {
                tracing::warn!("not used: {error}");
                last = Some(error);
            }
        }
    }
    if rails.len() == shape.rails as usize {
        return Ok(rails);
    }
    let why =
        || format!("there are {found} for this PE; lower RUSHMEM_NICS_PER_PE, or name more in RUSHMEM_NIC");
    Err(last.unwrap_or_else(|| Error::Unavailable { what: format!("{} NICs", shape.rails), why: why() }))
}

/// Tells the others this PE's card, and returns all of them. Settings that must be equal travel along.
fn exchange(bootstrap: &dyn Bootstrap, mine: &PeNics, config: &Config) -> Result<Vec<PeNics>> {
    let settings = format!(
        "heap_bytes={} heap_max={:?} sq_depth={} queue_memory={} nics_per_pe={} qps_per_peer={} block_qps={} \
         exclusive_qps={} context_qps={} peer_path={:?} p2p_group={} teams={} team_scratch={}",
        config.heap_bytes.0,
        config.heap_max.0,
        config.sq_depth.get(),
        config.queue_memory.0,
        config.nics_per_pe,
        config.qps_per_peer,
        config.block_qps,
        config.exclusive_qps,
        config.context_qps,
        config.peer_path,
        config.p2p_group,
        config.teams,
        config.team_scratch.0
    );
    let all = bootstrap.allgather("rushmem.settings", settings.as_bytes())?;
    if let Some(pe) = all.iter().position(|theirs| *theirs != settings.as_bytes()) {
        let theirs = String::from_utf8_lossy(&all[pe]).into_owned();
        return Err(Error::Mismatch { pe: pe as u32, call: "start".into(), theirs, mine: settings });
    }
    let malformed =
        |pe: usize| Error::Misuse { call: "start", what: format!("PE {pe} sent a malformed card") };
    let card = serde_json::to_vec(mine).map_err(|_| malformed(bootstrap.pe() as usize))?;
    let cards = bootstrap.allgather("rushmem.cards", &card)?;
    let parse = |(pe, bytes): (usize, &Vec<u8>)| -> Result<PeNics> {
        let card: PeNics = serde_json::from_slice(bytes).map_err(|_| malformed(pe))?;
        if card.rails.len() == mine.rails.len() { Ok(card) } else { Err(malformed(pe)) }
    };
    let cards: Vec<PeNics> = cards.iter().enumerate().map(parse).collect::<Result<_>>()?;
    let pairs =
        |card: &PeNics| card.rails.iter().zip(&mine.rails).position(|(a, b)| a.port.kind != b.port.kind);
    match cards.iter().enumerate().find_map(|(pe, card)| Some((pe, pairs(card)?))) {
        None => Ok(cards),
        Some((pe, rail)) => {
            let kind = |card: &PeNics| card.rails[rail].port.kind.to_string();
            Err(Error::MixedNics { pe: pe as u32, theirs: kind(&cards[pe]), mine: kind(mine) })
        }
    }
}
