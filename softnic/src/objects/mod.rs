//! All objects that drivers have created: protection domains, keys, CQs, QPs and others, with their reference counts.

pub(crate) mod access;
mod cq;
mod dct;
pub(crate) mod ethernet;
pub(crate) mod groups;
mod lifecycle;
pub(crate) mod qp;
mod srq;
mod uar;

use crate::bus::Attached;
use crate::config::Faults;
use crate::dma::{Dma, Mkeys, Umem};
use crate::limits::{LOG_MAX_CQ, LOG_MAX_DCT, LOG_MAX_QP, LOG_MAX_XRCD};
use crate::rng::Rng;
use crate::table::Table;
pub(crate) use cq::Cq;
pub(crate) use dct::Dct;
use ethernet::Ethernet;
use groups::Groups;
use qp::Qp;
pub(crate) use srq::{OfXrcd, SharedSrq, Srq};
use std::collections::BTreeMap;
pub(crate) use uar::{Rung, UarPage};

/// Tables of all objects that drivers have created, by their numbers.
pub(crate) struct Objects {
    /// The buses of the contexts of PCI functions and their users.
    pub(crate) buses: BTreeMap<u32, Attached>,
    pub(crate) pds: Table<Pd>,
    pub(crate) uars: Table<UarPage>,
    pub(crate) umems: Table<Umem>,
    pub(crate) mkeys: Mkeys,
    /// Executes copies and atomics on registered memory.
    pub(crate) dma: Dma,
    pub(crate) cqs: Table<Cq>,
    pub(crate) xrcds: Table<Xrcd>,
    pub(crate) srqs: Table<SharedSrq>,
    pub(crate) qps: Table<Box<Qp>>,
    /// QPNs of the QPs that other adapters address as QP 0 and 1.
    special: [Option<u32>; 2],
    pub(crate) dcts: Table<Dct>,
    pub(crate) ethernet: Ethernet,
    pub(crate) groups: Groups,
}

pub(crate) struct Pd {
    pub(crate) owner: u32,
    /// Number of keys, QPs and SRQs that refer to the protection domain.
    pub(crate) users: u32,
}

/// An XRC domain. Every context may use it, since several processes may share a domain.
pub(crate) struct Xrcd {
    pub(crate) owner: u32,
    /// Number of XRC targets and SRQs that refer to the domain.
    pub(crate) users: u32,
}

impl Objects {
    /// Whether a context may use an object of context `owner`: the driver of a function may use those of its users.
    pub(crate) fn may_use(&self, context: u32, owner: u32) -> bool {
        owner == context || self.buses.get(&owner).is_some_and(|bus| bus.function == context)
    }

    /// Whether a context is that of a PCI function's driver, rather than of a program.
    pub(crate) fn is_function(&self, context: u32) -> bool {
        self.buses.get(&context).is_some_and(|bus| bus.function == context)
    }

    /// Creates empty tables. `numbers` draws the first QPN and the first key index, which are the lowest ones if it is
    /// `None`.
    pub(crate) fn new(faults: &Faults, numbers: &mut Option<Rng>) -> Objects {
        // QPs and DCTs share one number space, so a packet's destination is unambiguous.
        let numbered = (1 << LOG_MAX_QP) + (1 << LOG_MAX_DCT);
        let mut qps = Table::from_random(0x100, numbered, numbers.as_mut());
        let dcts = qps.split_off(1 << LOG_MAX_DCT);
        Objects {
            buses: BTreeMap::new(),
            pds: Table::new(1, 1 << 16),
            uars: Table::new(0x10, 1 << 16),
            umems: Table::new(1, 1 << 20),
            mkeys: Table::from_random(0x100, 1 << 20, numbers.as_mut()),
            dma: Dma::with_loose_atomics(faults.loose_atomic, Rng::new(faults.seed.rotate_left(32))),
            cqs: Table::new(0x400, 1 << LOG_MAX_CQ),
            xrcds: Table::new(1, 1 << LOG_MAX_XRCD),
            srqs: Table::new(1, 1 << 16),
            qps,
            special: [None; 2],
            dcts,
            ethernet: Ethernet::default(),
            groups: Groups::default(),
        }
    }
}
