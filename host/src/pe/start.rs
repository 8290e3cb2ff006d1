//! Starts a PE: its machine, its links to peers, its queues and its teams.
//!
//! Several steps are collective. All PEs must take them in the order of [`Pe::start`].

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::mem::offset_of;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytemuck::Zeroable;
use rushmem_base::lock;
use rushmem_device::abi::{
    ControlPage, CtxParts, DevAddr, Header, LAYOUT, LOST_TEAMS, MAGIC, VERSION, ctx_flags,
};
use rushmem_error::ObjectNames;
use rushmem_error::call_site::CallSite;
use rushmem_fabric::provider::{NicKind, Provider, WakeNic};
use rushmem_fabric::queues::{
    Connections, Deadlines, Guards, Handshakes, Pace, PeNics, Rail, RailSetup, RetryPolicy, Service, Shape,
    StateMap, open_rail, set_abort_word,
};
use rushmem_machine::waits::{Known, Waits};
use rushmem_machine::{Limits, Machine, Output, Printer, Region, Watchdog, end_job, end_process};
use rushmem_memory::Memory;
use rushmem_memory::p2p::{self, FirstHeap, PeerMap};
use rushmem_observe::sanitize::PeWatch;
use rushmem_observe::trace::{PeTrace, RingSize};

use super::clocks::{self, ClockPart};
use super::rings::MachineRings;
use super::{Pe, summary};
use crate::bootstrap::{self, Bootstrap, PeerLost, START, VACANT};
use crate::config::{self, Config, ConnectKind, SqDepth, Switch};
use crate::contexts::Contexts;
use crate::launch_queue::{HostScratch, LaunchQueues};
use crate::membership::{Membership, unsupported};
use crate::modules::Modules;
use crate::teams::{Inbox, PeLocation, TeamTable, Teams, predefined};
use crate::test_loop::TestLoop;
use crate::{Error, Result};

/// The memory that a PE allocates before it knows its peers.
struct PeMemory {
    state: Arc<StateMap>,
    heap: FirstHeap,
    /// Size of the heap in bytes, including the `reserved` ones.
    heap_bytes: u64,
    /// Number of bytes at the start of the heap that the runtime uses for itself.
    reserved: u64,
    shape: Shape,
}

impl Pe {
    /// Starts a PE: sets up its memory, queues, teams and service thread. Collective. Returns `None` for a vacant PE, which has left
    /// the job.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if too few of `nics` pass their probe, or if a heap of this node cannot be mapped.
    /// - [`Error::Mismatch`] if the settings of a PE differ, [`Error::MixedNics`] if the kinds of NICs differ.
    /// - [`Error::Bootstrap`] if a PE never takes a collective step.
    /// - The errors of the machine and of the NICs.
    pub(crate) fn start(
        config: Config,
        bootstrap: Arc<dyn Bootstrap>,
        machine: Arc<dyn Machine>,
        modules: Modules,
        nics: Vec<Box<dyn Provider>>,
        (watch, trace): (PeWatch, PeTrace),
        output: Output,
    ) -> Result<Option<Self>> {
        // Long, so the order of all collective steps can be read in one place.
        let (me, n_pes) = (bootstrap.pe(), bootstrap.n_pes());
        let control = machine.shared(size_of::<ControlPage>() as u64)?;
        let watchdog = Watchdog::new(me, Limits::new(&config, !machine.is_gpu()));
        // Early, to learn of PEs that are lost during start-up.
        let membership = watch_peers(&bootstrap, &control, &watchdog, &watch)?;
        let wake_nics = link_nics(&*machine, &nics);
        // `rails` drop before `opened`, so no QP outlives the heap.
        let (opened, rails) = open_machine(&config, &*machine, &*bootstrap, nics)?;
        let shape = opened.shape;
        let nics = rails.iter().map(|rail| rail.nic().name()).collect::<Vec<_>>().join(", ");
        let links = link_peers(&config, &*machine, &*bootstrap, &opened, rails)?;
        let heap = opened.heap.region.clone();
        let table = TeamTable::new(&*machine, &heap, shape)?;
        let printer = Printer::new(&*machine, me, config.print_buffer.0.map_or(0, |bytes| bytes.0), output)?;
        let print = printer.as_ref().map_or(DevAddr(0), Printer::addr);
        let trace_area = trace.prepare_gpu(RingSize::within(config.trace_ring.0), |bytes| {
            MachineRings::boxed(&machine, bytes)
        })?;
        let parts = CtxParts { trace: trace_area, ..context_parts(&opened, &control, me, n_pes) };
        let parts = describe(&config, &opened, &links, &table, parts, print)?;
        let Links { peer_map, connections, uses_soft_nic, .. } = links;

        let launch_queues = LaunchQueues::new(&*machine, shape.reserved())?;
        let inbox = Inbox::default();
        let names = ObjectNames::default();
        let known = Known::new(me, trace.clone(), Arc::clone(&watchdog), control.clone(), names.clone());
        let waits = Waits::new(known, n_pes, config.pes_on_node());
        let known = membership.clone();
        let is_live = config.membership == config::Membership::Live;
        let is_lost = is_live.then(|| Box::new(move |pe| known.loss_of(pe).is_some()) as Box<_>);
        let guards = Guards {
            bootstrap: Arc::clone(&bootstrap),
            control: control.clone(),
            watchdog: Arc::clone(&watchdog),
            waits: Arc::clone(&waits),
            is_lost,
            printer,
        };
        // This also starts to receive messages. Those for teams stay in the inbox until a team call needs them.
        let service = start_service(&config, connections, guards, &inbox, &*machine, wake_nics)?;
        let teams = make_teams(&config, &*bootstrap, &peer_map, (table, inbox), shape)?;
        let blocks = machine.grid(uses_soft_nic).blocks();
        let (job, collective_blocks) = job_facts(&*bootstrap, &trace, blocks)?;
        let heap_max = config.heap_max.0.map(|max| max.0);
        let memory =
            Memory::new(heap.clone(), opened.reserved, parts, job, heap_max, Arc::clone(&machine), names)?;
        end_on_deadlock(&watch, &bootstrap, &control, &watchdog);
        watch.set_addresses(|| memory.addresses());
        for (team, members) in teams.predefined() {
            watch.add_team(team, &members);
            waits.known.add_team(team, &members);
            membership.add_team(team, &members);
        }
        // No kernel may post to a peer whose service, teams or memory are not ready.
        bootstrap.barrier(START)?;
        let replaces = bootstrap.replaces();
        let epoch = match config.membership {
            config::Membership::Fixed => None,
            // The others take this process in when they choose to.
            config::Membership::Live if replaces => Some(bootstrap.form_epoch_within(Duration::MAX)?),
            config::Membership::Live => Some(bootstrap.form_epoch_within(config.bootstrap_timeout)?),
        };
        if !replaces && me >= n_pes - config.vacant_pes {
            bootstrap.abort(VACANT);
            return Ok(None);
        }
        if config.stats == Switch::On {
            waits.show(job);
        }
        tracing::info!(pe = me, n_pes, machine = machine.describe(), nics, queues = %shape, "up");
        let pe = Self {
            launch_queues,
            modules,
            memory,
            service,
            state: opened.state,
            shape,
            peer_map,
            heap,
            control,
            test_loop: TestLoop::default(),
            collectives: Mutex::new(0),
            teams,
            contexts: Contexts::new(shape),
            membership,
            watchdog,
            machine,
            bootstrap,
            config,
            nics,
            uses_soft_nic,
            collective_blocks,
            watch,
            trace,
            waits,
        };
        match epoch {
            Some(epoch) if replaces => pe.join(epoch)?,
            Some(epoch) => {
                pe.membership.begin(epoch, me);
                if pe.config.vacant_pes > 0 {
                    // The next epoch lacks the vacant PEs, whose processes do not form it.
                    pe.agree_on_members("the start of the job", false)?;
                }
            }
            None => {}
        }
        Ok(Some(pe))
    }
}

/// The routes and connections from a PE to its peers.
struct Links {
    peer_map: PeerMap,
    connections: Connections,
    uses_soft_nic: bool,
    flags: u32,
}

/// Exchanges the addresses of all PEs' NICs, maps the heaps of P2P peers, and prepares the connections. Collective.
fn link_peers(
    config: &Config,
    machine: &dyn Machine,
    bootstrap: &dyn Bootstrap,
    opened: &PeMemory,
    rails: Vec<Rail>,
) -> Result<Links> {
    let (me, shape) = (bootstrap.pe(), opened.shape);
    let mut all_nics = exchange_nics(bootstrap, &rails, config)?;
    if bootstrap.replaces() {
        all_nics[me as usize] = PeNics { rails: rails.iter().map(Rail::info).collect() };
    }
    let peer_map = PeerMap::new(config, machine, bootstrap, &opened.heap)?;
    let without_nic = peer_map.without_nic();
    let is_soft = |rail: &Rail| rail.nic().port().kind == NicKind::Software;
    // Kernels that reach all PEs by P2P never wait for the software ConnectX.
    let uses_soft_nic = without_nic.contains(&false) && rails.iter().any(is_soft);
    if me == 0 {
        summary::log(&all_nics, bootstrap.n_pes() > 1 && !without_nic.contains(&false));
    }
    let needs_read_backs = all_nics.iter().any(PeNics::needs_read_backs);
    let handshakes = Arc::new(Handshakes::new(machine, shape)?);
    let retries = RetryPolicy::new(config);
    let connections =
        Connections::new(rails, &all_nics, Arc::clone(&opened.state), handshakes, shape, me, retries)
            .without_p2p_peers(without_nic)
            .with_targets()?
            .with_patience(config.connect_timeout)?;
    let mut flags = if connections.on_gpu() { ctx_flags::GPU_QUEUES } else { 0 };
    flags |= if shape.is_dc() { ctx_flags::DC } else { 0 };
    // `quiet` has to read back if writes to a heap may be reordered: if several NICs, or NICs and processors, access
    // it, PCIe does not order them, and data through a relaxed key may be passed even by later data through the same
    // NIC. Also if some host cannot flush acknowledged data itself.
    let is_reordered = shape.rails > 1 || peer_map.is_shared() || connections.has_relaxed_keys();
    if is_reordered || needs_read_backs {
        flags |= ctx_flags::EARLY_ACKS;
    }
    Ok(Links { peer_map, connections, uses_soft_nic, flags })
}

/// Completes the kernel context of a PE, and writes the tables to which the context refers. `print` is the address of
/// the ring for printed lines.
fn describe(
    config: &Config,
    opened: &PeMemory,
    links: &Links,
    table: &TeamTable,
    parts: CtxParts,
    print: DevAddr,
) -> Result<CtxParts> {
    let state = &opened.state;
    let deadlines = Deadlines { call: config.timeout, connect: config.connect_timeout };
    let control = parts.header.control;
    let lost = match config.membership {
        config::Membership::Fixed => DevAddr(0),
        config::Membership::Live => control.add(offset_of!(ControlPage, lost) as u64),
    };
    state.write_pe(parts.pe, control, print, lost, deadlines)?;
    state.describe_qps(&links.connections.descriptors())?;
    let peers = links.peer_map.descriptors(config, opened.heap.region.addr);
    state.describe_peers(&peers)?;
    let mut parts = CtxParts { flags: links.flags, ..parts };
    links.peer_map.describe(&mut parts, &peers);
    table.describe(&mut parts);
    Ok(parts)
}

/// Registers a callback for lost PEs. Returns the membership that the callback updates.
///
/// Unless the job survives the loss, the callback aborts the PE's kernels. If the lost PE exited the job with an exit
/// code, the callback exits this process instead.
fn watch_peers(
    bootstrap: &Arc<dyn Bootstrap>,
    control: &Region,
    watchdog: &Arc<Watchdog>,
    watch: &PeWatch,
) -> Result<Membership> {
    let membership = Membership::new(&control.memory);
    let (watchdog, watch) = (Arc::clone(watchdog), watch.clone());
    // In a job of threads, `Job::run` returns the error of the PE itself.
    let is_reported = bootstrap.token().is_none();
    // Weak: the bootstrap's thread may outlive the PE, and keeps the callback.
    let (known, connection) = (membership.clone(), Arc::downgrade(bootstrap));
    bootstrap.on_peer_lost(Box::new(move |peer| {
        log_loss(&known, &peer, is_reported);
        if let Some(code) = peer.exit {
            // If this process has the job's server, it must inform the other PEs before it exits.
            match connection.upgrade() {
                Some(connection) => end_job(&*connection, code),
                None => end_process(code),
            }
        }
        if let (true, Some(pe)) = (peer.survivable, peer.pe) {
            return known.lose(pe, peer);
        }
        watchdog.job_failed(peer.to_string());
        watch.end_loops();
        known.fail(peer);
    }))?;
    Ok(membership)
}

/// Registers a callback that aborts this PE's kernels and the job if the sanitizer finds a deadlock.
fn end_on_deadlock(
    watch: &PeWatch,
    bootstrap: &Arc<dyn Bootstrap>,
    control: &Region,
    watchdog: &Arc<Watchdog>,
) {
    let watchdog = Arc::clone(watchdog);
    let (page, connection) = (Arc::downgrade(&control.memory), Arc::downgrade(bootstrap));
    watch.on_deadlock(move |cause| {
        watchdog.job_failed(cause.into());
        if let Some(page) = page.upgrade() {
            set_abort_word(&*page);
        }
        if let Some(connection) = connection.upgrade() {
            connection.abort(cause);
        }
    });
}

/// Logs the loss of a PE: as a warning for the first loss, once for all PEs of this process, and at debug level for its
/// consequences. A loss that the job reports anyway is not a warning, and neither is a vacant PE.
fn log_loss(known: &Membership, peer: &PeerLost, is_reported: bool) {
    static LOGGED: Mutex<Option<PeerLost>> = Mutex::new(None);
    let is_first = known.fatal().is_none();
    if is_reported || peer.is_vacant() {
        tracing::info!("{peer}");
    } else if is_first && lock(&LOGGED).replace(peer.clone()).as_ref() != Some(peer) {
        tracing::warn!("{peer}");
    } else {
        tracing::debug!("{peer}");
    }
}

/// Allocates the symmetric heap and the memory for queue state, and sets up the rails.
fn open_machine(
    config: &Config,
    machine: &dyn Machine,
    bootstrap: &dyn Bootstrap,
    nics: Vec<Box<dyn Provider>>,
) -> Result<(PeMemory, Vec<Rail>)> {
    let n_pes = bootstrap.n_pes();
    let shape = Shape::new(config, n_pes);
    shape.check()?;
    if shape.failover && shape.is_dc() {
        let why = "DC initiators cannot be replaced; raise RUSHMEM_DC_ABOVE".into();
        return Err(Error::Unavailable { what: "RUSHMEM_FAILOVER=on".into(), why });
    }
    if config.membership == config::Membership::Live && shape.is_dc() {
        let why = "a DC initiator that fails because of one PE stops for all; raise RUSHMEM_DC_ABOVE";
        return Err(unsupported(why));
    }
    if config.vacant_pes >= n_pes {
        let what = format!("RUSHMEM_VACANT_PES={}", config.vacant_pes);
        return Err(Error::Unavailable {
            what,
            why: format!("the job has {n_pes} PEs, of which one must not be vacant"),
        });
    }
    if config.membership == config::Membership::Live && n_pes > LOST_TEAMS {
        return Err(unsupported("kernels learn of losses in jobs of up to 8192 PEs"));
    }
    let reserved = shape.reserved() + HostScratch::BYTES;
    let heap_bytes = config.heap_bytes.0.next_multiple_of(4096) + reserved;
    let heap = p2p::first_heap(config, machine, bootstrap, heap_bytes)?;
    let state = Arc::new(StateMap::new(machine, shape)?);
    let setup = RailSetup {
        machine,
        heap: &heap.region,
        shape,
        queues: config.queues,
        doorbell: config.doorbell,
        local_pes: config.pes_on_node(),
    };
    let rails = open_rails(nics, setup)?;
    Ok((PeMemory { state, heap, heap_bytes, reserved, shape }, rails))
}

/// Sets up a rail on each of `nics` that passes its probe, until there are as many rails as the settings request.
///
/// # Errors
/// - The error of the last NIC that failed, if too few remain.
/// - [`Error::Unavailable`] if none failed, but there are too few.
fn open_rails(nics: Vec<Box<dyn Provider>>, setup: RailSetup<'_>) -> Result<Vec<Rail>> {
    let shape = setup.shape;
    let mut rails = Vec::new();
    let found = nics.len();
    let mut last = None;
    for nic in nics {
        if rails.len() == shape.rails as usize {
            break;
        }
        match open_rail(nic, setup) {
            Ok(rail) => rails.push(rail),
            Err(error) => {
                tracing::warn!("a NIC is not used: {error}");
                last = Some(error);
            }
        }
    }
    if rails.len() == shape.rails as usize {
        return Ok(rails);
    }
    let why = || format!("this PE has {found}; lower RUSHMEM_NICS_PER_PE, or name more NICs in RUSHMEM_NIC");
    Err(last.unwrap_or_else(|| Error::Unavailable { what: format!("{} NICs", shape.rails), why: why() }))
}

/// Exchanges the descriptions of all PEs' NICs, and returns them by PE. Collective.
///
/// Each PE's message starts with a hash of the settings that must be equal on all PEs.
///
/// # Errors
/// - [`Error::Mismatch`] if the settings of a PE differ, [`Error::MixedNics`] if the kinds of NICs differ.
/// - [`Error::Misuse`] if a message is malformed, and the errors of the bootstrap.
fn exchange_nics(bootstrap: &dyn Bootstrap, rails: &[Rail], config: &Config) -> Result<Vec<PeNics>> {
    let settings = common_settings(config);
    // Not a random state: the hash must be equal in all processes.
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&settings).to_le_bytes();
    let mine = PeNics { rails: rails.iter().map(Rail::info).collect() };
    let malformed = |pe: usize| {
        let what = format!("PE {pe} sent a malformed description of its NICs");
        Error::misuse("start", what)
    };
    let all = bootstrap.allgather("the exchange of NICs", &[&hash[..], &mine.encode()].concat())?;
    if bootstrap.replaces() && !all.iter().all(|theirs| theirs.starts_with(&hash)) {
        let why = "its settings differ from those of the other PEs".into();
        return Err(Error::Unavailable { what: format!("the place of lost PE {}", bootstrap.pe()), why });
    }
    if all.iter().any(|theirs| !theirs.starts_with(&hash)) {
        // All PEs see this, so all of them take the additional collective step that finds the difference.
        compare_settings(bootstrap, &settings)?;
    }
    let parse = |(pe, bytes): (usize, &Vec<u8>)| -> Result<PeNics> {
        let theirs = bytes.get(hash.len()..).and_then(PeNics::decode);
        theirs.filter(|theirs| theirs.rails.len() == mine.rails.len()).ok_or_else(|| malformed(pe))
    };
    let all: Vec<PeNics> = all.iter().enumerate().map(parse).collect::<Result<_>>()?;
    let mixed_rail =
        |theirs: &PeNics| theirs.rails.iter().zip(&mine.rails).position(|(a, b)| a.port.kind != b.port.kind);
    match all.iter().enumerate().find_map(|(pe, theirs)| Some((pe, mixed_rail(theirs)?))) {
        None => Ok(all),
        Some((pe, rail)) => {
            let kind = |nics: &PeNics| nics.rails[rail].port.kind.to_string();
            Err(Error::MixedNics { pe: pe as u32, theirs: kind(&all[pe]), mine: kind(&mine) })
        }
    }
}

/// Formats the settings that must be equal on all PEs.
fn common_settings(config: &Config) -> String {
    format!(
        "membership={:?} vacant_pes={} heap_bytes={} heap_max={:?} sq_depth={:?} queue_memory={} nics_per_pe={} failover={:?} \
         qps_per_peer={} block_qps={} exclusive_qps={} context_qps={} peer_path={:?} p2p_group={} p2p_atomics={:?} teams={} \
         team_scratch={} grid_scratch={:?} ordering={:?} relaxed_ordering={:?} dc_above={:?} dcis={}",
        config.membership,
        config.vacant_pes,
        config.heap_bytes.0,
        config.heap_max.0,
        config.sq_depth.0.map(SqDepth::get),
        config.queue_memory.0,
        config.nics_per_pe,
        config.failover,
        config.qps_per_peer,
        config.block_qps,
        config.exclusive_qps,
        config.context_qps,
        config.peer_path,
        config.p2p_group,
        config.p2p_atomics,
        config.teams,
        config.team_scratch.0,
        config.grid_scratch.0,
        config.ordering,
        config.relaxed_ordering,
        config.dc_above.0,
        config.dcis.get()
    )
}

/// Checks that all PEs have the same settings. Collective.
///
/// # Errors
/// - [`Error::Mismatch`] with the settings of a PE that differ, and the errors of the bootstrap.
fn compare_settings(bootstrap: &dyn Bootstrap, settings: &str) -> Result<()> {
    let all = bootstrap.allgather("the comparison of settings", settings.as_bytes())?;
    if let Some(pe) = all.iter().position(|theirs| *theirs != settings.as_bytes()) {
        let theirs = String::from_utf8_lossy(&all[pe]).into_owned();
        return Err(Error::Mismatch {
            pe: pe as u32,
            call: "start".into(),
            theirs,
            mine: settings.into(),
            site: CallSite::current(),
        });
    }
    Ok(())
}

/// Returns the fields of a PE's kernel context that do not depend on peers.
fn context_parts(opened: &PeMemory, control: &Region, pe: u32, n_pes: u32) -> CtxParts {
    let PeMemory { state, heap, heap_bytes, shape, .. } = opened;
    CtxParts {
        header: Header { magic: MAGIC, version: VERSION, layout: LAYOUT, control: control.addr },
        state: state.device_state(),
        heap: heap.region.addr,
        heap_bytes: *heap_bytes,
        peers: state.peer_table(),
        qps: state.qp_table(),
        pe,
        n_pes,
        first_set: 0,
        n_sets: shape.shared_sets * shape.rails,
        block_sets: shape.block_sets,
        exclusive_sets: shape.exclusive_sets,
        context_sets: shape.context_sets,
        rails: shape.rails,
        ..Zeroable::zeroed()
    }
}

/// Connects the NICs to the wait channel of the PE's kernels, if the machine has one. Returns functions that wake the
/// NICs.
fn link_nics(machine: &dyn Machine, nics: &[Box<dyn Provider>]) -> Vec<WakeNic> {
    let Some(channel) = machine.wait_channel() else { return Vec::new() };
    nics.iter().filter_map(|nic| nic.link(channel)).collect()
}

/// Starts the service thread that connects QPs. With `connect=eager`, also connects all QPs.
fn start_service(
    config: &Config,
    connections: Connections,
    guards: Guards,
    inbox: &Inbox,
    machine: &dyn Machine,
    wake_nics: Vec<WakeNic>,
) -> Result<Service> {
    let inbox = inbox.clone();
    let keep = move |message| inbox.keep(message);
    let channel = machine.wait_channel();
    let pace = Pace {
        local_pes: config.pes_on_node(),
        polls: channel.is_none(),
        connect_timeout: config.connect_timeout,
    };
    let replaces = guards.bootstrap.replaces();
    let service = Service::start(connections, guards, pace, keep)?;
    // Native kernels that wait give their cores to whatever they wait for: the NICs, and the service.
    if let Some(channel) = channel {
        let look = service.looker();
        channel.on_wait(move || {
            wake_nics.iter().for_each(|wake| wake());
            look();
        });
    }
    // A process that replaces a lost PE may not contact the others before they have taken it in.
    if config.connect == ConnectKind::Eager && !replaces {
        service.connect_all(config.bootstrap_timeout)?;
    }
    Ok(service)
}

/// Creates the predefined teams. Collective.
fn make_teams(
    config: &Config,
    bootstrap: &dyn Bootstrap,
    peer_map: &PeerMap,
    (table, inbox): (TeamTable, Inbox),
    shape: Shape,
) -> Result<Teams> {
    let me = bootstrap.pe();
    let is_p2p = |&pe: &u32| pe == me || peer_map.mapped(pe).is_some();
    let location = PeLocation {
        node: config.node.unwrap_or(0),
        local: config.local_pe.unwrap_or(me),
        p2p: (0..bootstrap.n_pes()).filter(is_p2p).collect(),
    };
    let members = predefined(bootstrap, &location)?;
    Teams::new(table, inbox, shape.teams, (me, peer_map.nodes()), members)
}

/// Exchanges the facts on which all PEs of a job agree. Returns a random ID for the job, drawn by PE 0, and the minimum
/// of `blocks` over all PEs. If necessary, also compares the clocks of the machines. Collective.
fn job_facts(bootstrap: &dyn Bootstrap, trace: &PeTrace, blocks: u32) -> Result<(u32, u32)> {
    let mut mine = [0; 4];
    getrandom::fill(&mut mine).map_err(|error| bootstrap::Error::Random(error.to_string()))?;
    let all = bootstrap.allgather(
        "the exchange of the job number",
        &[&mine, blocks.to_le_bytes().as_slice(), ClockPart::new(trace).bytes()].concat(),
    )?;
    let parts: Vec<_> = all.iter().map(|all| all.get(2 * mine.len()..).unwrap_or_default()).collect();
    clocks::compare(bootstrap, trace, &parts)?;
    let word = |bytes: &Vec<u8>, at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let drawn = all.first().and_then(|bytes| word(bytes, 0)).unwrap_or(u32::from_le_bytes(mine));
    let fewest = all.iter().filter_map(|bytes| word(bytes, mine.len())).min().unwrap_or(blocks);
    Ok((drawn, fewest))
}
