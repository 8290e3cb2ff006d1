//! The objects of an Ethernet port: transport interfaces, tables of receive queues, flow tables, and the virtual port.
//!
//! Send and receive queues are [QPs](super::qp::Qp) of service [`Raw`](crate::roce::Service::Raw), since they share their
//! numbers, doorbells and completions.

pub(crate) mod flow;
mod vport;

use crate::table::Table;
use flow::FlowTables;
use rushmem_mlx5::prm::tir::{TirContext, TisContext};
pub(crate) use vport::Vport;

/// Maximum number of objects of each kind.
const MAX_OBJECTS: usize = 1 << 12;

/// All objects of Ethernet.
pub(crate) struct Ethernet {
    /// The contexts that own the transport domains.
    pub(crate) domains: Table<u32>,
    pub(crate) tiss: Table<Tis>,
    pub(crate) tirs: Table<Tir>,
    pub(crate) rqts: Table<Rqt>,
    pub(crate) flow: FlowTables,
    pub(crate) vport: Vport,
}

pub(crate) struct Tis {
    pub(crate) owner: u32,
    pub(crate) context: TisContext,
}

pub(crate) struct Tir {
    pub(crate) owner: u32,
    pub(crate) context: TirContext,
}

/// A table of receive queues.
pub(crate) struct Rqt {
    pub(crate) owner: u32,
    pub(crate) max_size: u16,
    /// RQNs, of which there is at least one.
    pub(crate) rqns: Vec<u32>,
}

impl Default for Ethernet {
    fn default() -> Ethernet {
        Ethernet {
            domains: Table::new(1, MAX_OBJECTS),
            tiss: Table::new(1, MAX_OBJECTS),
            tirs: Table::new(1, MAX_OBJECTS),
            rqts: Table::new(1, MAX_OBJECTS),
            flow: FlowTables::default(),
            vport: Vport::default(),
        }
    }
}

impl Ethernet {
    /// Whether a TIR or a table names this receive queue.
    pub(crate) fn uses_rq(&self, rqn: u32) -> bool {
        let direct = self.tirs.iter().any(|(_, tir)| !tir.is_indirect() && tir.context.inline_rqn == rqn);
        direct || self.rqts.iter().any(|(_, rqt)| rqt.rqns.contains(&rqn))
    }

    /// Destroys all objects of a context.
    pub(crate) fn remove_all(&mut self, context: u32) {
        let Ethernet { domains, tiss, tirs, rqts, flow, vport } = self;
        domains.remove_all(|owner| *owner == context);
        tiss.remove_all(|tis| tis.owner == context);
        tirs.remove_all(|tir| tir.owner == context);
        rqts.remove_all(|rqt| rqt.owner == context);
        flow.remove_all(context);
        if vport.owner == Some(context) {
            *vport = Vport::default();
        }
    }
}

impl Tir {
    pub(crate) fn is_indirect(&self) -> bool {
        self.context.disp_type == rushmem_mlx5::prm::tir::Dispatch::INDIRECT
    }

    /// Whether the TIR rejects frames that its own function has sent.
    pub(crate) fn blocks(&self, is_group: bool) -> bool {
        let bit = if is_group { TirContext::BLOCK_MULTICAST } else { TirContext::BLOCK_UNICAST };
        self.context.self_lb_block & bit != 0
    }
}
