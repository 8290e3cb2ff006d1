//! Tests of the device API through every layer: kernels, send queues, NIC, memory.
//!
//! The tests run on the CPU, or, with `RUSHMEM_DEVICE=gpu`, on a GPU.

mod suite;
