//! One binary for all: linking takes longer than running.

mod atomics;
mod connect;
mod contexts;
mod direct;
mod errors;
mod jobs;
mod memory;
mod program;
mod rma;
mod setups;
mod signals;
mod teams;
