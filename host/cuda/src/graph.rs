//! Executable graphs: several kernels that one driver call launches.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUgraph, CUgraphDependencyType, CUgraphEdgeData, CUgraphExec, CUgraphNode};

use crate::error::{check, check_with, log_drop};
use crate::{Device, Error, Function, Stream};
use rushmem_base::LaunchConfig;

/// A chain of kernels on one GPU, launched by one driver call. Each kernel starts after the previous one has completed.
///
/// The graph owns the memory that its launches need, so a launch allocates nothing and never waits for running kernels.
pub struct GraphExec {
    device: Arc<Device>,
    raw: CUgraphExec,
}

// SAFETY: an executable graph may be launched by any thread; the driver locks for itself.
unsafe impl Send for GraphExec {}
// SAFETY: see above.
unsafe impl Sync for GraphExec {}

/// A kernel and its arguments, as one step of a [`GraphExec`].
pub struct GraphNode<'a> {
    /// Kernel that the step launches.
    pub function: &'a Function,
    /// Grid, blocks and dynamic shared memory of the launch.
    pub grid: LaunchConfig,
    /// Bytes of each argument, in the order of the kernel's parameters.
    pub arguments: Vec<&'a [u8]>,
}

/// A CUDA graph that is being built. The executable graph made from it does not depend on it.
struct Graph(CUgraph);

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: created in `GraphExec::new`, where the context is current, and destroyed once.
        log_drop("a graph", check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(self.0) }));
    }
}

/// The kernel starts when the previous one has completed.
const AFTER_COMPLETION: CUgraphEdgeData =
    CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };

/// The kernel starts while the previous one exits. It waits itself until that has completed, and its stores are visible.
const EARLY_START: CUgraphEdgeData = CUgraphEdgeData {
    from_port: sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8,
    type_: CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8,
    ..AFTER_COMPLETION
};

impl GraphExec {
    /// Creates a graph of the kernels in `nodes`, uploads it to the GPU of `stream` and waits for the upload.
    ///
    /// `stream` must be idle. The call passes the driver gate: it first blocks until no PE of this process runs a
    /// kernel.
    ///
    /// # Errors
    /// - [`Error::WrongArguments`] if a kernel has parameters of other sizes (drivers from CUDA 12.4 on)
    /// - [`Error::Call`] if the driver refuses
    ///
    /// # Safety
    /// Every launch of the graph meets the safety conditions of [`Function::launch`].
    pub unsafe fn new(stream: &Stream, nodes: &[GraphNode<'_>]) -> Result<Self, Error> {
        let device = Arc::clone(stream.device());
        let _exclusive = device.exclusive()?;
        let mut graph: CUgraph = ptr::null_mut();
        // SAFETY: the context is current, and the graph is written to a live variable.
        check("cuGraphCreate", unsafe { sys::cuGraphCreate(&mut graph, 0) })?;
        let graph = Graph(graph);
        let mut previous: Option<CUgraphNode> = None;
        for GraphNode { function, grid, arguments } in nodes {
            let parameters = function.node_parameters(*grid, arguments)?;
            let mut node: CUgraphNode = ptr::null_mut();
            // SAFETY: a live graph. The parameters point to each argument, and the driver copies the arguments before it
            // returns.
            let result = unsafe {
                sys::cuGraphAddKernelNode_v2(&mut node, graph.0, ptr::null(), 0, parameters.as_driver())
            };
            check_with("cuGraphAddKernelNode", result, || format!("for {}", function.name()))?;
            if let Some(previous) = previous {
                let edge = if function.awaits_stream() { EARLY_START } else { AFTER_COMPLETION };
                // SAFETY: a live graph and two nodes of it.
                let result = unsafe { sys::cuGraphAddDependencies_v2(graph.0, &previous, &node, &edge, 1) };
                check_with("cuGraphAddDependencies", result, || format!("of {}", function.name()))?;
            }
            previous = Some(node);
        }
        let mut raw: CUgraphExec = ptr::null_mut();
        // SAFETY: a live graph, and a live variable. Destroyed in `drop`.
        check("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, graph.0, 0) })?;
        let graph = Self { device: Arc::clone(&device), raw };
        // Upload now, with the gate passed, so the first launch has nothing left to do.
        // SAFETY: a live graph and stream.
        check("cuGraphUpload", unsafe { sys::cuGraphUpload(graph.raw, stream.raw()) })?;
        stream.synchronize()?;
        Ok(graph)
    }

    /// Queues a launch of all kernels, after the earlier work in `stream`.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver refuses, or if earlier work in `stream` failed
    ///
    /// # Safety
    /// All memory that the kernels access stays valid until they have completed.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), Error> {
        let _current = self.device.make_current()?;
        // SAFETY: a live graph and stream. The caller vouches for the memory.
        let launch = || unsafe { sys::cuGraphLaunch(self.raw, stream.raw()) };
        check("cuGraphLaunch", stream.launch_in_turn(launch)?)
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let destroy = || {
            let _exclusive = self.device.exclusive()?;
            // SAFETY: created in `new`, destroyed once.
            check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(self.raw) })
        };
        log_drop("an executable graph", destroy());
    }
}
