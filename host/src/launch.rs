//! Kernels of the application: on the PE's own stream, or on all PEs together.
#![allow(unsafe_code, reason = "`Pe::launch_with` relies on a context of the caller")]

use rushmem_device::abi::CtxParts;
use rushmem_device::kernel::Call;

use crate::launch_queue::{LaunchId, LaunchResources, check_grid};
use crate::machine::{Event, Grid};
use crate::{Error, Pe, Result};

/// A kernel that runs, or waits for those launched before it. Dropping it waits for its end.
#[must_use = "a launch is complete only after `wait`"]
pub struct Launch<'a> {
    pe: &'a Pe,
    /// What it is, and where in the queue.
    running: Option<(LaunchId, Event)>,
}

impl Launch<'_> {
    /// Waits for the kernel's end.
    ///
    /// # Errors
    /// [`Error::Device`] with what the kernel recorded, [`Error::NotRun`] if one launched before it failed,
    /// [`Error::PeerLost`] if it was ended because a PE died, or what kept the machine from running it.
    pub fn wait(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let Some((launch_id, mark)) = self.running.take() else { return Ok(()) };
        self.pe.launch_queues().own.wait_for(self.pe, launch_id, &mark)
    }
}

impl Drop for Launch<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(pe = self.pe.my_pe(), "a launch that nobody waited for: {error}");
        }
    }
}

impl Pe {
    /// Starts a kernel on this PE, on its own stream: after those that were launched so before. It runs while the host
    /// goes on; [`Launch::wait`] ends it.
    ///
    /// No other PE needs to launch anything: a kernel that only puts, gets or does atomics runs by itself, with as many
    /// blocks as it likes. If its blocks wait for each other, or for kernels of other PEs, all of them must run at once:
    /// [`Pe::launch_collective`] checks that.
    ///
    /// On a GPU, a multiprocessor that runs blocks begins none of a kernel that wants its L1 cache divided otherwise. Beside
    /// kernels that wait on all multiprocessors begin the runtime's and others that ask for no shared memory; one that does
    /// needs multiprocessors that are left free.
    ///
    /// # Errors
    /// If the machine cannot launch it: no such kernel in the PTX that is loaded, a grid that no machine has.
    pub fn launch(&self, grid: Grid, call: Call) -> Result<Launch<'_>> {
        let (ctx, needs) = self.launch_context(&call)?;
        self.begin(ctx, needs, grid, call)
    }

    /// [`Pe::launch`] with a context other than the PE's own, for tests.
    ///
    /// # Safety
    /// The rules of [`Ctx::from_parts`](rushmem_device::Ctx::from_parts) hold until the launch ends.
    #[doc(hidden)]
    pub unsafe fn launch_with(&self, ctx: CtxParts, grid: Grid, call: Call) -> Result<Launch<'_>> {
        let (_, needs) = self.launch_context(&call)?;
        self.begin(ctx, needs, grid, call)
    }

    fn begin(&self, ctx: CtxParts, needs: LaunchResources, grid: Grid, call: Call) -> Result<Launch<'_>> {
        let own = &self.launch_queues().own;
        let launch_id = own.launch(self, (ctx, needs), call.name(), grid, call)?;
        Ok(Launch { pe: self, running: Some((launch_id, own.mark()?)) })
    }

    /// Runs a kernel on this PE to its end.
    ///
    /// # Errors
    /// As [`Pe::launch`] and [`Launch::wait`].
    pub fn run(&self, grid: Grid, call: Call) -> Result<()> {
        self.launch(grid, call)?.wait()
    }

    /// Starts a kernel on all PEs, whose blocks may wait for each other and for those of other PEs: that all of them run
    /// at once has been checked on every PE before any starts. Collective; the grid may differ from PE to PE. NVSHMEM's
    /// `nvshmemx_collective_launch`.
    ///
    /// What else runs on the machine at the time, on other streams, is not counted.
    ///
    /// # Errors
    /// [`Error::GridTooLarge`] on all PEs alike if the grid of one of them is too large there; [`Error::Mismatch`] if PEs
    /// launch different kernels; those of [`Pe::launch`] on one PE end the job's collective call on the others.
    pub fn launch_collective(&self, grid: Grid, call: Call) -> Result<Launch<'_>> {
        let name = call.name();
        let rooms = self.rooms("launch_collective", &call, grid)?;
        let tight = |&(_, (room, blocks)): &(usize, (u32, u32))| blocks > room;
        let refused = rooms.into_iter().enumerate().filter(tight).min_by_key(|&(pe, (room, _))| (room, pe));
        match refused {
            None => self.launch(grid, call),
            Some((pe, (room, blocks))) => {
                Err(Error::GridTooLarge { kernel: name, pe: pe as u32, blocks, room })
            }
        }
    }

    /// The largest grid of blocks of this shape with which [`Pe::launch_collective`] launches the kernel on every PE.
    /// Collective: the smallest of what the PEs have room for. `shared_bytes` is the dynamic shared memory of each block.
    /// NVSHMEM's `nvshmemx_collective_launch_query_gridsize`.
    ///
    /// # Errors
    /// [`Error::Mismatch`]; what the machine says of such blocks.
    pub fn max_grid(&self, call: &Call, threads: u32, shared_bytes: u32) -> Result<Grid> {
        let rooms = self.rooms("max_grid", call, Grid { blocks: 0, threads, shared_bytes })?;
        let blocks = rooms.iter().map(|&(room, _)| room).min().unwrap_or(0);
        Ok(Grid { blocks, threads, shared_bytes })
    }

    /// For each PE, how many blocks it has room for, and how many it wants.
    fn rooms(&self, what: &'static str, call: &Call, grid: Grid) -> Result<Vec<(u32, u32)>> {
        check_grid(call, grid)?;
        let machine = self.machine_ref();
        let module = self.modules().of(machine, call.name())?;
        let room = machine.room(call.name(), module.as_deref(), grid)?;
        let mine = [room, grid.blocks].map(u32::to_le_bytes).concat();
        let (_, all) = self.agree_with(what, call.name(), &mine)?;
        all.into_iter()
            .enumerate()
            .map(|(pe, bytes)| match *bytes {
                [a, b, c, d, e, f, g, h] => {
                    Ok((u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])))
                }
                _ => Err(Error::Misuse { call: what, what: format!("PE {pe} sent {} bytes", bytes.len()) }),
            })
            .collect()
    }
}
