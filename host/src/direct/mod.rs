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
        let name: String = nonce()?.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let _listed = Listed::new(&name, heap);
        let _door = match (bootstrap.token(), &heap.file) {
            (Some(token), Some(file)) => Some(Door::open(&name, file.clone(), token.clone())?),
            _ => None,
        };
        let mine = Card { name, place: place(config), bytes: heap.memory.len() };
        let cards = exchange(bootstrap, &mine)?;
        let way = |(pe, card): (u32, &Card)| {
            if pe == me {
                return Ok(Way::Own);
            }
            if group(config, pe) != group(config, me) {
                return Ok(Way::Nic(ANOTHER_GROUP.into()));
            }
            if table::find(&card.name).is_none() && (card.place.is_none() || card.place != mine.place) {
                return Ok(Way::Nic("it is on another node".into()));
            }
            map(config, machine, bootstrap, card).map_err(|error| Error::Unavailable {
                what: format!("the memory of PE {pe}, for the loads and stores of PE {me},"),
                why: format!("{error}; set RUSHMEM_PEER_PATH=auto"),
            })
        };
        let ways: Vec<Way> = (0..).zip(&cards).map(way).collect::<Result<_>>()?;
        let all = ways.iter().all(|way| match way {
            Way::Own => true,
            Way::Mapped(mapped, _) => mapped.atomics,
            Way::Nic(_) => false,
        });
        // When all have said so, all have mapped what they can: the table and the door are not needed any more.
        let everybody = bootstrap.allgather("rushmem.mapped", &[all.into()])?;
        Ok(Self { ways, atomics: everybody.iter().all(|theirs| theirs == &[1]) })
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
