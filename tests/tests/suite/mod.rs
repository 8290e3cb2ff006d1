//! One binary for all suites, since linking takes longer than running.

mod arguments;
mod atomics;
mod collectives;
mod connect;
mod contexts;
mod errors;
mod flush;
mod host_collectives;
mod host_initiated;
mod jobs;
mod launches;
mod life;
mod locks;
mod memory;
mod mixed;
mod modules;
mod p2p;
mod posting;
mod program;
mod rma;
mod setups;
mod signals;
mod streams;
mod strided;
mod teams;
mod waits;
