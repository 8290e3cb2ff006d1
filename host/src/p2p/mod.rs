//! P2P peers: PEs whose heaps are mapped here, so that kernels reach them by loads and stores.
//!
//! Each PE gives its heap a random name. What has that name in this process's own table is a heap of a thread beside it;
//! that of another process on the node comes as a file descriptor through a socket of that name. Everybody else is
//! reached through the NIC.
//!
//! Atomics go one way in the whole job: by the processors if every PE has mapped every other, through the NIC of the
//! heap's owner if one has not, since the two are not atomic with each other.

mod fd_server;
mod local_heaps;

use std::fs;

use rushmem_device::abi::{CtxParts, DevAddr, PeerDesc, ctx_flags};
use serde::{Deserialize, Serialize};

use self::fd_server::FdServer;
use self::local_heaps::LocalHeap;
use crate::bootstrap::{Bootstrap, nonce};
use crate::config::{Config, HeapKind, PeerPath};
use crate::machine::{HeapWindow, Machine, PeerHeap, Region};
use crate::{Error, Result};

/// How a peer is reached, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerRoute {
    /// The peer.
    pub pe: u32,
    /// `direct` or the NIC's name.
    pub via: String,
    /// Why.
    pub why: String,
}

/// How each PE of the job is reached from this one. Keeps their heaps mapped.
pub(crate) struct PeerMap {
    access: Vec<PeerAccess>,
    /// All PEs of the job are mapped to each other, so that their processors do the atomics.
    atomics: bool,
    /// Where heaps are mapped, if any is.
    mapped_heaps: Option<MappedHeaps>,
}

/// A window whose mapped_heaps belong to PEs that follow each other, from the first one that is mapped to the last one.
struct MappedHeaps {
    window: Box<dyn HeapWindow>,
    first: u32,
}

impl MappedHeaps {
    fn addr(&self, pe: u32) -> DevAddr {
        self.window.base().add(u64::from(pe - self.first) * self.window.stride())
    }
}

/// Memory of several PEs beside their heaps, and what keeps it mapped.
#[derive(Default)]
pub(crate) struct PeerMapping {
    mapped_heaps: Option<MappedHeaps>,
    /// What is of this process and no GPU's, for each PE.
    here: Vec<Option<Region>>,
}

impl PeerMapping {
    /// Where that of a PE is, which is mapped; 0 if nothing is.
    fn addr(&self, pe: u32) -> DevAddr {
        match (self.here.get(pe as usize), &self.mapped_heaps) {
            (Some(Some(region)), _) => region.addr,
            (_, Some(mapped_heaps)) => mapped_heaps.addr(pe),
            _ => DevAddr(0),
        }
    }
}

enum PeerAccess {
    /// This PE's own memory.
    Own,
    /// Its heap is mapped here, for this reason.
    P2p(&'static str),
    /// Through the NIC, for this reason.
    Nic(String),
}

/// What a PE tells the others of its heap.
#[derive(Serialize, Deserialize)]
struct ExportedHeap {
    name: String,
    /// Where a socket and a file of this PE can be used; `None` if that is unknown.
    node_id: Option<String>,
    bytes: u64,
}

/// Why all other PEs are reached through the NIC, if they are.
fn nic_for_all(config: &Config, gpu: bool) -> Option<&'static str> {
    match config.peer_path {
        PeerPath::P2p => None,
        PeerPath::Nic => Some("RUSHMEM_PEER_PATH=nic"),
        PeerPath::Auto if !gpu => {
            Some("native kernels take the way that they test; RUSHMEM_PEER_PATH=p2p maps the node's heaps")
        }
        PeerPath::Auto if config.heap == HeapKind::Host => {
            Some("only heaps in GPU memory are mapped, and RUSHMEM_HEAP=host")
        }
        PeerPath::Auto => None,
    }
}

/// Whether this job maps heaps of other PEs, so that its own must be such that others can map it: the same for all PEs.
pub(crate) fn wanted(config: &Config, n_pes: u32, gpu: bool) -> bool {
    nic_for_all(config, gpu).is_none() && n_pes > 1
}

/// The memory that others map. Where nobody insists on that, memory that they cannot map will do.
///
/// # Errors
/// As [`Machine::heap`].
pub(crate) fn heap(config: &Config, machine: &dyn Machine, bytes: u64, n_pes: u32) -> Result<Region> {
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

/// How PE `me` of `n_pes` on one node would reach each PE with these settings, `nic` being the name of its NIC.
pub(crate) fn expected_routes(config: &Config, me: u32, n_pes: u32, nic: &str, gpu: bool) -> Vec<PeerRoute> {
    let grouped = |pe: u32| group(config, pe) == group(config, me);
    let all = n_pes == 1 || wanted(config, n_pes, gpu) && (0..n_pes).all(grouped);
    let path = |pe: u32| {
        let (direct, why) = match nic_for_all(config, gpu) {
            _ if pe == me => own(config, all),
            Some(why) => (false, why),
            None if grouped(pe) && config.peer_path == PeerPath::P2p => {
                (true, "RUSHMEM_PEER_PATH=p2p, if it is on this node")
            }
            None if grouped(pe) => (true, "if it is on this node"),
            None => (false, ANOTHER_GROUP),
        };
        PeerRoute { pe, via: if direct { "p2p" } else { nic }.into(), why: why.into() }
    };
    (0..n_pes).map(path).collect()
}

const ANOTHER_GROUP: &str = "it is of another group (RUSHMEM_P2P_GROUP)";

/// Whether a PE reaches its own memory directly, and why.
fn own(config: &Config, atomics: bool) -> (bool, &'static str) {
    match (config.peer_path, atomics) {
        (PeerPath::Nic, _) => (false, "RUSHMEM_PEER_PATH=nic"),
        (_, true) => (true, "its own memory"),
        (_, false) => (true, "its own memory; atomics through the NIC, as those of its peers"),
    }
}

/// PEs of different groups reach each other through the NIC only.
fn group(config: &Config, pe: u32) -> u32 {
    pe.checked_div(config.p2p_group).unwrap_or(0)
}

/// Names this machine, its network namespace and the node of the job. Two "nodes" that are one machine are told apart.
fn node_id(config: &Config) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let net = fs::read_link("/proc/self/ns/net").ok()?;
    Some(format!("{} {} {:?}", boot.trim(), net.display(), config.node))
}

impl PeerMap {
    /// Maps what can be mapped. Collective, as soon as one of the job's PEs [wants](wanted) it.
    ///
    /// # Errors
    /// A PE of this node cannot be mapped: which, and why.
    pub(crate) fn new(
        config: &Config,
        machine: &dyn Machine,
        bootstrap: &dyn Bootstrap,
        heap: &Region,
    ) -> Result<Self> {
        let (me, n_pes) = (bootstrap.pe(), bootstrap.n_pes());
        if !wanted(config, n_pes, machine.is_gpu()) {
            let why = nic_for_all(config, machine.is_gpu()).unwrap_or_default();
            let way = |pe| if pe == me { PeerAccess::Own } else { PeerAccess::Nic(why.into()) };
            let atomics = n_pes == 1 && config.peer_path != PeerPath::Nic;
            return Ok(Self { access: (0..n_pes).map(way).collect(), atomics, mapped_heaps: None });
        }
        let export = HeapExport::new(config, bootstrap, heap)?;
        let mine = &export.exported;
        let heaps = exchange(bootstrap, mine)?;
        let way = |(pe, exported): (u32, &ExportedHeap)| {
            if pe == me {
                PeerAccess::Own
            } else if group(config, pe) != group(config, me) {
                PeerAccess::Nic(ANOTHER_GROUP.into())
            } else if local_heaps::find(&exported.name).is_some() {
                PeerAccess::P2p("a thread of the same process")
            } else if exported.node_id.is_some() && exported.node_id == mine.node_id {
                PeerAccess::P2p("a process of the same node, which shares its memory")
            } else {
                PeerAccess::Nic("it is on another node, or in another network namespace".into())
            }
        };
        let mut access: Vec<PeerAccess> = (0..).zip(&heaps).map(way).collect();
        let mapped = map(config, machine, bootstrap, &mut access, &heaps).map_err(|Unmapped { pe, why }| {
            let what = format!("the memory of PE {pe}, for the loads and stores of PE {me},");
            Error::Unavailable { what, why: format!("{why}; set RUSHMEM_PEER_PATH=auto") }
        });
        let all = mapped.as_ref().is_ok_and(|(_, atomics)| *atomics)
            && access.iter().all(|way| !matches!(way, PeerAccess::Nic(_)));
        // Also by one that has failed: the others may have yet to map its heap, which they find no longer than until now.
        let everybody = bootstrap.allgather("rushmem.mapped", &[all.into()])?;
        let atomics = everybody.iter().all(|theirs| theirs == &[1]);
        Ok(Self { access, atomics, mapped_heaps: mapped?.0 })
    }

    /// Maps memory that every PE has made, `ours` being this PE's: that of the PEs whose heaps are mapped. Collective.
    /// Gives where each PE's is for kernels, 0 if it is not mapped, and what keeps it so.
    ///
    /// Where nobody insists on mapping, memory that one PE cannot map is mapped by none.
    ///
    /// # Errors
    /// On all PEs, if one cannot map that of another.
    pub(crate) fn segment(
        &self,
        config: &Config,
        machine: &dyn Machine,
        bootstrap: &dyn Bootstrap,
        call: &'static str,
        ours: &Region,
    ) -> Result<(Vec<DevAddr>, PeerMapping)> {
        let own = if config.peer_path == PeerPath::Nic { DevAddr(0) } else { ours.addr };
        let addrs = |shared: &PeerMapping| {
            let addr = |(pe, way): (u32, &PeerAccess)| match way {
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
        let export = HeapExport::new(config, bootstrap, ours)?;
        let heaps = exchange(bootstrap, &export.exported)?;
        // Memory of this process that is no GPU's is where it is.
        let plain =
            |exported: &ExportedHeap| local_heaps::find(&exported.name).filter(|region| region.gpu.is_none());
        let mapped = |way: &PeerAccess| matches!(way, PeerAccess::P2p(_));
        let here: Vec<Option<Region>> = self
            .access
            .iter()
            .zip(&heaps)
            .map(|(way, exported)| plain(exported).filter(|_| mapped(way)))
            .collect();
        let others: Vec<bool> =
            self.access.iter().zip(&here).map(|(way, here)| mapped(way) && here.is_none()).collect();
        let mapped = map_all(config, machine, bootstrap, &others, &heaps).map_err(|Unmapped { pe, why }| {
            let what = format!("this memory of PE {pe} for loads and stores");
            Error::Unavailable { what, why: format!("{why}; set RUSHMEM_PEER_PATH=auto") }
        });
        // Ends the showing too: all have looked.
        let told = mapped.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let all = bootstrap.allgather("rushmem.mapped", told.as_bytes())?;
        let failed = all.iter().position(|theirs| !theirs.is_empty());
        if let (PeerPath::Auto, Some(pe)) = (config.peer_path, failed) {
            tracing::info!("goes through the NIC: PE {pe} says: {}", String::from_utf8_lossy(&all[pe]));
            return Ok((vec![DevAddr(0); self.access.len()], PeerMapping::default()));
        }
        let shared = PeerMapping { mapped_heaps: mapped?.0, here };
        match failed {
            None => Ok((addrs(&shared), shared)),
            Some(pe) => {
                let why = String::from_utf8_lossy(&all[pe]).into_owned();
                Err(Error::Elsewhere { pe: pe as u32, call, why })
            }
        }
    }

    /// The descriptors for kernels, where this PE's own heap lies at `heap`.
    pub(crate) fn descriptors(&self, config: &Config, heap: DevAddr) -> Vec<PeerDesc> {
        let direct = |(pe, way): (u32, &PeerAccess)| match way {
            PeerAccess::Own if config.peer_path != PeerPath::Nic => heap,
            _ => self.mapped(pe).unwrap_or(DevAddr(0)),
        };
        (0..).zip(&self.access).map(direct).map(|direct| PeerDesc { direct }).collect()
    }

    /// Tells kernels of this PE which PEs are near, of which atomics are direct, and which they reach both access, so that
    /// `fence` looks at these.
    pub(crate) fn describe(&self, parts: &mut CtxParts, peers: &[PeerDesc]) {
        let me = parts.pe as usize;
        let reached = |peer: &PeerDesc| peer.direct.0 != 0;
        if reached(&peers[me]) {
            let below = peers[..me].iter().rev().take_while(|peer| reached(peer)).count();
            let above = peers[me + 1..].iter().take_while(|peer| reached(peer)).count();
            (parts.p2p_from, parts.p2p_count) = ((me - below) as u32, (below + 1 + above) as u32);
            if let Some(mapped_heaps) = &self.mapped_heaps {
                // Of a place that may be outside of the window, as that of a PE which is the first one.
                let before = u64::from(mapped_heaps.first).wrapping_sub(parts.p2p_from.into());
                let stride = mapped_heaps.window.stride();
                let base = mapped_heaps.window.base().0.wrapping_sub(before.wrapping_mul(stride));
                (parts.p2p_base, parts.p2p_stride) = (DevAddr(base), stride);
            }
        }
        if (0..).zip(peers).all(|(pe, peer)| parts.is_p2p(pe) || !reached(peer)) {
            parts.flags |= ctx_flags::NO_P2P_OTHERS;
        }
        if self.atomics {
            let all = if parts.p2p_count == parts.n_pes { ctx_flags::P2P_ALL } else { 0 };
            parts.flags |= ctx_flags::P2P_ATOMICS | all;
        } else if let Some(first) = peers.iter().position(reached) {
            parts.mixed_from = first as u32;
            parts.mixed_to = 1 + peers.iter().rposition(reached).unwrap_or(first) as u32;
        }
    }

    /// Where the heap of `pe` is mapped for kernels; `None` if it is not.
    pub(crate) fn mapped(&self, pe: u32) -> Option<DevAddr> {
        match self.access.get(pe as usize)? {
            PeerAccess::P2p(_) => Some(self.mapped_heaps.as_ref()?.addr(pe)),
            PeerAccess::Own | PeerAccess::Nic(_) => None,
        }
    }

    /// The PEs that kernels never reach through the NIC, so that they need no QP.
    pub(crate) fn without_nic(&self) -> Vec<bool> {
        self.access.iter().map(|way| self.atomics && !matches!(way, PeerAccess::Nic(_))).collect()
    }

    /// How each PE is reached, where `nic` is this PE's NIC.
    pub(crate) fn routes(&self, config: &Config, nic: &str) -> Vec<PeerRoute> {
        let path = |(pe, way): (u32, &PeerAccess)| {
            let (direct, why) = match way {
                PeerAccess::Own => own(config, self.atomics),
                PeerAccess::P2p(how) => (true, *how),
                PeerAccess::Nic(why) => (false, why.as_str()),
            };
            let mut why = why.to_string();
            if matches!(way, PeerAccess::P2p(_)) && !self.atomics {
                why += "; atomics through the NIC, as not all PEs of the job are mapped to each other";
            }
            PeerRoute { pe, via: if direct { "p2p" } else { nic }.into(), why }
        };
        (0..).zip(&self.access).map(path).collect()
    }
}

/// Memory of this PE, which others find by its name as long as this lives.
struct HeapExport {
    exported: ExportedHeap,
    _local: LocalHeap,
    _server: Option<FdServer>,
}

impl HeapExport {
    fn new(config: &Config, bootstrap: &dyn Bootstrap, memory: &Region) -> Result<Self> {
        let name: String = nonce()?.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let _local = LocalHeap::new(&name, memory);
        let _server = match (bootstrap.token(), &memory.file) {
            (Some(token), Some(file)) => Some(FdServer::open(&name, file.clone(), token.clone())?),
            _ => None,
        };
        Ok(Self {
            exported: ExportedHeap { name, node_id: node_id(config), bytes: memory.memory.len() },
            _local,
            _server,
        })
    }
}

fn exchange(bootstrap: &dyn Bootstrap, mine: &ExportedHeap) -> Result<Vec<ExportedHeap>> {
    let malformed = |pe: usize| Error::Misuse {
        call: "start",
        what: format!("PE {pe} sent a malformed exported of its heap"),
    };
    let exported = serde_json::to_vec(mine).map_err(|_| malformed(bootstrap.pe() as usize))?;
    let heaps = bootstrap.allgather("rushmem.heaps", &exported)?;
    let parse = |(pe, bytes): (usize, &Vec<u8>)| serde_json::from_slice(bytes).map_err(|_| malformed(pe));
    heaps.iter().enumerate().map(parse).collect()
}

/// A PE whose memory cannot be mapped, and why.
struct Unmapped {
    pe: usize,
    why: String,
}

/// Maps the heaps of those PEs whose way is that. Where nobody insists on it, one that cannot be mapped is reached through
/// the NIC. Otherwise as [`map_all`].
fn map(
    config: &Config,
    machine: &dyn Machine,
    bootstrap: &dyn Bootstrap,
    access: &mut [PeerAccess],
    heaps: &[ExportedHeap],
) -> Result<(Option<MappedHeaps>, bool), Unmapped> {
    loop {
        let here: Vec<bool> = access.iter().map(|way| matches!(way, PeerAccess::P2p(_))).collect();
        match map_all(config, machine, bootstrap, &here, heaps) {
            Err(Unmapped { pe, why }) if config.peer_path == PeerPath::Auto => {
                tracing::warn!("PE {pe} is reached through the NIC, as its memory cannot be mapped: {why}");
                access[pe] = PeerAccess::Nic(format!("its memory cannot be mapped: {why}"));
            }
            outcome => return outcome,
        }
    }
}

/// Maps the memory of the PEs that are true in `here`. Gives where, and whether the atomics of all processors that map it
/// exclude each other; or the PE whose memory cannot be mapped.
fn map_all(
    config: &Config,
    machine: &dyn Machine,
    bootstrap: &dyn Bootstrap,
    here: &[bool],
    heaps: &[ExportedHeap],
) -> Result<(Option<MappedHeaps>, bool), Unmapped> {
    let Some(first) = here.iter().position(|&here| here) else { return Ok((None, true)) };
    let last = here.iter().rposition(|&here| here).unwrap_or(first);
    let bytes = heaps[first..=last].iter().map(|exported| exported.bytes).max().unwrap_or(0);
    let slots = (last - first + 1) as u32;
    let unmapped = |pe: usize| move |error: Error| Unmapped { pe, why: error.to_string() };
    let mut window = machine.window(slots, bytes).map_err(unmapped(first))?;
    let mut atomics = true;
    for pe in (first..=last).filter(|&pe| here[pe]) {
        let heap = find(config, bootstrap, &heaps[pe]);
        let exclude = heap.and_then(|heap| window.map((pe - first) as u32, heap));
        atomics &= exclude.map_err(unmapped(pe))?;
    }
    Ok((Some(MappedHeaps { window, first: first as u32 }), atomics))
}

/// The memory of a PE of this node.
fn find(config: &Config, bootstrap: &dyn Bootstrap, exported: &ExportedHeap) -> Result<PeerHeap> {
    if let Some(heap) = local_heaps::find(&exported.name) {
        return Ok(PeerHeap::Local(heap));
    }
    let unavailable = |why: String| Error::Unavailable { what: "its file".into(), why };
    let token = bootstrap.token().ok_or_else(|| unavailable("it is not of this process".into()))?;
    let file = fd_server::fetch(&exported.name, token, config.bootstrap_timeout)
        .map_err(|error| unavailable(error.to_string()))?;
    Ok(PeerHeap::File { file, bytes: exported.bytes })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytemuck::Zeroable;

    use super::*;
    use crate::bootstrap::Threads;
    use crate::machine::{LimitedMachine, Native};
    use crate::native::Options;

    /// What each of `n` PEs as threads finds.
    fn reach(n: u32, config: &Config, machine: impl Fn() -> Box<dyn Machine> + Sync) -> Vec<Result<PeerMap>> {
        let pes = Threads::job(n, Duration::from_secs(20));
        std::thread::scope(|scope| {
            let one = |pe: Threads| {
                let machine = &machine;
                scope.spawn(move || {
                    let machine = machine();
                    let heap = machine.heap(8192, true)?;
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

    fn direct() -> Config {
        let mut config = Config::default();
        config.set("peer_path", "p2p").unwrap();
        config
    }

    #[test]
    fn a_peer_that_cannot_be_mapped_is_named_with_the_cause() {
        let found = reach(2, &direct(), || Box::new(LimitedMachine::without_windows()));
        let told: Vec<String> =
            found.into_iter().filter_map(|reach| Some(reach.err()?.to_string())).collect();
        let words = "the memory of PE 1, for the loads and stores of PE 0, is not available: a map is not available: \
                     there is no paper; set RUSHMEM_PEER_PATH=auto";
        assert!(told.iter().any(|told| told == words), "{told:?}");
    }

    #[test]
    fn kernels_know_whether_heaps_are_mapped_of_near_pes_only() {
        let found = reach(1, &direct(), || Box::new(Native::new(Options::default(), 1)));
        let reach = &found.into_iter().collect::<Result<Vec<_>>>().unwrap()[0];
        let told = |mapped: [bool; 4]| {
            let peers = mapped.map(|mapped| PeerDesc { direct: DevAddr(if mapped { 4096 } else { 0 }) });
            let mut parts = CtxParts { pe: 1, n_pes: 4, ..CtxParts::zeroed() };
            reach.describe(&mut parts, &peers);
            ((parts.p2p_from, parts.p2p_count), parts.flags & ctx_flags::NO_P2P_OTHERS != 0)
        };
        assert_eq!(told([true, true, false, false]), ((0, 2), true));
        assert_eq!(told([false; 4]), ((0, 0), true));
        // Mapped, and no neighbour.
        assert_eq!(told([false, true, false, true]), ((1, 1), false));
        assert_eq!(told([true, false, true, true]), ((0, 0), false));
    }

    #[test]
    fn memory_of_a_peer_stays_mapped_when_the_peer_has_gone() {
        let found = reach(2, &direct(), || Box::new(Native::new(Options::default(), 1)));
        let found: Vec<PeerMap> = found.into_iter().collect::<Result<_>>().unwrap();
        // The heaps themselves are gone; what is mapped is there all the same.
        let at = found[0].mapped(1).unwrap();
        // SAFETY: mapped as long as `found` lives, and nobody else uses it.
        unsafe { at.ptr::<u64>().add(1000).write(7) };
        assert!(found.iter().all(|reach| reach.atomics && reach.mapped(2).is_none()));
        assert_eq!(local_heaps::find("no such name").map(|heap| heap.addr), None);
    }
}
