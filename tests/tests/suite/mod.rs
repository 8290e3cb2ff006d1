//! One binary for all: linking takes longer than running.

mod rma;
mod setups;
