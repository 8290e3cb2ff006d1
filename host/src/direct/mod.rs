//! Direct peers: PEs whose heaps are mapped here, so that kernels reach them by loads and stores.
//!
//! Each PE gives its heap a random name. What has that name in this process's own table is a heap of a thread beside it;
//! that of another process on the node comes as a file descriptor through a socket of that name. Everybody else is
//! reached through the NIC.
//!
//! Atomics go one way in the whole job: by the processors if every PE has mapped every other, through the NIC of the
//! heap's owner if one has not, since the two are not atomic with each other.

mod door;
mod table;

use std::fs;

use bytemuck::Zeroable;
use rushmem_device::abi::{CtxParts, DevAddr, PeerDesc, peer_flags};
use serde::{Deserialize, Serialize};

use self::door::Door;
use self::table::Listed;
use crate::bootstrap::{Bootstrap, nonce};
use crate::config::{Config, PeerPath};
use crate::machine::{Exported, Machine, Mapped, Region};
use crate::{Error, Result};

/// How a peer is reached, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Path {
    /// The peer.
    pub pe: u32,
    /// `direct` or the NIC's name.
    pub via: String,
    /// Why.
    pub why: String,
}

/// How each PE of the job is reached from this one. Keeps their heaps mapped.
pub(crate) struct Reach {
    ways: Vec<Way>,
    /// All PEs of the job are mapped to each other, so that their processors do the atomics.
    atomics: bool,
}

enum Way {
    /// This PE's own memory.
    Own,
    /// Its heap is mapped here.
    Mapped(Mapped, &'static str),
    /// Through the NIC, for this reason.
    Nic(String),
}

/// What a PE tells the others of its heap.
#[derive(Serialize, Deserialize)]
struct Card {
    name: String,
    /// Where a socket and a file of this PE can be used; `None` if that is unknown.
    place: Option<String>,
    bytes: u64,
}

/// Why all other PEs are reached through the NIC, if they are.
fn nic_for_all(config: &Config, gpu: bool) -> Option<&'static str> {
    match config.peer_path {
        PeerPath::Direct => None,
        PeerPath::Nic => Some("RUSHMEM_PEER_PATH=nic"),
        PeerPath::Auto if gpu => {
            Some("the direct path is not yet proven on GPUs: set RUSHMEM_PEER_PATH=direct for it")
        }
        PeerPath::Auto => {
            Some("native kernels take the way that they test; RUSHMEM_PEER_PATH=direct maps the node's heaps")
        }
    }
}

/// Whether this job maps heaps of other PEs, so that its own must be such that others can map it.
pub(crate) fn wanted(config: &Config, n_pes: u32) -> bool {
    config.peer_path == PeerPath::Direct && n_pes > 1
}

/// How PE `me` of `n_pes` on one node would reach each PE with these settings, `nic` being the name of its NIC.
pub(crate) fn expected(config: &Config, me: u32, n_pes: u32, nic: &str, gpu: bool) -> Vec<Path> {
    let grouped = |pe: u32| group(config, pe) == group(config, me);
    let all = n_pes == 1 || config.peer_path == PeerPath::Direct && (0..n_pes).all(grouped);
    let path = |pe: u32| {
        let (direct, why) = match nic_for_all(config, gpu) {
            _ if pe == me => own(config, all),
            Some(why) => (false, why),
            None if grouped(pe) => (true, "RUSHMEM_PEER_PATH=direct, if it is on this node"),
            None => (false, ANOTHER_GROUP),
        };
        Path { pe, via: if direct { "direct" } else { nic }.into(), why: why.into() }
    };
    (0..n_pes).map(path).collect()
}

const ANOTHER_GROUP: &str = "it is of another group (RUSHMEM_DIRECT_GROUP)";

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
    pe.checked_div(config.direct_group).unwrap_or(0)
}

/// Names this machine, its network namespace and the node of the job. Two "nodes" that are one machine are told apart.
fn place(config: &Config) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let net = fs::read_link("/proc/self/ns/net").ok()?;
    Some(format!("{} {} {:?}", boot.trim(), net.display(), config.node))
}

impl Reach {
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
        if !wanted(config, n_pes) {
            let why = nic_for_all(config, machine.is_gpu()).unwrap_or_default();
            let way = |pe| if pe == me { Way::Own } else { Way::Nic(why.into()) };
            let atomics = n_pes == 1 && config.peer_path != PeerPath::Nic;
            return Ok(Self { ways: (0..n_pes).map(way).collect(), atomics });
        }
        let shown = Shown::new(config, bootstrap, heap)?;
        let mine = &shown.card;
        let cards = exchange(bootstrap, mine)?;
        let way = |(pe, card): (u32, &Card)| {
            if pe == me {
                return Ok(Way::Own);
            }
            if group(config, pe) != group(config, me) {
                return Ok(Way::Nic(ANOTHER_GROUP.into()));
            }
            if table::find(&card.name).is_none() && (card.place.is_none() || card.place != mine.place) {
                return Ok(Way::Nic("it is on another node, or in another network namespace".into()));
            }
            map(config, machine, bootstrap, card).map_err(|error| Error::Unavailable {
                what: format!("the memory of PE {pe}, for the loads and stores of PE {me},"),
                why: format!("{error}; set RUSHMEM_PEER_PATH=auto"),
            })
        };
        let ways: Result<Vec<Way>> = (0..).zip(&cards).map(way).collect();
        let everything = |ways: &Vec<Way>| {
            ways.iter().all(|way| match way {
                Way::Own => true,
                Way::Mapped(mapped, _) => mapped.atomics,
                Way::Nic(_) => false,
            })
        };
        let all = ways.as_ref().is_ok_and(everything);
        // Also by one that has failed: the others may have yet to map its heap, which they find no longer than until now.
        let everybody = bootstrap.allgather("rushmem.mapped", &[all.into()])?;
        Ok(Self { ways: ways?, atomics: everybody.iter().all(|theirs| theirs == &[1]) })
    }

    /// Maps memory that every PE has made, `ours` being this PE's: that of the PEs whose heaps are mapped. Collective.
    /// Gives where each PE's is for kernels, 0 if it is not mapped, and what keeps it so.
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
    ) -> Result<(Vec<DevAddr>, Vec<Mapped>)> {
        let own = if config.peer_path == PeerPath::Nic { DevAddr(0) } else { ours.addr };
        let mut addrs: Vec<DevAddr> =
            self.ways.iter().map(|way| if matches!(way, Way::Own) { own } else { DevAddr(0) }).collect();
        let mut mappings = Vec::new();
        if !wanted(config, bootstrap.n_pes()) {
            return Ok((addrs, mappings));
        }
        let shown = Shown::new(config, bootstrap, ours)?;
        let cards = exchange(bootstrap, &shown.card)?;
        let mut outcome = Ok(());
        for (pe, card) in cards.iter().enumerate().filter(|(pe, _)| matches!(self.ways[*pe], Way::Mapped(..)))
        {
            match map(config, machine, bootstrap, card) {
                Ok(Way::Mapped(mapped, _)) => {
                    addrs[pe] = mapped.mapping.addr();
                    mappings.push(mapped);
                }
                Ok(_) => {}
                Err(error) => {
                    outcome = Err(Error::Unavailable {
                        what: format!("this memory of PE {pe} for loads and stores"),
                        why: format!("{error}; set RUSHMEM_PEER_PATH=auto"),
                    });
                }
            }
        }
        // Ends the showing too: all have looked.
        let told = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let all = bootstrap.allgather("rushmem.mapped", told.as_bytes())?;
        outcome?;
        match all.iter().position(|theirs| !theirs.is_empty()) {
            None => Ok((addrs, mappings)),
            Some(pe) => {
                let why = String::from_utf8_lossy(&all[pe]).into_owned();
                Err(Error::Elsewhere { pe: pe as u32, call, why })
            }
        }
    }

    /// The descriptors for kernels, where this PE's own heap lies at `heap`.
    pub(crate) fn descriptors(&self, config: &Config, heap: DevAddr) -> Vec<PeerDesc> {
        let describe = |way: &Way| {
            let direct = match way {
                Way::Own if config.peer_path == PeerPath::Nic => DevAddr(0),
                Way::Own => heap,
                Way::Mapped(mapped, _) => mapped.mapping.addr(),
                Way::Nic(_) => DevAddr(0),
            };
            let flags = if self.atomics { peer_flags::DIRECT_ATOMICS } else { 0 };
            PeerDesc { direct, flags, ..Zeroable::zeroed() }
        };
        self.ways.iter().map(describe).collect()
    }

    /// Where the heap of `pe` is mapped for kernels; `None` if it is not.
    pub(crate) fn mapped(&self, pe: u32) -> Option<DevAddr> {
        match self.ways.get(pe as usize)? {
            Way::Mapped(mapped, _) => Some(mapped.mapping.addr()),
            Way::Own | Way::Nic(_) => None,
        }
    }

    /// The PEs that kernels never reach through the NIC, so that they need no QP.
    pub(crate) fn without_nic(&self) -> Vec<bool> {
        self.ways.iter().map(|way| self.atomics && !matches!(way, Way::Nic(_))).collect()
    }

    /// How each PE is reached, where `nic` is this PE's NIC.
    pub(crate) fn paths(&self, config: &Config, nic: &str) -> Vec<Path> {
        let path = |(pe, way): (u32, &Way)| {
            let (direct, why) = match way {
                Way::Own => own(config, self.atomics),
                Way::Mapped(_, how) => (true, *how),
                Way::Nic(why) => (false, why.as_str()),
            };
            let mut why = why.to_string();
            if matches!(way, Way::Mapped(..)) && !self.atomics {
                why += "; atomics through the NIC, as not all PEs of the job are mapped to each other";
            }
            Path { pe, via: if direct { "direct" } else { nic }.into(), why }
        };
        (0..).zip(&self.ways).map(path).collect()
    }
}

/// Memory of this PE, which others find by its name as long as this lives.
struct Shown {
    card: Card,
    _listed: Listed,
    _door: Option<Door>,
}

impl Shown {
    fn new(config: &Config, bootstrap: &dyn Bootstrap, memory: &Region) -> Result<Self> {
        let name: String = nonce()?.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let _listed = Listed::new(&name, memory);
        let _door = match (bootstrap.token(), &memory.file) {
            (Some(token), Some(file)) => Some(Door::open(&name, file.clone(), token.clone())?),
            _ => None,
        };
        Ok(Self { card: Card { name, place: place(config), bytes: memory.memory.len() }, _listed, _door })
    }
}

/// Tells kernels which PEs they reach both ways, so that `fence` looks at these.
pub(crate) fn mark_mixed(parts: &mut CtxParts, peers: &[PeerDesc]) {
    let mixed = |peer: &PeerDesc| peer.direct.0 != 0 && peer.flags & peer_flags::DIRECT_ATOMICS == 0;
    if let Some(first) = peers.iter().position(mixed) {
        parts.mixed_from = first as u32;
        parts.mixed_to = 1 + peers.iter().rposition(mixed).unwrap_or(first) as u32;
    }
}

fn exchange(bootstrap: &dyn Bootstrap, mine: &Card) -> Result<Vec<Card>> {
    let malformed = |pe: usize| Error::Misuse {
        call: "start",
        what: format!("PE {pe} sent a malformed card of its heap"),
    };
    let card = serde_json::to_vec(mine).map_err(|_| malformed(bootstrap.pe() as usize))?;
    let cards = bootstrap.allgather("rushmem.heaps", &card)?;
    let parse = |(pe, bytes): (usize, &Vec<u8>)| serde_json::from_slice(bytes).map_err(|_| malformed(pe));
    cards.iter().enumerate().map(parse).collect()
}

/// Maps the heap of a PE of this node.
fn map(config: &Config, machine: &dyn Machine, bootstrap: &dyn Bootstrap, card: &Card) -> Result<Way> {
    if let Some(heap) = table::find(&card.name) {
        return Ok(Way::Mapped(machine.map_heap(Exported::Here(heap))?, "a thread of the same process"));
    }
    let unavailable = |why: String| Error::Unavailable { what: "its file".into(), why };
    let token = bootstrap.token().ok_or_else(|| unavailable("it is not of this process".into()))?;
    let file = door::fetch(&card.name, token, config.bootstrap_timeout)
        .map_err(|error| unavailable(error.to_string()))?;
    let exported = Exported::File { file, bytes: card.bytes };
    Ok(Way::Mapped(machine.map_heap(exported)?, "a process of the same node, which shares its memory"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use cudarc::driver::CudaStream;
    use rushmem_device::kernel::Call;

    use super::*;
    use crate::bootstrap::Threads;
    use crate::machine::{Grid, Mapping, Native, PageKind, Queue, Recording, Step};
    use crate::memory::Place;
    use crate::native::Options;

    /// Native memory, and no way to map that of others.
    struct Alone(Native);

    impl Machine for Alone {
        fn describe(&self) -> String {
            self.0.describe()
        }
        fn is_gpu(&self) -> bool {
            false
        }
        fn grid(&self) -> Grid {
            self.0.grid()
        }
        fn shared(&self, bytes: u64) -> Result<Region> {
            self.0.shared(bytes)
        }
        fn local(&self, bytes: u64) -> Result<Region> {
            self.0.local(bytes)
        }
        fn heap(&self, bytes: u64, shared: bool) -> Result<Region> {
            self.0.heap(bytes, shared)
        }
        fn map_heap(&self, _: Exported) -> Result<Mapped> {
            Err(Error::Unavailable { what: "a map".into(), why: "there is no paper".into() })
        }
        unsafe fn adopt(&self, place: Place, bytes: u64) -> Result<Region> {
            // SAFETY: the caller's promise.
            unsafe { self.0.adopt(place, bytes) }
        }
        unsafe fn map_page(&self, page: *mut u8, kind: PageKind) -> Result<Box<dyn Mapping>> {
            // SAFETY: the caller's promise.
            unsafe { self.0.map_page(page, kind) }
        }
        fn run(&self, step: Step, patience: Duration) -> Result<()> {
            self.0.run(step, patience)
        }
        fn queue(&self) -> Result<Box<dyn Queue>> {
            self.0.queue()
        }
        fn queue_of(&self, stream: &Arc<CudaStream>) -> Result<Box<dyn Queue>> {
            self.0.queue_of(stream)
        }
        fn record(&self, steps: Vec<Step>) -> Result<Recording> {
            self.0.record(steps)
        }
        fn room(&self, call: &Call, threads: u32, shared_bytes: u32) -> Result<u32> {
            self.0.room(call, threads, shared_bytes)
        }
    }

    /// What each of `n` PEs as threads finds.
    fn reach(n: u32, config: &Config, machine: impl Fn() -> Box<dyn Machine> + Sync) -> Vec<Result<Reach>> {
        let pes = Threads::job(n, Duration::from_secs(20));
        std::thread::scope(|scope| {
            let one = |pe: Threads| {
                let machine = &machine;
                scope.spawn(move || {
                    let machine = machine();
                    let heap = machine.heap(8192, true)?;
                    let reach = Reach::new(config, &*machine, &pe, &heap);
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
        config.set("peer_path", "direct").unwrap();
        config
    }

    #[test]
    fn a_peer_that_cannot_be_mapped_is_named_with_the_cause() {
        let found = reach(2, &direct(), || Box::new(Alone(Native::new(Options::default(), 1))));
        let told: Vec<String> =
            found.into_iter().filter_map(|reach| Some(reach.err()?.to_string())).collect();
        let words = "the memory of PE 1, for the loads and stores of PE 0, is not available: a map is not available: \
                     there is no paper; set RUSHMEM_PEER_PATH=auto";
        assert!(told.iter().any(|told| told == words), "{told:?}");
    }

    #[test]
    fn memory_of_a_peer_stays_mapped_when_the_peer_has_gone() {
        let found = reach(2, &direct(), || Box::new(Native::new(Options::default(), 1)));
        let found: Vec<Reach> = found.into_iter().collect::<Result<_>>().unwrap();
        // The heaps themselves are gone; what is mapped is there all the same.
        let at = found[0].mapped(1).unwrap();
        // SAFETY: mapped as long as `found` lives, and nobody else uses it.
        unsafe { at.ptr::<u64>().add(1000).write(7) };
        assert!(found.iter().all(|reach| reach.atomics && reach.mapped(2).is_none()));
        assert_eq!(table::find("no such name").map(|heap| heap.addr), None);
    }
}
