//! Faults that a device can be asked to show: a missing feature, or the refusal of a call.

use std::fmt;

macro_rules! faults {
    ($($variant:ident = $name:literal, $doc:literal;)*) => {
        /// A fault that a device shows if the settings ask for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = $doc] $variant,)*
        }

        impl Fault {
            /// Every fault.
            pub const ALL: &'static [Fault] = &[$(Fault::$variant),*];

            /// Returns the name by which the settings refer to the fault.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Fault::$variant => $name,)*
                }
            }

            /// Returns a description of the fault's effect, for users.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Fault::$variant => $doc,)*
                }
            }
        }
    };
}

faults! {
    Open = "open=EACCES", "Opening the device node fails with EACCES, as for a user without permission.";
    UmemOnce = "umem-once", "The first DevX umem of a context is refused with EOPNOTSUPP, as a kernel refuses one in GPU memory.";
    CqOnce = "cq-once", "The first CREATE_CQ of DevX in a context is refused with BAD_PARAM, as firmware refuses queues in GPU memory.";
    QpOnce = "qp-once", "The first CREATE_QP of DevX in a context is refused with BAD_PARAM.";
    Memlock = "memlock", "Registering memory fails with ENOMEM, as if RLIMIT_MEMLOCK were too small.";
    Devx = "devx", "A context that asks for DevX is refused with EPERM, as by an old or unprivileged device.";
    OldKernel = "old-kernel", "A DevX command that firmware refuses fails with an error code alone, as on Linux before 5.18, which does not return the status and the syndrome.";
    DevxUmem = "devx-umem", "Registering a DevX umem fails with EOPNOTSUPP.";
    DmaBuf = "dmabuf", "Registering a dma-buf, as memory region or umem, fails with EOPNOTSUPP.";
    DataDirect = "data-direct", "A data-direct device belongs to the device, as to a ConnectX-8 beside a B300. Dma-bufs can be registered through it.";
    DataDirectMemory = "data-direct-memory", "Registering a dma-buf through the data-direct device fails with EOPNOTSUPP, as for memory that it cannot reach.";
    Uar = "uar", "Doorbell pages of both types are refused with ENOMEM.";
    UarBf = "uar-bf", "Doorbell pages of type BlueFlame are refused with ENOMEM.";
    UarMmap = "uar-mmap", "Doorbell pages can be allocated, but not mapped.";
    VerbsQp = "verbs-qp", "Queue pairs of verbs are refused with ENOMEM. Queue pairs of DevX are not.";
    Bond = "bond", "The port is a bond of two ports, which QUERY_LAG reports. A queue pair can choose the one that sends.";
    VirtualFunction = "virtual-function", "The device is a virtual function, with its PCI ID. It has no ECE options, places no packets out of order, and does not let queue pairs choose a port of a bond.";
    Syndromes = "syndromes", "A refused command has a syndrome that nobody can look up, as that of firmware.";
    PortDown = "port-down", "The port reports that it is down, and carries no traffic.";
    IdlePorts = "idle-ports", "The ports of all devices but the first are down, as where nothing is connected to them.";
    NoGid = "no-gid", "The table of GIDs is empty.";
    GidV1Only = "gid-v1-only", "The table of GIDs has RoCEv1 entries only, which this device cannot use.";
    ForeignGids = "foreign-gids", "The table of GIDs begins with those of another network namespace, as of a pod that shares the port.";
    OtherSubnet = "other-subnet", "The port of an InfiniBand device is in another subnet, with prefix fec0::/64.";
    FewReads = "few-reads", "A queue pair has at most 4 outstanding READs and atomics, a quarter of what a ConnectX-7 allows.";
    RealTime = "real-time", "The clock is set to real time: queue pairs with free-running timestamps are refused.";
    NoRecord = "no-record", "The device offers queue pairs without a doorbell record, and refuses to create them.";
    NoAtomics = "atomics=none", "The device reports no atomics, and queue pairs do not grant them.";
    NoSelfLoop = "no-self-loop", "A queue pair cannot connect to itself: INIT2RTR_QP is refused.";
    Path = "path", "INIT2RTR_QP is refused with BAD_PARAM, as by firmware that does not accept a field of the path.";
    NoLoopback = "no-loopback", "Queue pairs of one device cannot connect to each other: INIT2RTR_QP is refused.";
    PeerGone = "peer-gone", "No packet reaches another adapter.";
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        let mut names: Vec<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Fault::ALL.len());
    }

    #[test]
    fn the_page_lists_every_fault() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/softnic.md");
        let page = std::fs::read_to_string(path).unwrap();
        for fault in Fault::ALL {
            let row = format!("| `{}` | {} |", fault.name(), fault.meaning());
            assert!(page.contains(&row), "docs/softnic.md lacks {row}");
        }
    }
}
