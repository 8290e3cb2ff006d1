//! Runs the comparison's operations with NVIDIA's device code on a GPU: compiles `kernels.cu` with NVIDIA's headers and
//! launches it.

use std::path::Path;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::{Pod, Zeroable};
use rushmem::cuda::{
    Cuda, Device, DeviceBuffer, Error as CudaError, HostKind, Module, RegisteredHost, Stream,
};
use rushmem::native::LaunchConfig;
use rushmem_device::abi::reserved;
use rushmem_softnic::{Memory, PAGE, Rule};

use crate::bed::{Bed, Shape};
use crate::case::{Case, Images, LADDR, Op, RADDR, SIGNAL, VALUE};
use crate::compare::{Entry, check_effects, check_rules};
use crate::{Error, Result};

const KERNELS: &str = include_str!("../kernels.cu");
/// NVIDIA's header that includes all others.
const HEADER: &str = "doca_gpunetio_device.h";
/// GPU memory reserved for NVIDIA's queue pair, in bytes. Only the kernels know its layout.
pub(crate) const QP_ROOM: usize = 4096;
/// Time for which a kernel polls for one completion before it fails.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(3);
pub(crate) const LAUNCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Rules of the software ConnectX that NVIDIA's code breaks: it rings the doorbell once before it writes the doorbell
/// record, and again after.
const TOLERATED: &[Rule] = &[Rule::DoorbellRecord];

/// Which fence NVIDIA's code executes between writing WQEs and ringing the doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Fence {
    /// The fence that NVIDIA's calls contain. It makes WQEs visible to the GPU, which suffices for queues in GPU
    /// memory.
    Shipped,
    /// A fence that makes WQEs visible to the whole system, as queues in host memory require. The calls do not ring;
    /// NVIDIA's function that rings at system scope runs after them.
    System,
}

/// Layout of the queue argument of the kernels in `kernels.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Queue {
    pub(crate) sq: u64,
    pub(crate) cq: u64,
    pub(crate) sq_record: u64,
    pub(crate) cq_record: u64,
    pub(crate) doorbell: u64,
    pub(crate) qpn: u32,
    pub(crate) cqn: u32,
    pub(crate) depth: u32,
    pub(crate) collapsed: u32,
    pub(crate) on_gpu: u32,
    pub(crate) reserved: u32,
}

/// Layout of the argument that describes the work to the kernels in `kernels.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Work {
    pub(crate) raddr: u64,
    pub(crate) laddr: u64,
    pub(crate) bytes: u64,
    pub(crate) stride: u64,
    pub(crate) signal: u64,
    pub(crate) sink: u64,
    pub(crate) value: u64,
    pub(crate) rounds: u64,
    pub(crate) patience_ns: u64,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    pub(crate) fence: u32,
    pub(crate) no_record: u32,
}

/// What a kernel thread stores about its posted WQEs; see `kernels.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Outcome {
    /// Index of the last WQE that the thread posted.
    pub ticket: u64,
    /// Completion status of the last WQE that the thread posted; 0 means success.
    pub status: i32,
    /// Result of polling for the WQE after the last one, which nobody posted. Set only if there is a single thread.
    pub ahead: i32,
}

/// Returns the GPU of this machine.
///
/// # Errors
/// [`Error::Missing`] if there is none, or the driver's error.
pub fn gpu() -> Result<Arc<Device>> {
    const NO_DEVICE: u32 = 100;
    let cuda = match Cuda::load() {
        Ok(cuda) => cuda,
        Err(error @ CudaError::NoDriver { .. }) => return Err(Error::Missing(error.to_string())),
        Err(error) if error.code() == Some(NO_DEVICE) => return Err(Error::Missing(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    match cuda.device_count()? {
        0 => Err(Error::Missing("the CUDA driver shows no GPU".into())),
        _ => Ok(Device::open(cuda, 0)?),
    }
}

/// Compiles the kernels with NVIDIA's headers in the folder `headers`, for GPUs of a compute capability.
///
/// # Errors
/// [`Error::Missing`] if the headers or nvcc are missing, or [`Error::Compile`] with the output of nvcc.
pub fn compile(headers: &Path, nvcc: &Path, capability: (u32, u32)) -> Result<String> {
    if !headers.join(HEADER).is_file() {
        return Err(Error::Missing(format!("there is no {HEADER} in {}", headers.display())));
    }
    let folder = tempfile::tempdir().map_err(|error| Error::File("a temporary folder".into(), error))?;
    let (source, ptx) = (folder.path().join("kernels.cu"), folder.path().join("kernels.ptx"));
    std::fs::write(&source, KERNELS).map_err(|error| Error::File(source.clone(), error))?;
    let mut command = Command::new(nvcc);
    command.args(["-ptx", "-std=c++17", "-O3"]).arg(format!("-arch=sm_{}{}", capability.0, capability.1));
    command.arg("-I").arg(headers).arg("-o").arg(&ptx).arg(&source);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return Err(Error::Missing(format!("cannot run {}: {error}", nvcc.display()))),
    };
    if !output.status.success() {
        let log = [output.stdout, output.stderr].concat();
        let log = String::from_utf8_lossy(&log).into_owned();
        return Err(Error::Compile { command: format!("{command:?}"), log });
    }
    std::fs::read_to_string(&ptx).map_err(|error| Error::File(ptx, error))
}

/// NVIDIA's device code, loaded on a GPU.
pub struct Theirs {
    module: Arc<Module>,
    stream: Stream,
    fence: Fence,
}

impl Theirs {
    /// Loads PTX that [`compile`] returned onto a GPU. `fence` selects the fence before the doorbell.
    ///
    /// # Errors
    /// - [`Error::Cuda`]: the driver fails.
    pub fn load(device: &Arc<Device>, ptx: &str, fence: Fence) -> Result<Self> {
        let module = Module::load(device, "gpunetio", ptx)?;
        Ok(Self { module, stream: Stream::new(device)?, fence })
    }

    /// Runs a case on a fresh adapter, checks its effects, and returns the WQEs that it posted.
    ///
    /// # Errors
    /// [`Error::Wrong`] if a completion, the heaps, the doorbell record or the adapter's rules show a fault.
    pub fn run(&self, case: &Case, shape: Shape) -> Result<(Vec<Entry>, Vec<Outcome>)> {
        let bed = Bed::new(shape)?;
        let before = Images::before();
        bed.initiator.fill(&before.initiator)?;
        bed.target.fill(&before.target)?;
        let work = Work { bytes: case.bytes, stride: case.stride(), ..self.work(&bed) };
        let grid = LaunchConfig::new(1, case.threads());
        let outcomes = self.launch(&bed, kernel(case), grid, work)?;
        check_outcomes(case, &outcomes)?;
        check_effects(&bed, case, case.their_wqes(), TOLERATED)?;
        Ok((bed.wqes(case.their_wqes())?, outcomes))
    }

    /// Posts from all threads of `grid` into one shared send queue for `rounds` rounds; see `storm` in `kernels.cu`.
    /// Returns the numbers of WQEs and doorbells that the adapter saw.
    ///
    /// # Errors
    /// - The errors of [`run`](Self::run).
    pub fn storm(&self, shape: Shape, grid: LaunchConfig, rounds: u32) -> Result<(u64, u64)> {
        let name =
            format!("storm of {} blocks of {} threads, {rounds} rounds", grid.blocks(), grid.threads());
        let bed = Bed::new(shape)?;
        let work = Work { value: 1, stride: 8, rounds: rounds.into(), ..self.work(&bed) };
        let outcomes = self.launch(&bed, "storm", grid, work)?;
        check_outcomes(&name, &outcomes)?;
        check_rules(&bed, &name, TOLERATED)?;
        let threads = outcomes.len() as u64;
        let signals = bed.target.heap.load_u64(SIGNAL as usize);
        if signals != threads * u64::from(rounds) {
            return Err(Error::wrong(&name, format!("{signals} signals arrived, not {threads} x {rounds}")));
        }
        for thread in 0..threads {
            let found = bed.target.heap.load_u64((RADDR + thread * 8) as usize);
            let wanted = thread << 32 | u64::from(rounds - 1);
            if found != wanted {
                let what = format!("thread {thread}'s word is {found:#x}, not {wanted:#x}");
                return Err(Error::wrong(&name, what));
            }
        }
        let stats = bed.nic.stats();
        Ok((stats.wqes, stats.doorbells))
    }

    fn work(&self, bed: &Bed) -> Work {
        Work {
            raddr: RADDR,
            laddr: LADDR,
            signal: SIGNAL,
            sink: reserved::SINK,
            value: VALUE,
            patience_ns: COMPLETION_TIMEOUT.as_nanos() as u64,
            lkey: bed.initiator.key,
            rkey: bed.target.key,
            fence: u32::from(self.fence == Fence::System),
            ..Zeroable::zeroed()
        }
    }

    fn launch(&self, bed: &Bed, name: &str, grid: LaunchConfig, work: Work) -> Result<Vec<Outcome>> {
        let (prepare, kernel) = (self.module.function("prepare")?, self.module.function(name)?);
        let device = self.stream.device();
        let from = &bed.initiator;
        let queues = register(device, from.queues.as_ptr(), from.queues.len() as usize)?;
        let page = register(device, from.uar.page, PAGE)?;
        let threads = (grid.blocks() * grid.threads()) as usize;
        let outcomes = DeviceBuffer::zeroed(&self.stream, threads * size_of::<Outcome>())?;
        let qp = DeviceBuffer::zeroed(&self.stream, QP_ROOM)?;

        let at = |offset: usize| queues.address() + offset as u64;
        let queue = Queue {
            sq: at(bed.shape.sq_at()),
            cq: at(bed.shape.cq_at()),
            sq_record: at(bed.shape.sq_record_at()),
            cq_record: at(bed.shape.cq_record_at()),
            doorbell: page.address() + (from.uar.reg_addr as u64 - from.uar.page as u64),
            qpn: from.qpn,
            cqn: from.cqn,
            depth: bed.shape.depth() as u32,
            collapsed: bed.shape.collapsed.into(),
            ..Zeroable::zeroed()
        };
        let (qp_at, outcomes_at) = (qp.address().to_ne_bytes(), outcomes.address().to_ne_bytes());
        let one = LaunchConfig::new(1, 1);
        // SAFETY: these are the kernels' parameters. The queue pair, queues, page and outcomes live until the stream is
        // idle or the process exits.
        unsafe {
            prepare.launch(&self.stream, one, &[&qp_at, bytemuck::bytes_of(&queue)])?;
            kernel.launch(&self.stream, grid, &[&qp_at, bytemuck::bytes_of(&work), &outcomes_at])?;
        }
        if let Err(error @ CudaError::Deadline { .. }) = self.stream.wait(LAUNCH_TIMEOUT) {
            // A running kernel still uses its memory, so nothing can be freed. Only the exit of the process stops it.
            eprintln!("{name}: {error}");
            std::process::abort();
        }
        self.stream.synchronize()?;
        let mut told = vec![Outcome::zeroed(); threads];
        outcomes.read(&self.stream, 0, bytemuck::cast_slice_mut(&mut told))?;
        Ok(told)
    }
}

fn kernel(case: &Case) -> &'static str {
    match case.op {
        Op::Put => "put",
        Op::PutWarp => "put_warp",
        Op::PutValue => match case.bytes {
            1 => "put_u8",
            2 => "put_u16",
            4 => "put_u32",
            _ => "put_u64",
        },
        Op::Signal => "add_signal",
        Op::PutSignal => "put_signal",
        Op::PutValueSignal => "put_u64_signal",
        Op::Get => "get",
        Op::GetDump => "get_dump",
        Op::GetWarp => "get_warp",
    }
}

fn register(device: &Arc<Device>, start: *mut u8, bytes: usize) -> Result<RegisteredHost> {
    let start = NonNull::new(start).ok_or_else(|| Error::Missing("a page at address 0".into()))?;
    // SAFETY: the bed owns the pages and outlives the launch for which they are registered.
    Ok(unsafe { RegisteredHost::new(device, start, bytes, HostKind::Memory) }?)
}

fn check_outcomes(what: impl ToString, outcomes: &[Outcome]) -> Result {
    match outcomes.iter().enumerate().find(|(_, outcome)| outcome.status != 0) {
        Some((thread, outcome)) => {
            Err(Error::wrong(what, format!("thread {thread} did not complete: {outcome:?}")))
        }
        None => Ok(()),
    }
}

/// Returns instructions to get NVIDIA's headers.
pub fn how_to_get_headers() -> String {
    "NVIDIA's headers are in the PyPI wheel nvidia-nccl-cu13: `pip download --no-deps nvidia-nccl-cu13`, unzip it, and give \
     --headers its folder nvidia/nccl/include/nccl_device/gin/gdaki/doca_gpunetio"
        .into()
}
