//! One binary for all: linking takes longer than running.

mod atomics;
mod contexts;
mod errors;
mod jobs;
mod rma;
mod setups;
mod signals;
