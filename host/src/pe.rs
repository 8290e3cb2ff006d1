//! A PE: its heap, its queues, its kernels.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytemuck::{Pod, Zeroable};
use rushmem_device::abi::{ControlPage, CtxParts, ErrorRecord, Header, LAYOUT, MAGIC, VERSION};
use rushmem_device::{Ctx, Error as Code, Sym, SymSlice, Team};

use crate::bootstrap::{Bootstrap, PeerLost};
use crate::config::{Config, ConnectKind, QueuePlace};
use crate::direct::{self, Path, Reach};
use crate::exit::{end_job, end_process};
use crate::heap::Allocator;
use crate::machine::{Grid, Machine, Region};
use crate::provider::Provider;
use crate::queues::{Card, Handshakes, Links, Rail, Service, Shape, StateMap, probe};
use crate::report::recorded;
use crate::teams::{Inbox, Place, Table, Teams, predefined};
use crate::work::{Scratch, Work};
use crate::{Error, Result};

/// One PE of a job. An application gets it from [`Job::run`](crate::Job::run).
///
/// Calls marked *collective* must be made by all PEs, in the same order and with the same arguments; a PE that
/// differs is named in the error of all the others.
pub struct Pe {
    // Fields drop in order: kernels end before the QPs go, and those before the memory that they reach.
    work: Work,
    service: Service,
    state: Arc<StateMap>,
    reach: Reach,
    heap: Region,
    control: Region,
    allocator: Mutex<Allocator>,
    collectives: Mutex<u64>,
    pub(crate) teams: Teams,
    ctx: Ctx,
    lost: Lost,
    machine: Arc<dyn Machine>,
    bootstrap: Arc<dyn Bootstrap>,
    config: Config,
    /// Names of its NICs.
    nics: String,
}

type Lost = Arc<Mutex<Option<PeerLost>>>;

impl Pe {
    /// Brings a PE up: collective.
    pub(crate) fn start(
        config: Config,
        bootstrap: Arc<dyn Bootstrap>,
        machine: Arc<dyn Machine>,
        nics: Vec<Box<dyn Provider>>,
    ) -> Result<Self> {
        let (me, n_pes) = (bootstrap.pe(), bootstrap.n_pes());
        let control = machine.shared(size_of::<ControlPage>() as u64)?;
        let lost = watch(&bootstrap, &control)?;

        let shape = Shape::new(&config, n_pes);
        let first = shape.reserved() + Scratch::BYTES;
        let bytes = config.heap_bytes.0.next_multiple_of(4096) + first;
        let heap = machine.heap(bytes, direct::wanted(&config, n_pes))?;
        let state = Arc::new(StateMap::new(&*machine, shape)?);
        let rails = rails(nics, &*machine, &heap, shape, config.queues)?;
        let names: Vec<String> = rails.iter().map(|rail| rail.nic().name()).collect();
        let nics = names.join(", ");

        let card = Card { rails: rails.iter().map(Rail::card).collect() };
        let cards = exchange(&*bootstrap, &card, &config)?;
        let reach = Reach::new(&config, &*machine, &*bootstrap, &heap)?;
        let handshakes = Arc::new(Handshakes::new(&*machine, shape)?);
        let links = Links::new(rails, cards, Arc::clone(&state), handshakes, shape, me, config.timeout)
            .without(reach.without_nic());
        let peers = reach.descriptors(&config, heap.addr);
        let table = Table::new(&*machine, &heap, shape)?;
        state.write_pe(me, control.addr, config.timeout, &table)?;
        state.describe(&links.descriptors(), &peers)?;
        let work = Work::new(&*machine, shape.reserved())?;
        let inbox = Inbox::default();
        let service = Service::start(links, Arc::clone(&bootstrap), control.clone(), inbox.clone())?;
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
            rails: shape.rails,
            ..Zeroable::zeroed()
        };
        direct::mark_mixed(&mut parts, &peers);
        table.write_parts(&parts)?;
        let place = Place {
            node: config.node.unwrap_or(0),
            local: config.local_pe.unwrap_or(me),
            direct: (0..n_pes).filter(|&pe| pe == me || reach.mapped(pe).is_some()).collect(),
        };
        let members = predefined(&*bootstrap, &place)?;
        let teams = Teams::new(table, inbox, shape.teams, me, members)?;
        bootstrap.barrier("rushmem.up")?;
        tracing::info!(pe = me, n_pes, machine = machine.describe(), nics, queues = %shape, "up");
        Ok(Self {
            work,
            service,
            state,
            reach,
            heap,
            control,
            allocator: Mutex::new(Allocator::new(first, bytes)),
            collectives: Mutex::new(0),
            teams,
            // SAFETY: the addresses are of the regions made above, sized by `shape`, and the PE keeps them.
            ctx: unsafe { Ctx::from_parts(parts) },
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
    pub fn paths(&self) -> Vec<Path> {
        self.reach.paths(&self.config, &self.nics)
    }

    /// True if there is such a PE: every PE of the job can be the target of every operation, by one path or another.
    /// OpenSHMEM 1.6 section 9.2, `shmem_pe_accessible`.
    pub fn accessible(&self, pe: u32) -> bool {
        pe < self.n_pes()
    }

    /// The copy of `object` on `pe` at its address for kernels of this PE, natively the process's own; `None` if it is not
    /// reached by loads and stores, or there is no such PE or object. Its own copy a PE always reaches.
    ///
    /// An address, and no symmetric one: no call takes it for an object. Kernels have [`Ctx::ptr`] instead. OpenSHMEM 1.6
    /// section 9.4.3, `shmem_ptr`.
    pub fn ptr<T: Pod>(&self, object: SymSlice<T>, pe: u32) -> Option<*mut T> {
        if !self.allocator().holds(object.offset(), object.bytes()) {
            return None;
        }
        let base = if pe == self.my_pe() { self.heap.addr } else { self.reach.mapped(pe)? };
        Some(base.add(object.offset()).ptr())
    }

    /// [`Pe::ptr`] of what is member `index` of `team`; `None` also if there is no such member or team. OpenSHMEM 1.6
    /// section 9.4, `shmem_team_ptr`.
    pub fn team_ptr<T: Pod>(&self, team: Team, object: SymSlice<T>, index: u32) -> Option<*mut T> {
        self.ptr(object, self.team_translate_pe(team, index, Team::WORLD)?)
    }

    /// QPs towards peers that exist now: they are made when a kernel first posts to a peer, or all at start, as the
    /// setting `connect` says.
    pub fn connected_qps(&self) -> usize {
        self.service.connected()
    }

    /// Allocates `len` zeroed elements in the symmetric heap of every PE. Collective. OpenSHMEM 1.6 section 9.4,
    /// `shmem_calloc`.
    ///
    /// # Errors
    /// [`Error::HeapFull`]; [`Error::Mismatch`] if another PE asked for something else; [`Error::Bootstrap`] if one
    /// did not come.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<SymSlice<T>> {
        const { assert!(align_of::<T>() <= 128, "objects of the symmetric heap are aligned to 128 bytes") };
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        self.agree("alloc", &format!("{len} x {} bytes", size_of::<T>()))?;
        let offset = self.allocator().alloc(bytes)?;
        self.fill_zero(offset, bytes)?;
        self.bootstrap.barrier("rushmem.alloc")?;
        // SAFETY: the allocator has just given these bytes to this object, aligned for any `T`.
        Ok(unsafe { SymSlice::from_raw(offset, len) })
    }

    /// Allocates one zeroed element in the symmetric heap of every PE. Collective.
    ///
    /// # Errors
    /// As [`Pe::alloc`].
    pub fn alloc_one<T: Pod>(&self) -> Result<Sym<T>> {
        Ok(self.alloc::<T>(1)?.at(0))
    }

    /// Frees an object on every PE. Collective; all PEs have finished their use of it when it returns.
    /// OpenSHMEM 1.6 section 9.4, `shmem_free`.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it is no object, or freed already; [`Error::Mismatch`] and [`Error::Bootstrap`] as
    /// [`Pe::alloc`].
    pub fn free<T: Pod>(&self, object: SymSlice<T>) -> Result<()> {
        self.agree("free", &format!("the object at {:#x}", object.offset()))?;
        match self.allocator().free(object.offset()) {
            Some(_) => Ok(()),
            None => {
                let what = format!("{object:?} is not an object, or has been freed");
                Err(Error::Misuse { call: "free", what })
            }
        }
    }

    /// Writes this PE's own part of an object; it is visible to kernels launched afterwards.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the lengths differ or the object is not allocated.
    pub fn write<T: Pod>(&self, object: SymSlice<T>, data: &[T]) -> Result<()> {
        self.check("write", object, data.len())?;
        self.heap.write(object.offset(), bytemuck::cast_slice(data))
    }

    /// Reads this PE's own part of an object.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the object is not allocated.
    pub fn read<T: Pod>(&self, object: SymSlice<T>) -> Result<Vec<T>> {
        self.check("read", object, object.len())?;
        let mut data = vec![T::zeroed(); object.len()];
        self.heap.read(object.offset(), bytemuck::cast_slice_mut(&mut data))?;
        Ok(data)
    }

    /// Reads this PE's own copy of an element.
    ///
    /// # Errors
    /// As [`Pe::read`].
    pub fn read_one<T: Pod>(&self, object: Sym<T>) -> Result<T> {
        Ok(self.read(object.as_slice())?[0])
    }

    /// Waits for all PEs, on the host. Collective.
    ///
    /// # Errors
    /// [`Error::Bootstrap`], [`Error::PeerLost`].
    pub fn barrier(&self) -> Result<()> {
        Ok(self.bootstrap.barrier("rushmem.barrier")?)
    }

    /// Gives `mine` to every PE and returns what each one gave, in the order of their numbers. Collective; through
    /// the host's bootstrap connections, for small things.
    ///
    /// # Errors
    /// As [`Pe::barrier`].
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
        self.pe_accessible(pe) && self.allocator().holds(object.offset(), object.bytes())
    }

    /// The context that kernels of this PE get.
    #[doc(hidden)]
    pub fn ctx(&self) -> Ctx {
        self.ctx
    }

    /// Makes kernels use a wrong key for the heap of `pe`, for tests.
    #[doc(hidden)]
    pub fn corrupt_rkey(&self, pe: u32) -> Result<()> {
        self.state.corrupt_rkey(pe)
    }

    fn allocator(&self) -> std::sync::MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill_zero(&self, offset: u64, bytes: u64) -> Result<()> {
        let zeros = vec![0; bytes.min(1 << 20) as usize];
        let mut at = 0;
        while at < bytes {
            let len = zeros.len().min((bytes - at) as usize);
            self.heap.memory.write(offset + at, &zeros[..len])?;
            at += len as u64;
        }
        Ok(self.heap.memory.flush()?)
    }

    pub(crate) fn check<T: Pod>(&self, call: &'static str, object: SymSlice<T>, len: usize) -> Result<()> {
        let misuse = |what| Err(Error::Misuse { call, what });
        if len != object.len() {
            return misuse(format!("{len} elements for an object of {}", object.len()));
        }
        if !self.allocator().holds(object.offset(), object.bytes()) {
            return misuse(format!("{object:?} is not an object, or has been freed"));
        }
        Ok(())
    }

    /// Proves that all PEs make this collective call with the same arguments.
    fn agree(&self, call: &str, arguments: &str) -> Result<()> {
        self.agree_with(call, arguments, &[]).map(drop)
    }

    /// As [`Pe::agree`]; returns what each PE gave along, which may differ.
    pub(crate) fn agree_with(&self, call: &str, arguments: &str, along: &[u8]) -> Result<Vec<Vec<u8>>> {
        let n = {
            let mut n = self.collectives.lock().unwrap_or_else(PoisonError::into_inner);
            *n += 1;
            *n
        };
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
        Ok(all)
    }

    /// Whether all of it is an object, the runtime's own included.
    pub(crate) fn has<T: Pod>(&self, object: SymSlice<T>) -> bool {
        let (offset, bytes) = (object.offset(), object.bytes());
        self.work.scratch.holds(offset, bytes) || self.allocator().holds(offset, bytes)
    }

    pub(crate) fn heap(&self) -> &Region {
        &self.heap
    }

    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    pub(crate) fn service(&self) -> &Service {
        &self.service
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
        let errors = recorded(&page, true);
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
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        slot.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(peer);
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
    place: QueuePlace,
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
fn exchange(bootstrap: &dyn Bootstrap, mine: &Card, config: &Config) -> Result<Vec<Card>> {
    let settings = format!(
        "heap_bytes={} sq_depth={} queue_memory={} nics_per_pe={} qps_per_peer={} block_qps={} exclusive_qps={} \
         peer_path={:?} direct_group={} teams={} team_scratch={}",
        config.heap_bytes.0,
        config.sq_depth.get(),
        config.queue_memory.0,
        config.nics_per_pe,
        config.qps_per_peer,
        config.block_qps,
        config.exclusive_qps,
        config.peer_path,
        config.direct_group,
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
    let parse = |(pe, bytes): (usize, &Vec<u8>)| -> Result<Card> {
        let card: Card = serde_json::from_slice(bytes).map_err(|_| malformed(pe))?;
        if card.rails.len() == mine.rails.len() { Ok(card) } else { Err(malformed(pe)) }
    };
    let cards: Vec<Card> = cards.iter().enumerate().map(parse).collect::<Result<_>>()?;
    let pairs =
        |card: &Card| card.rails.iter().zip(&mine.rails).position(|(a, b)| a.port.kind != b.port.kind);
    match cards.iter().enumerate().find_map(|(pe, card)| Some((pe, pairs(card)?))) {
        None => Ok(cards),
        Some((pe, rail)) => {
            let kind = |card: &Card| card.rails[rail].port.kind.to_string();
            Err(Error::MixedNics { pe: pe as u32, theirs: kind(&cards[pe]), mine: kind(mine) })
        }
    }
}
