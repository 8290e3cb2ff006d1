//! One binary for all: linking takes longer than running.

mod atomics;
mod connect;
mod contexts;
mod direct;
mod errors;
mod host_initiated;
mod jobs;
mod launches;
mod program;
mod rma;
mod setups;
mod signals;
mod streams;
mod teams;
