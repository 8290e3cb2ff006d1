//! Maps the heaps of P2P peers into this PE, where kernels access them by loads and stores.
//!
//! Each PE gives its heap a random name. If the name is in this process's own table, the PE is a thread of this
//! process. A process on the same node sends the file descriptor of its heap through a socket of that name. All other
//! PEs are NIC peers.
//!
//! All atomics on a word must take the same path, because atomics of processors and of NICs are not atomic with each
//! other. If every PE has mapped every other PE, the processors execute them. Otherwise the NIC of the heap's owner
//! does, except for words that only PEs of one [node](nodes) update.
#![allow(unsafe_code, reason = "a test writes through a mapping of a peer's heap")]

mod fd_server;
mod local_heaps;
mod node_heaps;
mod nodes;

use std::fs;
use std::sync::Arc;

use rushmem_base::boot_id;
use rushmem_bootstrap::{Bootstrap, nonce};
use rushmem_config::{Config, HeapKind, Membership, P2pAtomics, PeerPath, Switch};
use rushmem_device::abi::{CtxParts, DevAddr, PeerDesc, ctx_flags};
use rushmem_error::call_site::CallSite;
use rushmem_error::{Error, Result};
use rushmem_machine::{ExportedMemory, HeapWindow, Layout, Machine, PeerMemory, Region};
use serde::{Deserialize, Serialize};

use self::fd_server::FdServer;
use self::local_heaps::LocalHeap;
use self::node_heaps::NodeHeaps;
use self::nodes::{Mapping, nodes_of};

/// Tags of the exchanges of heaps and of what PEs have mapped.
const HEAPS: &str = "the exchange of heaps";
const MAPPINGS: &str = "the mapping of heaps";

/// The route by which kernels access a peer's memory, with the reason for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerRoute {
    pub pe: u32,
    /// `p2p`, or the name of this PE's NIC.
    pub via: String,
    pub why: String,
}

/// The route to each PE of the job. Keeps the heaps of P2P peers mapped.
pub struct PeerMap {
    access: Vec<PeerAccess>,
    /// Whether all PEs of the job have mapped each other, so processors and not NICs execute atomics.
    atomics: bool,
    /// For each PE, the lowest rank on its node.
    nodes: Vec<u32>,
    /// Whether the program promises that no word is updated by both NIC peers and P2P peers.
    node_words: bool,
    /// Whether PEs of this job may have mapped each other's heaps.
    shared: bool,
    /// The address window in which the heaps of P2P peers are mapped, if there are any.
    mapped_heaps: Option<Arc<MappedHeaps>>,
    /// Passes the heaps of the node on to processes that replace lost PEs. `None` if there are none.
    _node_server: Option<FdServer>,
}

/// The first heap of a PE.
pub struct FirstHeap {
    pub region: Region,
    /// The heaps of the node, if this process replaces a lost PE whose heap others have mapped.
    node: Option<NodeHeaps>,
}

/// An address window with one slot per PE, from the first mapped PE to the last. PEs in between may be unmapped.
pub struct MappedHeaps {
    window: Box<dyn HeapWindow>,
    first: u32,
}

impl MappedHeaps {
    fn addr(&self, pe: u32) -> DevAddr {
        self.window.base().add(u64::from(pe - self.first) * self.window.stride())
    }
}

/// Mapped memory of several PEs other than their heaps, by PE. Unmapped on drop.
#[derive(Default)]
pub struct PeerMapping(Vec<Option<Box<dyn rushmem_machine::Mapping>>>);

impl PeerMapping {
    /// Returns the address at which kernels access the memory of `pe`, or 0 if it is not mapped.
    fn addr(&self, pe: u32) -> DevAddr {
        let mapping = self.0.get(pe as usize).and_then(Option::as_ref);
        mapping.map_or(DevAddr(0), |mapping| mapping.addr())
    }
}

enum PeerAccess {
    /// The PE is this one.
    Own,
    /// The PE's heap is mapped into this PE. The text is the reason why that works.
    P2p(&'static str),
    /// The PE is accessed through the NIC. The text is the reason.
    Nic(String),
}

/// Description of a PE's heap or other memory, which the PE sends to all others.
#[derive(Serialize, Deserialize)]
struct ExportedHeap {
    name: String,
    /// ID of the node where the PE's socket and files can be used. `None` if unknown.
    node_id: Option<String>,
    bytes: u64,
    /// How many files the PE's socket serves and what they are, or why other processes cannot map the memory.
    files: Result<(usize, Layout), String>,
}

/// Returns the reason why all other PEs are NIC peers, or `None` if the settings allow P2P peers.
fn nic_for_all(config: &Config, gpu: bool) -> Option<&'static str> {
    match config.peer_path {
        PeerPath::P2p => None,
        PeerPath::Nic => Some("RUSHMEM_PEER_PATH=nic"),
        PeerPath::Auto if !gpu => {
            Some("native kernels use the path under test; RUSHMEM_PEER_PATH=p2p maps the node's heaps")
        }
        PeerPath::Auto if config.heap == HeapKind::Host => {
            Some("only heaps in GPU memory are mapped, and RUSHMEM_HEAP=host")
        }
        PeerPath::Auto => None,
    }
}

/// Returns whether the settings make PEs map each other's heaps, which requires mappable memory. Equal on all PEs.
pub fn wanted(config: &Config, n_pes: u32, gpu: bool) -> bool {
    nic_for_all(config, gpu).is_none() && n_pes > 1
}

/// Allocates a heap that other PEs can map. With `peer_path=auto`, falls back to memory they cannot map.
///
/// # Errors
/// The errors of [`Machine::heap`].
pub fn heap(config: &Config, machine: &dyn Machine, bytes: u64, n_pes: u32) -> Result<Region> {
    if !wanted(config, n_pes, machine.is_gpu()) {
        return machine.heap(bytes, false);
    }
    match machine.heap(bytes, true) {
        Err(error @ Error::Unavailable { .. }) if config.peer_path == PeerPath::Auto => {
            tracing::info!("peers go through the NIC: {error}");
            machine.heap(bytes, false)
        }
        heap => heap,
    }
}

/// Allocates the first heap of a PE, with [`heap`], or takes over that of the lost PE that this process replaces.
///
/// # Errors
/// - The errors of [`heap`] and of [`Machine::inherit`].
/// - [`Error::Unavailable`] if others have mapped the heap of the lost PE and none of them passes it on.
pub fn first_heap(
    config: &Config,
    machine: &dyn Machine,
    bootstrap: &dyn Bootstrap,
    bytes: u64,
) -> Result<FirstHeap> {
    let node = match (bootstrap.recall(HEAPS), bootstrap.recall(MAPPINGS)) {
        (Some(heaps), Some(mappings)) => {
            NodeHeaps::fetch(config, bootstrap, &decode_heaps(&heaps)?, &decode_mappings(&mappings))?
        }
        _ => None,
    };
    let own = node.as_ref().and_then(|node| node.0.get(&bootstrap.pe()));
    let region = match own {
        Some(own) => machine.inherit(own, bytes)?,
        None => heap(config, machine, bytes, bootstrap.n_pes())?,
    };
    Ok(FirstHeap { region, node })
}

/// Predicts the routes of PE `me` in a job of `n_pes` PEs on one node. `nic` is the name of its NIC.
pub fn expected_routes(config: &Config, me: u32, n_pes: u32, nic: &str, gpu: bool) -> Vec<PeerRoute> {
    let grouped = |pe: u32| group(config, pe) == group(config, me);
    let all = n_pes == 1 || wanted(config, n_pes, gpu) && (0..n_pes).all(grouped);
    let path = |pe: u32| {
        let (p2p, why) = match nic_for_all(config, gpu) {
            _ if pe == me => own(config, all),
            Some(why) => (false, why),
            None if grouped(pe) && config.peer_path == PeerPath::P2p => {
                (true, "RUSHMEM_PEER_PATH=p2p, if it is on this node")
            }
            None if grouped(pe) => (true, "if it is on this node"),
            None => (false, ANOTHER_GROUP),
        };
        PeerRoute { pe, via: if p2p { "p2p" } else { nic }.into(), why: why.into() }
    };
    (0..n_pes).map(path).collect()
}

const ANOTHER_GROUP: &str = "it belongs to another group (RUSHMEM_P2P_GROUP)";

/// Returns whether a PE accesses its own memory by loads and stores, and why.
fn own(config: &Config, atomics: bool) -> (bool, &'static str) {
    match (config.peer_path, atomics) {
        (PeerPath::Nic, _) => (false, "RUSHMEM_PEER_PATH=nic"),
        (_, true) => (true, "its own memory"),
        (_, false) => (true, "its own memory; atomics through the NIC, like the atomics of its peers"),
    }
}

/// Returns the P2P group of `pe`. PEs of different groups are NIC peers.
fn group(config: &Config, pe: u32) -> u32 {
    pe.checked_div(config.p2p_group).unwrap_or(0)
}

/// Returns an ID that PEs share if they run on the same machine, network namespace and node of the job. The last keeps
/// several "nodes" on one machine apart, as in tests.
fn node_id(config: &Config) -> Option<String> {
    let boot = boot_id()?;
    let net = fs::read_link("/proc/self/ns/net").ok()?;
    Some(format!("{} {} {:?}", boot, net.display(), config.node))
}

impl PeerMap {
    /// Maps the heaps of all PEs that can be P2P peers. Collective if this job [wants](wanted) it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a heap of this node cannot be mapped. It names the PE and the cause.
    pub fn new(
        config: &Config,
        machine: &dyn Machine,
        bootstrap: &dyn Bootstrap,
        heap: &FirstHeap,
    ) -> Result<Self> {
        let (me, n_pes) = (bootstrap.pe(), bootstrap.n_pes());
        if !wanted(config, n_pes, machine.is_gpu()) {
            let why = nic_for_all(config, machine.is_gpu()).unwrap_or_default();
            let access = |pe| if pe == me { PeerAccess::Own } else { PeerAccess::Nic(why.into()) };
            let atomics = n_pes == 1 && config.peer_path != PeerPath::Nic;
            let access = (0..n_pes).map(access).collect();
            let nodes = (0..n_pes).collect();
            return Ok(Self {
                access,
                atomics,
                nodes,
                node_words: false,
                shared: false,
                mapped_heaps: None,
                _node_server: None,
            });
        }
        let export = HeapExport::new(config, machine, bootstrap, &heap.region)?;
        // A process that replaces a lost PE gets what that one had exported.
        let heaps = exchange(bootstrap, &export.exported)?;
        let mine = &heaps[me as usize];
        let access_of = |(pe, exported): (u32, &ExportedHeap)| {
            if pe == me {
                PeerAccess::Own
            } else if group(config, pe) != group(config, me) {
                PeerAccess::Nic(ANOTHER_GROUP.into())
            } else if local_heaps::find(&exported.name).is_some() {
                PeerAccess::P2p("a thread of the same process")
            } else if exported.node_id.is_some() && exported.node_id == mine.node_id {
                PeerAccess::P2p("a process of the same node that shares its memory")
            } else {
                PeerAccess::Nic("it is on another node, or in another network namespace".into())
            }
        };
        // Whether any two PEs of the job may map each other. Computed from the exchange, on which all PEs agree.
        let mut places: Vec<_> =
            (0..).zip(&heaps).map(|(pe, heap)| (group(config, pe), &heap.node_id)).collect();
        places.sort_unstable();
        let shared = places.windows(2).any(|two| two[0] == two[1]);
        let mut access: Vec<PeerAccess> = (0..).zip(&heaps).map(access_of).collect();
        let node = heap.node.as_ref();
        let mapped =
            map(config, machine, bootstrap, &mut access, &heaps, node).map_err(|Unmapped { pe, why }| {
                let what = format!("the memory of PE {pe}, for the loads and stores of PE {me},");
                Error::Unavailable { what, why: format!("{why}; {}", remedy(config)) }
            });
        let reached = access.iter().map(|access| !matches!(access, PeerAccess::Nic(_)));
        let atomics = mapped.as_ref().is_ok_and(|mapped| mapped.atomics);
        let mapping = if atomics { Mapping::of(reached) } else { Mapping::default() };
        // PEs that failed take part as well: others may still map their heap, and `export` is dropped after this.
        let all = bootstrap.allgather(MAPPINGS, &mapping.encode())?;
        let nodes = nodes_of(&decode_mappings(&all));
        // One node with all PEs: they have all mapped each other.
        let atomics = nodes.iter().all(|&node| node == 0);
        let node_words = config.p2p_atomics == P2pAtomics::Node;
        let Mapped { heaps: mapped_heaps, memory, .. } = mapped?;
        let node_server = match bootstrap.token() {
            Some(token) if config.membership == Membership::Live && !memory.0.is_empty() => {
                let mut all = memory;
                let own = machine.export(&heap.region);
                let unavailable = |why| Error::Unavailable { what: "the heap for other PEs".into(), why };
                all.0.insert(me, own.map_err(unavailable)?);
                Some(all.serve(&mine.name, token, config.pes_on_node())?)
            }
            _ => None,
        };
        let mapped_heaps = mapped_heaps.map(Arc::new);
        Ok(Self { access, atomics, nodes, node_words, shared, mapped_heaps, _node_server: node_server })
    }

    /// Returns whether any two PEs of the job may access each other's heaps by P2P.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Returns the node of each PE, as the lowest rank on that node. A node is a set of PEs that have all mapped each
    /// other, and whose processors are atomic with each other. Equal on all PEs.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// Maps memory that every PE has allocated into all P2P peers. `ours` is this PE's part. Collective.
    ///
    /// Returns the address of each PE's part for kernels (0 if not mapped), and a guard that keeps the parts mapped.
    /// With `peer_path=auto`, if one PE fails to map the memory, none maps it.
    ///
    /// # Errors
    /// An error on all PEs if one PE cannot map the part of another.
    pub fn segment(
        &self,
        config: &Config,
        machine: &dyn Machine,
        bootstrap: &dyn Bootstrap,
        call: &'static str,
        ours: &Region,
    ) -> Result<(Vec<DevAddr>, PeerMapping)> {
        let own = if config.peer_path == PeerPath::Nic { DevAddr(0) } else { ours.addr };
        let addrs = |shared: &PeerMapping| {
            let addr = |(pe, access): (u32, &PeerAccess)| match access {
                PeerAccess::Own => own,
                PeerAccess::P2p(_) => shared.addr(pe),
                PeerAccess::Nic(_) => DevAddr(0),
            };
            (0..).zip(&self.access).map(addr).collect()
        };
        if !wanted(config, bootstrap.n_pes(), machine.is_gpu()) {
            let nothing = PeerMapping::default();
            return Ok((addrs(&nothing), nothing));
        }
        let export = HeapExport::new(config, machine, bootstrap, ours)?;
        let heaps = exchange(bootstrap, &export.exported)?;
        let map = |(access, exported): (&PeerAccess, &ExportedHeap)| match access {
            PeerAccess::P2p(_) => {
                let memory = find(config, bootstrap, exported)?;
                machine.map(memory).map(Some).map_err(|error| error.to_string())
            }
            PeerAccess::Own | PeerAccess::Nic(_) => Ok(None),
        };
        let mapped = (0_u32..).zip(self.access.iter().zip(&heaps)).map(|(pe, part)| {
            map(part).map_err(|why| {
                let what = format!("this memory of PE {pe} for loads and stores");
                Error::Unavailable { what, why: format!("{why}; {}", remedy(config)) }
            })
        });
        let mapped = mapped.collect::<Result<Vec<_>>>().map(PeerMapping);
        // After this, every PE has mapped what it needs, and the export may be dropped.
        let error = mapped.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let all = bootstrap.allgather(MAPPINGS, error.as_bytes())?;
        let failed = all.iter().position(|theirs| !theirs.is_empty());
        if let (PeerPath::Auto, Some(pe)) = (config.peer_path, failed) {
            let why = String::from_utf8_lossy(&all[pe]);
            tracing::info!("peers access this memory through the NIC: PE {pe} reports: {why}");
            return Ok((vec![DevAddr(0); self.access.len()], PeerMapping::default()));
        }
        let shared = mapped?;
        match failed {
            None => Ok((addrs(&shared), shared)),
            Some(pe) => {
                let why = String::from_utf8_lossy(&all[pe]).into_owned();
                Err(Error::Elsewhere { pe: pe as u32, call, why, site: CallSite::current() })
            }
        }
    }

    /// Returns the peer descriptors for kernels. `heap` is the address of this PE's own heap.
    pub fn descriptors(&self, config: &Config, heap: DevAddr) -> Vec<PeerDesc> {
        let direct = |(pe, access): (u32, &PeerAccess)| match access {
            PeerAccess::Own if config.peer_path != PeerPath::Nic => heap,
            _ => self.mapped(pe).unwrap_or(DevAddr(0)),
        };
        (0..).zip(&self.access).map(direct).map(|direct| PeerDesc { direct }).collect()
    }

    /// Adds P2P access to a kernel context: the range of P2P peers, whether their atomics use P2P, and the PEs that
    /// `fence` must treat as accessed both by P2P and by NIC.
    pub fn describe(&self, parts: &mut CtxParts, peers: &[PeerDesc]) {
        let me = parts.pe as usize;
        let reached = |peer: &PeerDesc| peer.direct.0 != 0;
        // Kernels test for P2P peers with one range check, so only the unbroken run around this PE counts as such.
        if reached(&peers[me]) {
            let below = peers[..me].iter().rev().take_while(|peer| reached(peer)).count();
            let above = peers[me + 1..].iter().take_while(|peer| reached(peer)).count();
            (parts.p2p_from, parts.p2p_count) = ((me - below) as u32, (below + 1 + above) as u32);
            if let Some(mapped_heaps) = &self.mapped_heaps {
                // `p2p_base` is where PE 0 would be mapped. Outside the window if PE 0 is not mapped, hence the
                // wrapping.
                let stride = mapped_heaps.window.stride();
                let before = u64::from(mapped_heaps.first).wrapping_mul(stride);
                let base = mapped_heaps.window.base().0.wrapping_sub(before);
                (parts.p2p_base, parts.p2p_stride) = (DevAddr(base), stride);
            }
        }
        // The fast path supports connected QPs only.
        let is_dc = parts.flags & ctx_flags::DC != 0;
        if !is_dc && (0..).zip(peers).all(|(pe, peer)| parts.is_p2p(pe) || !reached(peer)) {
            parts.flags |= ctx_flags::NO_P2P_OTHERS;
        }
        if self.node_atomics(me) {
            let words = if self.node_words { ctx_flags::P2P_ATOMICS } else { 0 };
            parts.flags |= ctx_flags::NODE_ATOMICS | words;
        }
        if self.atomics {
            let all = if parts.p2p_count == parts.n_pes { ctx_flags::P2P_ALL } else { 0 };
            parts.flags |= ctx_flags::P2P_ATOMICS | all;
            return;
        }
        if let Some(first) = peers.iter().position(reached) {
            parts.mixed_from = first as u32;
            parts.mixed_to = 1 + peers.iter().rposition(reached).unwrap_or(first) as u32;
        }
    }

    /// Returns whether this PE, `me`, has P2P peers and all of them are on its node.
    fn node_atomics(&self, me: usize) -> bool {
        let mut peers =
            self.access.iter().zip(&self.nodes).filter(|(access, _)| matches!(access, PeerAccess::P2p(_)));
        self.mapped_heaps.is_some() && peers.all(|(_, node)| *node == self.nodes[me])
    }

    /// Returns the device address at which the heap of P2P peer `pe` is mapped.
    pub fn mapped(&self, pe: u32) -> Option<DevAddr> {
        match self.access.get(pe as usize)? {
            PeerAccess::P2p(_) => Some(self.mapped_heaps.as_ref()?.addr(pe)),
            PeerAccess::Own | PeerAccess::Nic(_) => None,
        }
    }

    /// Returns a guard that keeps the heaps of P2P peers mapped, if there are any.
    pub fn keep_mapped(&self) -> Option<Arc<MappedHeaps>> {
        self.mapped_heaps.clone()
    }

    /// For each PE, returns whether kernels never use the NIC to reach it. Such a PE needs no QP.
    pub fn without_nic(&self) -> Vec<bool> {
        self.access.iter().map(|access| self.atomics && !matches!(access, PeerAccess::Nic(_))).collect()
    }

    /// Returns the route to each PE. `nic` is the name of this PE's NIC.
    pub fn routes(&self, config: &Config, nic: &str) -> Vec<PeerRoute> {
        let processors = self.atomics || self.node_words;
        let path = |(pe, access): (u32, &PeerAccess)| {
            let (direct, why) = match access {
                PeerAccess::Own => own(config, processors),
                PeerAccess::P2p(how) => (true, *how),
                PeerAccess::Nic(why) => (false, why.as_str()),
            };
            let mut why = why.to_string();
            if matches!(access, PeerAccess::P2p(_)) && !processors {
                why += "; atomics through the NIC, because not all PEs of the job have mapped each other";
            }
            PeerRoute { pe, via: if direct { "p2p" } else { nic }.into(), why }
        };
        (0..).zip(&self.access).map(path).collect()
    }
}

/// This PE's memory under a random name, by which other PEs can find it until this is dropped.
struct HeapExport {
    exported: ExportedHeap,
    _local: LocalHeap,
    _server: Option<FdServer>,
}

impl HeapExport {
    fn new(
        config: &Config,
        machine: &dyn Machine,
        bootstrap: &dyn Bootstrap,
        memory: &Region,
    ) -> Result<Self> {
        let name: String = nonce()?.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let _local = LocalHeap::new(&name, memory);
        let (mut _server, mut files) = (None, Err("it belongs to another process".into()));
        if let Some(token) = bootstrap.token() {
            // Failures go to the other PEs with the name, since these wait for it.
            files = machine.export(memory).and_then(|ExportedMemory { layout, files }| {
                let count = files.len();
                let server = FdServer::open(&name, files, token.clone(), config.pes_on_node());
                _server = Some(server.map_err(|error| error.to_string())?);
                Ok((count, layout))
            });
        }
        let exported = ExportedHeap { name, node_id: node_id(config), bytes: memory.memory.len(), files };
        Ok(Self { exported, _local, _server })
    }
}

/// Returns what users can do if memory of a peer cannot be mapped.
fn remedy(config: &Config) -> &'static str {
    match config.sanitize {
        Switch::On => "run the PEs as threads, because the sanitizer watches mapped memory",
        Switch::Off => "set RUSHMEM_PEER_PATH=auto",
    }
}

fn exchange(bootstrap: &dyn Bootstrap, mine: &ExportedHeap) -> Result<Vec<ExportedHeap>> {
    let exported = serde_json::to_vec(mine).map_err(|_| malformed(bootstrap.pe() as usize))?;
    decode_heaps(&bootstrap.allgather(HEAPS, &exported)?)
}

fn malformed(pe: usize) -> Error {
    Error::misuse("start", format!("PE {pe} sent a malformed description of its heap"))
}

fn decode_heaps(heaps: &[Vec<u8>]) -> Result<Vec<ExportedHeap>> {
    let parse = |(pe, bytes): (usize, &Vec<u8>)| serde_json::from_slice(bytes).map_err(|_| malformed(pe));
    heaps.iter().enumerate().map(parse).collect()
}

fn decode_mappings(mappings: &[Vec<u8>]) -> Vec<Mapping> {
    mappings.iter().map(|bytes| Mapping::decode(bytes)).collect()
}

/// The heaps of P2P peers that a PE has mapped.
struct Mapped {
    /// The window, if there are P2P peers.
    heaps: Option<MappedHeaps>,
    /// Whether atomics are atomic across all processors that map the memory.
    atomics: bool,
    /// The heaps that other processes have exported.
    memory: NodeHeaps,
}

/// A PE whose memory cannot be mapped, and why.
struct Unmapped {
    pe: usize,
    why: String,
}

/// Maps the heaps of all P2P peers with [`map_all`]. With `peer_path=auto`, a PE whose heap cannot be mapped becomes a
/// NIC peer.
fn map(
    config: &Config,
    machine: &dyn Machine,
    bootstrap: &dyn Bootstrap,
    access: &mut [PeerAccess],
    heaps: &[ExportedHeap],
    node: Option<&NodeHeaps>,
) -> Result<Mapped, Unmapped> {
    loop {
        let here: Vec<bool> = access.iter().map(|access| matches!(access, PeerAccess::P2p(_))).collect();
        match map_all(config, machine, bootstrap, &here, heaps, node) {
            // A process that replaces a lost PE takes the paths that all have agreed on.
            Err(Unmapped { pe, why }) if config.peer_path == PeerPath::Auto && node.is_none() => {
                // Start over without this PE: the window may now be smaller.
                tracing::warn!("PE {pe} is a NIC peer, because its memory cannot be mapped: {why}");
                access[pe] = PeerAccess::Nic(format!("its memory cannot be mapped: {why}"));
            }
            outcome => return outcome,
        }
    }
}

/// Maps the memory of the PEs for which `here` is true: what they have exported, or the memory in `node`, if given. The error
/// names the PE whose memory cannot be mapped.
fn map_all(
    config: &Config,
    machine: &dyn Machine,
    bootstrap: &dyn Bootstrap,
    here: &[bool],
    heaps: &[ExportedHeap],
    node: Option<&NodeHeaps>,
) -> Result<Mapped, Unmapped> {
    let mut memory = NodeHeaps::default();
    let Some(first) = here.iter().position(|&here| here) else {
        return Ok(Mapped { heaps: None, atomics: true, memory });
    };
    let last = here.iter().rposition(|&here| here).unwrap_or(first);
    let bytes = heaps[first..=last].iter().map(|exported| exported.bytes).max().unwrap_or(0);
    let slots = (last - first + 1) as u32;
    let unmapped = |pe: usize| move |error: Error| Unmapped { pe, why: error.to_string() };
    let mut window = machine.window(slots, bytes).map_err(unmapped(first))?;
    let mut atomics = true;
    for pe in (first..=last).filter(|&pe| here[pe]) {
        let heap = match node.and_then(|node| node.0.get(&(pe as u32))) {
            Some(exported) => PeerMemory::Remote { exported: exported.clone(), bytes: heaps[pe].bytes },
            None => find(config, bootstrap, &heaps[pe]).map_err(|why| Unmapped { pe, why })?,
        };
        if let PeerMemory::Remote { exported, .. } = &heap {
            memory.0.insert(pe as u32, exported.clone());
        }
        atomics &= window.map((pe - first) as u32, heap).map_err(unmapped(pe))?;
    }
    Ok(Mapped { heaps: Some(MappedHeaps { window, first: first as u32 }), atomics, memory })
}

/// Returns the memory of a PE of this node. The error says why this process cannot map it.
fn find(config: &Config, bootstrap: &dyn Bootstrap, exported: &ExportedHeap) -> Result<PeerMemory, String> {
    if let Some(heap) = local_heaps::find(&exported.name) {
        return Ok(PeerMemory::Local(heap));
    }
    let (count, layout) = exported.files.as_ref().map_err(Clone::clone)?;
    let token = bootstrap.token().ok_or("it belongs to another process")?;
    let files = fd_server::fetch(&exported.name, *count, token, config.bootstrap_timeout)
        .map_err(|error| format!("its file is not available: {error}"))?;
    let exported_memory = ExportedMemory { layout: layout.clone(), files };
    Ok(PeerMemory::Remote { exported: exported_memory, bytes: exported.bytes })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytemuck::Zeroable;

    use super::*;
    use rushmem_bootstrap::Threads;
    use rushmem_machine::{LimitedMachine, Native};
    use rushmem_native::Options;

    fn peer_maps(
        n: u32,
        config: &Config,
        machine: impl Fn() -> Box<dyn Machine> + Sync,
    ) -> Vec<Result<PeerMap>> {
        let pes = Threads::job(n, Duration::from_secs(20));
        std::thread::scope(|scope| {
            let one = |pe: Threads| {
                let machine = &machine;
                scope.spawn(move || {
                    let machine = machine();
                    let heap = FirstHeap { region: machine.heap(8192, true)?, node: None };
                    let reach = PeerMap::new(config, &*machine, &pe, &heap);
                    if reach.is_ok() {
                        pe.finish()?;
                    }
                    reach
                })
            };
            let threads: Vec<_> = pes.into_iter().map(one).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn p2p_config() -> Config {
        let mut config = Config::default();
        config.set("peer_path", "p2p").unwrap();
        config
    }

    #[test]
    fn names_the_peer_that_cannot_be_mapped_and_the_cause() {
        let found = peer_maps(2, &p2p_config(), || Box::new(LimitedMachine::without_windows()));
        let errors: Vec<String> =
            found.into_iter().filter_map(|reach| Some(reach.err()?.to_string())).collect();
        let expected = "the memory of PE 1, for the loads and stores of PE 0, is not available: a mapping is not available: \
                     this machine maps nothing; set RUSHMEM_PEER_PATH=auto";
        assert!(errors.iter().any(|error| error == expected), "{errors:?}");
    }

    #[test]
    fn kernels_learn_whether_only_p2p_neighbours_are_mapped() {
        let found = peer_maps(1, &p2p_config(), || Box::new(Native::new(Options::default())));
        let reach = &found.into_iter().collect::<Result<Vec<_>>>().unwrap()[0];
        let describe = |mapped: [bool; 4]| {
            let peers = mapped.map(|mapped| PeerDesc { direct: DevAddr(if mapped { 4096 } else { 0 }) });
            let mut parts = CtxParts { pe: 1, n_pes: 4, ..CtxParts::zeroed() };
            reach.describe(&mut parts, &peers);
            ((parts.p2p_from, parts.p2p_count), parts.flags & ctx_flags::NO_P2P_OTHERS != 0)
        };
        assert_eq!(describe([true, true, false, false]), ((0, 2), true));
        assert_eq!(describe([false; 4]), ((0, 0), true));
        // Mapped, but not next to PE 1.
        assert_eq!(describe([false, true, false, true]), ((1, 1), false));
        assert_eq!(describe([true, false, true, true]), ((0, 0), false));
    }

    /// Runs two PEs as threads that map memory other than their heaps. Returns the addresses at which each PE found the
    /// parts of both, with 1 for its own part at its original address.
    fn shared_segments(path: &str, machine: impl Fn() -> Box<dyn Machine> + Sync) -> Vec<Result<Vec<u64>>> {
        let mut config = Config::default();
        config.set("peer_path", path).unwrap();
        let pes = Threads::job(2, Duration::from_secs(20));
        let one = |pe: Threads| {
            let machine = machine();
            let ours = Region::host(4096)?;
            let heap = FirstHeap { region: machine.heap(8192, true)?, node: None };
            let map = PeerMap::new(&config, &*machine, &pe, &heap)?;
            let shared = map.segment(&config, &*machine, &pe, "a test", &ours);
            pe.finish()?;
            let own = ours.addr.0;
            Ok(shared?.0.into_iter().map(|addr| if addr.0 == own { 1 } else { addr.0 }).collect())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = pes.into_iter().map(|pe| scope.spawn(|| one(pe))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn memory_of_this_process_is_used_at_its_own_address() {
        let found = shared_segments("p2p", || Box::new(Native::new(Options::default())));
        let found: Vec<Vec<u64>> = found.into_iter().collect::<Result<_>>().unwrap();
        assert_eq!((found[0][0], found[1][1]), (1, 1));
        assert!(found[0][1] > 1 && found[1][0] > 1, "{found:?}");
    }

    #[test]
    fn memory_without_an_address_for_peers_is_an_error_with_p2p() {
        let found = shared_segments("p2p", || Box::new(LimitedMachine::without_direct_memory()));
        for (pe, outcome) in found.into_iter().enumerate() {
            let (error, other) = (outcome.unwrap_err().to_string(), 1 - pe);
            assert!(error.contains(&format!("this memory of PE {other} for loads and stores")), "{error}");
            assert!(error.ends_with("set RUSHMEM_PEER_PATH=auto"), "{error}");
        }
    }

    #[test]
    fn names_the_reason_why_another_process_cannot_map_memory() {
        let (mut pes, config) = (Threads::job(1, Duration::from_secs(20)), Config::default());
        let pe = pes.remove(0);
        let ours = Region::host(4096).unwrap();
        let why = Native::new(Options::default()).export(&ours).err().unwrap();
        let exported =
            ExportedHeap { name: "no such name".into(), node_id: None, bytes: 4096, files: Err(why.clone()) };
        assert_eq!(find(&config, &pe, &exported).err().unwrap(), why);
        assert_eq!(why, "it is host memory of the application, which other processes cannot map");
        pe.finish().unwrap();
    }

    #[test]
    fn memory_stays_mapped_after_its_pe_exits() {
        let found = peer_maps(2, &p2p_config(), || Box::new(Native::new(Options::default())));
        let found: Vec<PeerMap> = found.into_iter().collect::<Result<_>>().unwrap();
        // The heaps have been freed, but their mappings remain.
        let at = found[0].mapped(1).unwrap();
        // SAFETY: mapped as long as `found` lives, and nothing else uses it.
        unsafe { at.ptr::<u64>().add(1000).write(7) };
        assert!(found.iter().all(|reach| reach.atomics && reach.mapped(2).is_none()));
        assert_eq!(local_heaps::find("no such name").map(|heap| heap.addr), None);
    }
}
