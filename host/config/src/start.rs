//! How the PEs of a job find each other.

use std::fmt;

use crate::value::{Choice, Value};

/// Launcher or method that starts a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootstrapKind {
    /// Whatever the environment indicates. It is an error if it indicates several methods, or one incompletely.
    Auto,
    /// The PEs are threads of this process. Variables of launchers are ignored.
    Threads,
    /// The processes were started by `rushmem run`.
    Rushmem,
    /// A unique ID: `RUSHMEM_ID`, with `RUSHMEM_PE` and `RUSHMEM_N_PES`.
    Id,
    /// A launcher that speaks PMI-1, such as MPICH's `mpiexec`.
    Pmi1,
    /// A launcher that speaks PMI-2, such as `srun --mpi=pmi2`.
    Pmi2,
    /// A launcher that speaks PMIx, such as Open MPI's `mpirun` or `srun --mpi=pmix`.
    Pmix,
    /// PyTorch's launcher `torchrun`.
    Torchrun,
}

impl Choice for BootstrapKind {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("auto", BootstrapKind::Auto),
        ("threads", BootstrapKind::Threads),
        ("rushmem", BootstrapKind::Rushmem),
        ("id", BootstrapKind::Id),
        ("pmi1", BootstrapKind::Pmi1),
        ("pmi2", BootstrapKind::Pmi2),
        ("pmix", BootstrapKind::Pmix),
        ("torchrun", BootstrapKind::Torchrun),
    ];
}

impl fmt::Display for BootstrapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

/// Which kind of address to use on a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFamily {
    /// An IPv4 address if there is one, otherwise an IPv6 address.
    Auto,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
}

impl Choice for AddressFamily {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", AddressFamily::Auto), ("ipv4", AddressFamily::Ipv4), ("ipv6", AddressFamily::Ipv6)];
}
