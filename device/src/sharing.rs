//! Sharing modes: type parameters of contexts that tell which threads post to the same QP.

use core::marker::PhantomData;

use crate::arch::{Cta, Gpu, Scope};

/// Set of threads that may post to a QP concurrently.
pub trait Sharing: Copy + sealed::Sealed + 'static {
    /// Whether more than one thread may post to a QP.
    const SHARED: bool;
    /// Whether doorbells are delayed: see [`Batch`](crate::Batch).
    const BATCHED: bool = false;
    /// Whether converged lanes decide together if a word is in mapped memory: see `Ctx::p2p_addr`.
    const VOTES: bool = true;
    /// Memory scope that includes all threads that post to a QP.
    type Scope: Scope;
}

/// A QP is used by one thread. Posting needs no atomics and no doorbell protocol.
#[derive(Clone, Copy, Debug)]
pub struct Exclusive;

/// A QP is shared by the threads of one block.
#[derive(Clone, Copy, Debug)]
pub struct PerBlock;

/// A QP is shared by all threads of the GPU. This is the default.
#[derive(Clone, Copy, Debug)]
pub struct PerGpu;

/// A QP is shared as with [`PerGpu`], by kernels in other languages, which load the context in every call.
#[derive(Clone, Copy, Debug)]
pub struct Foreign;

impl Sharing for Exclusive {
    const SHARED: bool = false;
    type Scope = Cta;
}
impl Sharing for PerBlock {
    const SHARED: bool = true;
    type Scope = Cta;
}
impl Sharing for PerGpu {
    const SHARED: bool = true;
    type Scope = Gpu;
}
impl Sharing for Foreign {
    const SHARED: bool = true;
    const VOTES: bool = false;
    type Scope = Gpu;
}

/// Sharing mode `S` within a [`Batch`](crate::Batch), which delays doorbells.
#[derive(Clone, Copy, Debug)]
pub struct Batched<S>(PhantomData<S>);

impl<S: Sharing> Sharing for Batched<S> {
    const SHARED: bool = S::SHARED;
    const BATCHED: bool = true;
    const VOTES: bool = S::VOTES;
    type Scope = S::Scope;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Exclusive {}
    impl Sealed for super::PerBlock {}
    impl Sealed for super::PerGpu {}
    impl Sealed for super::Foreign {}
    impl<S: super::Sharing> Sealed for super::Batched<S> {}
}
