//! Launches of the application's kernels: on the PE's own stream, or on all PEs together.
#![allow(unsafe_code, reason = "`Pe::launch_with` relies on a context of the caller")]

use std::panic::Location;

use rushmem_device::abi::CtxParts;
use rushmem_device::kernel::Call;
use rushmem_error::call_site::{self, CallSite};
use rushmem_machine::{Event, LaunchConfig, Launched};
use rushmem_trace::Detail;

use crate::launch_queue::{Dropped, LaunchId, LaunchResources, check_grid};
use crate::{Error, Pe, Result};

/// A running or queued launch of a kernel. [`Pe::launch`] creates it.
///
/// Call [`wait`](Launch::wait) for the outcome. If a launch is dropped instead, the next call of the PE waits for it,
/// at the latest when the application returns. [`Job::run`](crate::Job::run) then returns its error, so the failure of
/// a launch is never lost.
///
/// If the application returns an error or panics, the waits of dropped launches are aborted. An early return with `?`
/// therefore does not hang on a kernel that waits for another PE.
#[must_use = "a launch is complete only after `wait`"]
pub struct Launch<'a> {
    pe: &'a Pe,
    /// The launch ID, and an event recorded after the launch. `None` once the launch has been waited for.
    running: Option<(LaunchId, Event)>,
}

impl Launch<'_> {
    /// Waits until the kernel has finished, and returns its outcome.
    ///
    /// Whatever the kernel has written to memory of this PE is then visible to [`Pe::read`]. Its puts to other PEs are
    /// complete only if the kernel has waited for them, for example with [`Ctx::quiet`](rushmem_device::Ctx::quiet).
    ///
    /// # Errors
    /// - [`Error::Device`] with the errors recorded by the kernel.
    /// - [`Error::Unrecorded`] or [`Error::Poisoned`] if the kernel failed without a record.
    /// - [`Error::NotRun`] if an earlier kernel has failed.
    /// - [`Error::PeerLost`] if it was aborted because a PE was lost.
    /// - [`Error::KernelLimit`] if it ran for longer than the setting `kernel_limit`.
    /// - [`Error::Cuda`] or [`Error::Native`] if the machine could not run it.
    #[track_caller]
    pub fn wait(self) -> Result<()> {
        self.wait_in("wait")
    }

    /// Waits as [`Launch::wait`] does, on behalf of the public call `name`.
    #[track_caller]
    fn wait_in(mut self, name: &'static str) -> Result<()> {
        let _site = call_site::enter();
        self.pe.watch.announce_wait(name);
        let _span = self.pe.trace.call(name);
        let Some((launch_id, event)) = self.running.take() else { return Ok(()) };
        let outcome = self.pe.launch_queues().own.wait_for(self.pe, launch_id, &event);
        self.pe.trace.has_ended(launch_id.to_word());
        outcome
    }
}

impl Drop for Launch<'_> {
    fn drop(&mut self) {
        if let Some((launch_id, event)) = self.running.take() {
            self.pe.keep_dropped(Dropped::Launch(launch_id, event));
        }
    }
}

/// # Launches
///
/// Running kernels on this PE, or on all PEs together.
impl Pe {
    /// Launches a kernel on this PE and returns immediately. [`Launch::wait`] waits for it.
    ///
    /// All launches by this method use one stream: each starts after the previous one has finished. [`Pe::stream`]
    /// creates more streams. The function that `#[kernel]` generates returns the `call`.
    ///
    /// Other PEs do not have to launch anything: puts, gets and atomics work without their involvement. Such a kernel
    /// may have any number of blocks. But if blocks wait for each other, or for kernels of other PEs, all blocks must
    /// be resident at the same time, which [`Pe::launch_collective`] checks.
    ///
    /// # Long kernels
    /// A kernel that runs for longer than the setting `kernel_limit` (1 h by default) aborts the job, after a warning
    /// in the log (`kernel_warning`). Set `kernel_limit=none` for a kernel that runs as long as the application.
    ///
    /// # Kernels that run at the same time on a GPU
    /// While a multiprocessor runs blocks, it does not start a block that needs a different split between L1 cache and
    /// shared memory. If kernels wait on all multiprocessors, only kernels without shared memory can start next to
    /// them, such as the runtime's. Leave some multiprocessors free for a kernel that uses shared memory.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if an argument is not memory of this job, or has been freed. Also if the kernel is declared
    ///   with `#[kernel(per_block)]`, and another such kernel of this PE may be running at the same time.
    /// - [`Error::Unavailable`] if no loaded module has the kernel, or a block has more threads than the kernel allows.
    /// - [`Error::Cuda`] or [`Error::Native`] if the machine cannot run the grid.
    ///
    /// # Examples
    /// ```no_run
    /// # use rushmem::prelude::*;
    /// # use rushmem_device::prelude::*;
    /// #[kernel]
    /// pub fn ring(ctx: &Ctx, cells: SymSlice<u64>) -> Result {
    ///     let half = cells.len() / 2;
    ///     ctx.put(Block::current(), cells.slice(half..cells.len()), cells.slice(0..half), ctx.pe_after(1))
    /// }
    ///
    /// # fn launch_ring(pe: &Pe) -> rushmem::Result<()> {
    /// let cells = pe.alloc::<u64>(1024)?;
    /// let launch = pe.launch(LaunchConfig::new(1, 128), ring(cells))?;
    /// // The host may work here.
    /// launch.wait()
    /// # }
    /// # fn main() {}
    /// ```
    #[track_caller]
    pub fn launch(&self, grid: LaunchConfig, call: Call) -> Result<Launch<'_>> {
        let _site = call_site::enter();
        let (ctx, needs) = self.launch_context(&call)?;
        self.begin(ctx, needs, grid, call)
    }

    /// Like [`Pe::launch`], but with a context other than the PE's own. For tests.
    ///
    /// # Errors
    /// The errors of [`Pe::launch`].
    ///
    /// # Safety
    /// The rules of [`Ctx::from_parts`](rushmem_device::Ctx::from_parts) must hold until the launch has finished.
    #[doc(hidden)]
    #[track_caller]
    pub unsafe fn launch_with(&self, ctx: CtxParts, grid: LaunchConfig, call: Call) -> Result<Launch<'_>> {
        let _site = call_site::enter();
        let (_, needs) = self.launch_context(&call)?;
        self.begin(ctx, needs, grid, call)
    }

    #[track_caller]
    fn begin(
        &self,
        ctx: CtxParts,
        needs: LaunchResources,
        grid: LaunchConfig,
        call: Call,
    ) -> Result<Launch<'_>> {
        let _span =
            self.trace.call_with("launch", || Detail { note: Some(call.name().into()), ..Detail::default() });
        let own = &self.launch_queues().own;
        let launched = Launched { name: call.name(), site: Some(Location::caller()) };
        let launch_id = self.trace.launches(|| {
            let launch_id = own.launch(self, (ctx, needs), launched, CallSite::default(), grid, call)?;
            Ok((launch_id, launch_id.to_word()))
        })?;
        Ok(Launch { pe: self, running: Some((launch_id, own.mark()?)) })
    }

    /// Launches a kernel on this PE and waits until it has finished.
    ///
    /// # Errors
    /// - The errors of [`Pe::launch`].
    /// - The errors of [`Launch::wait`].
    #[track_caller]
    pub fn run(&self, grid: LaunchConfig, call: Call) -> Result<()> {
        let _site = call_site::enter();
        self.launch(grid, call)?.wait_in("run")
    }

    /// Launches a kernel on all PEs. Its blocks may wait for each other, within a PE and between PEs. Collective.
    ///
    /// Before any PE starts the kernel, the call checks on every PE that all blocks of the grid can be resident at the
    /// same time. Grids may differ between PEs. Kernels that already run on other streams are not taken into account.
    /// NVSHMEM's `nvshmemx_collective_launch`.
    ///
    /// # Errors
    /// - [`Error::GridTooLarge`] on all PEs if a PE has no room for its grid. [`Pe::max_grid`] returns the largest
    ///   grid.
    /// - [`Error::Mismatch`] if PEs launch different kernels.
    /// - [`Error::Bootstrap`] if a PE never makes the call.
    /// - [`Error::Unavailable`] if a NIC of this PE fails: see [`Pe::host_sync`].
    /// - The errors of [`Pe::launch`]. If it fails on one PE only, kernels of other PEs that wait for it fail, too.
    #[track_caller]
    pub fn launch_collective(&self, grid: LaunchConfig, call: Call) -> Result<Launch<'_>> {
        let _site = call_site::enter();
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

    /// Returns the largest grid with which [`Pe::launch_collective`] can launch the kernel on every PE. Collective.
    ///
    /// Each block has `threads` threads, and `shared_bytes` bytes of dynamic shared memory. The number of blocks is the
    /// minimum over all PEs. NVSHMEM's `nvshmemx_collective_launch_query_gridsize`.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if no loaded module has the kernel, or a block has more threads than the kernel allows.
    /// - [`Error::Mismatch`] if PEs ask for different kernels, [`Error::Bootstrap`] if a PE never makes the call.
    /// - [`Error::Unavailable`] if a NIC of this PE fails: see [`Pe::host_sync`].
    /// - [`Error::Cuda`] or [`Error::Native`] if the machine cannot run such blocks.
    #[track_caller]
    pub fn max_grid(&self, call: &Call, threads: u32, shared_bytes: u32) -> Result<LaunchConfig> {
        let _site = call_site::enter();
        let rooms =
            self.rooms("max_grid", call, LaunchConfig::new(0, threads).with_shared_bytes(shared_bytes))?;
        let blocks = rooms.iter().map(|&(room, _)| room).min().unwrap_or(0);
        Ok(LaunchConfig::new(blocks, threads).with_shared_bytes(shared_bytes))
    }

    /// For each living PE, returns the number of blocks that it can have resident, and the number in its grid. Collective.
    fn rooms(&self, what: &'static str, call: &Call, grid: LaunchConfig) -> Result<Vec<(u32, u32)>> {
        check_grid(call, grid)?;
        let machine = self.machine_ref();
        let module = self.modules().of(machine, call.name())?;
        let room = machine.room(call.name(), module.as_deref(), grid)?;
        let mine = [room, grid.blocks()].map(u32::to_le_bytes).concat();
        let (_, all) = self.agree_with(what, call.name(), &mine)?;
        all.into_iter()
            .enumerate()
            .filter(|(pe, _)| self.is_member(*pe as u32))
            .map(|(pe, bytes)| match *bytes {
                [a, b, c, d, e, f, g, h] => {
                    Ok((u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])))
                }
                _ => Err(Error::misuse(what, format!("PE {pe} sent {} bytes", bytes.len()))),
            })
            .collect()
    }
}
