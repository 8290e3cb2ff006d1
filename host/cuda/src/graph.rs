#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUgraphNode};

use crate::error::{check, check_about, log_drop};
use crate::{Device, Error, Function, Stream};
use rushmem_base::Grid;

/// Kernels that one call launches, one after the other.
///
/// Their memory is the graph's own: nothing of them is made at a launch, so launching one waits for no kernel.
pub struct GraphExec {
    device: Arc<Device>,
    raw: CUgraphExec,
}

// SAFETY: an executable graph may be launched by any thread; the driver locks for itself.
unsafe impl Send for GraphExec {}
// SAFETY: as above.
unsafe impl Sync for GraphExec {}

/// A kernel of a graph: what it is, its grid, and each argument as its bytes.
pub type Node<'a> = (&'a Function, Grid, Vec<&'a [u8]>);

/// A graph before it is made executable.
struct Graph(CUgraph);

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made in `GraphExec::new`, destroyed once; the context is current there.
        log_drop("a graph", check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(self.0) }));
    }
}

impl GraphExec {
    /// Makes a graph of kernels, and brings it to the GPU of `stream`, which has nothing else to do.
    ///
    /// # Errors
    /// [`Error::Arguments`] where the driver tells the sizes of a kernel's parameters, or what the driver says.
    ///
    /// # Safety
    /// As [`Function::launch`], for each launch of the graph.
    pub unsafe fn new(stream: &Stream, nodes: &[Node<'_>]) -> Result<Self, Error> {
        let device = Arc::clone(stream.device());
        let _alone = device.alone()?;
        let mut graph: CUgraph = ptr::null_mut();
        // SAFETY: the context is current, and the graph is written to a live variable.
        check("cuGraphCreate", unsafe { sys::cuGraphCreate(&mut graph, 0) })?;
        let graph = Graph(graph);
        let mut before: Option<CUgraphNode> = None;
        for (function, grid, arguments) in nodes {
            let parameters = function.node(*grid, arguments)?;
            let mut node: CUgraphNode = ptr::null_mut();
            let (first, count) = before.as_ref().map_or((ptr::null(), 0), |node| (ptr::from_ref(node), 1));
            // SAFETY: a live graph and a node of it; the parameters hold a pointer for each argument, which the driver
            // copies before it returns.
            let result = unsafe {
                sys::cuGraphAddKernelNode_v2(&mut node, graph.0, first, count, parameters.as_driver())
            };
            check_about("cuGraphAddKernelNode", result, || format!("for {}", function.name()))?;
            before = Some(node);
        }
        let mut raw: CUgraphExec = ptr::null_mut();
        // SAFETY: a live graph, and a live variable. Destroyed in `drop`.
        check("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, graph.0, 0) })?;
        let made = Self { device: Arc::clone(&device), raw };
        // SAFETY: a live graph and stream.
        check("cuGraphUpload", unsafe { sys::cuGraphUpload(made.raw, stream.raw()) })?;
        stream.synchronize()?;
        Ok(made)
    }

    /// Queues a launch of all kernels.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// What its kernels reach is still there.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), Error> {
        let _current = self.device.current()?;
        // SAFETY: a live graph and stream; the caller's promise.
        let launch = || unsafe { sys::cuGraphLaunch(self.raw, stream.raw()) };
        check("cuGraphLaunch", stream.in_turn(launch)?)
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let destroy = || {
            let _alone = self.device.alone()?;
            // SAFETY: made in `new`, destroyed once.
            check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(self.raw) })
        };
        log_drop("an executable graph", destroy());
    }
}
