//! One binary for all: linking takes longer than running.

mod atomics;
mod collectives;
mod connect;
mod contexts;
mod direct;
mod errors;
mod jobs;
mod life;
mod memory;
mod program;
mod rma;
mod setups;
mod signals;
mod teams;
