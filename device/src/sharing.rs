//! Sharing: which threads post to a QP, as a type parameter selected with the queues.

use core::marker::PhantomData;

use crate::arch::{Cta, Gpu, Scope};

/// The set of threads that may post to a QP concurrently.
pub trait Sharing: Copy + sealed::Sealed + 'static {
    /// Whether more than one thread may post.
    const SHARED: bool;
    /// Whether doorbells are delayed: see [`Batch`](crate::Batch).
    const BATCHED: bool = false;
    /// The scope that includes all posters.
    type Scope: Scope;
}

/// One thread. Posting needs no atomics and no doorbell protocol.
#[derive(Clone, Copy, Debug)]
pub struct Exclusive;

/// The threads of one block.
#[derive(Clone, Copy, Debug)]
pub struct PerBlock;

/// All threads of the GPU. The default.
#[derive(Clone, Copy, Debug)]
pub struct PerGpu;

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

/// The sharing `S` within a [`Batch`](crate::Batch), which delays announcements.
#[derive(Clone, Copy, Debug)]
pub struct Batched<S>(PhantomData<S>);

impl<S: Sharing> Sharing for Batched<S> {
    const SHARED: bool = S::SHARED;
    const BATCHED: bool = true;
    type Scope = S::Scope;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Exclusive {}
    impl Sealed for super::PerBlock {}
    impl Sealed for super::PerGpu {}
    impl<S: super::Sharing> Sealed for super::Batched<S> {}
}
