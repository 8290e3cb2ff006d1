//! Who else posts to a QP: a type parameter, chosen where the queues are taken.

use core::marker::PhantomData;

use crate::arch::{Cta, Gpu, Scope};

/// Who may post to one QP at the same time.
pub trait Sharing: Copy + sealed::Sealed + 'static {
    /// True if more than one thread may.
    const SHARED: bool;
    /// True if doorbells are held back: see [`Batch`](crate::Batch).
    const BATCHED: bool = false;
    /// The scope at which posters meet.
    type Scope: Scope;
}

/// One thread alone.
#[derive(Clone, Copy, Debug)]
pub struct Exclusive;

/// The threads of one block.
#[derive(Clone, Copy, Debug)]
pub struct PerBlock;

/// All threads of the GPU.
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

/// Those of `S`, in a [`Batch`](crate::Batch): what they post is held back until somebody needs it.
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
