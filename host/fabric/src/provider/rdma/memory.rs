//! Protection domains, memory keys and umems (memory registered for queues) of an RDMA device.
#![allow(unsafe_code, reason = "calls libibverbs and libmlx5")]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{ibv_access_flags, ibv_mr, ibv_pd};
use rushmem_cuda::{DeviceBuffer, DmaBufMapping};
use rushmem_error::{NicError, RdmaError, errno_text};
use rushmem_machine::Region;
use rushmem_softnic::page_size;

use super::context::Context;
use super::remedy::{SEE_DMESG, last_errno, memory_remedy};
use super::{ffi, peer_memory};
use crate::provider::{Key, KeyOrder, Pd, QUEUE_ALIGN, Umem, page_offset};

/// Access of the NIC and of peers to memory through a strict key.
///
/// Signals use strict keys. Through a relaxed key, a signal could overtake its data on the PCIe bus.
const STRICT_ACCESS: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
    | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;

/// Returns the access flags for a key. Linux ignores relaxed ordering if the NIC does not support it, or if it is
/// disabled in the NIC's PCIe configuration.
const fn access(order: KeyOrder) -> i32 {
    let relaxed = match order {
        KeyOrder::Strict => 0,
        KeyOrder::Relaxed => ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0,
    };
    (STRICT_ACCESS | relaxed) as i32
}

/// Access of the NIC to memory that holds queues.
const QUEUE_ACCESS: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;

/// Returns the page sizes allowed for a umem, as a bit set: only that of the system. Larger pages would restrict
/// where queues can start, and not every Linux divides pages.
///
/// A queue can start at each 64th of a page, which [`QUEUE_ALIGN`] allows with pages of up to 256 KiB.
fn page_sizes() -> u64 {
    page_size() as u64
}

/// Whether queues that are aligned to [`QUEUE_ALIGN`] suit pages of this size.
const fn queues_fit(page: u64) -> bool {
    QUEUE_ALIGN.is_multiple_of(page / 64)
}

const _: () = assert!(queues_fit(4 << 10) && queues_fit(64 << 10));

const GPU_REMEDY: &str = "For GPU memory, a NIC needs the open NVIDIA kernel modules with Linux 5.12 or newer (dma-buf), or the module \
     nvidia-peermem (modprobe nvidia-peermem)";

/// A protection domain, deallocated on drop. Memory keys hold a reference, so it outlives them.
pub(super) struct RdmaPd {
    raw: NonNull<ibv_pd>,
    number: u32,
    /// Whether peers access GPU memory through the device's data-direct device.
    data_direct: bool,
    context: Arc<Context>,
}

// SAFETY: any thread may use a protection domain, because libibverbs locks internally.
unsafe impl Send for RdmaPd {}
// SAFETY: as for `Send`.
unsafe impl Sync for RdmaPd {}

impl RdmaPd {
    /// Allocates a protection domain (`ibv_alloc_pd`), and queries its number (`mlx5dv_init_obj`).
    pub(super) fn new(context: &Arc<Context>, data_direct: bool) -> Result<Arc<Self>, RdmaError> {
        // SAFETY: the context is open.
        let Some(raw) = NonNull::new(unsafe { ffi::ibv_alloc_pd(context.raw()) }) else {
            return Err(context.error("ibv_alloc_pd", last_errno(), SEE_DMESG));
        };
        let mut this = Self { raw, number: 0, data_direct, context: Arc::clone(context) };
        let mut answer = ffi::DvPd { pdn: 0, comp_mask: 0 };
        let mut query = ffi::DvObj::pd(raw.as_ptr(), &mut answer);
        // SAFETY: the query names a live protection domain and a live answer.
        let errno = unsafe { ffi::mlx5dv_init_obj(&mut query, ffi::OBJ_PD) };
        if errno != 0 {
            return Err(context.error("mlx5dv_init_obj", errno, "libmlx5 does not drive the device"));
        }
        this.number = answer.pdn;
        Ok(Arc::new(this))
    }

    pub(super) fn raw(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }

    /// Returns the device's name, for messages.
    pub(super) fn title(&self) -> &str {
        self.context.title()
    }

    /// Wraps a memory region returned by libibverbs. `base` is the wire address of its first byte. Fails with the
    /// current `errno` if `raw` is null.
    fn key(self: &Arc<Self>, raw: *mut ibv_mr, base: u64) -> Result<RdmaKey, i32> {
        match NonNull::new(raw) {
            Some(raw) => Ok(RdmaKey { raw, for_peers: None, base, pd: Arc::clone(self) }),
            None => Err(last_errno()),
        }
    }

    fn register_gpu(
        self: &Arc<Self>,
        region: &Region,
        buffer: &DeviceBuffer,
        order: KeyOrder,
    ) -> Result<RdmaKey, RdmaError> {
        let (pd, len, access) = (self.raw(), region.memory.len(), access(order));
        let page = page_size();
        if !buffer.address().is_multiple_of(page as u64) {
            let why = format!(
                "a NIC registers GPU memory in pages of {page} bytes, but {:#x} is not the start of a page",
                buffer.address()
            );
            return Err(RdmaError::Unusable { nic: self.context.title().into(), why });
        }
        // The offers are for a software device, which claims the memory during the call.
        let by_dma_buf = |fd: &OwnedFd| {
            let _offer = peer_memory::offer(region, buffer, Some(fd));
            // SAFETY: the protection domain is live, and the dma-buf has at least this length.
            let raw = unsafe { ffi::ibv_reg_dmabuf_mr(pd, 0, len as usize, 0, fd.as_raw_fd(), access) };
            self.key(raw, 0)
        };
        let by_address = || {
            let _offer = peer_memory::offer(region, buffer, None);
            // SAFETY: the protection domain is live. Linux checks the addresses, and the memory outlives its key.
            let raw = unsafe { ffi::ibv_reg_mr_iova(pd, address(buffer), len as usize, 0, access) };
            self.key(raw, 0)
        };
        let calls = Calls {
            dma_buf: "ibv_reg_dmabuf_mr",
            address: "ibv_reg_mr_iova of the GPU's address",
            remedy: "or use RUSHMEM_HEAP=host",
        };
        let mut key =
            gpu_memory(&self.context, buffer, "registering GPU memory", calls, by_dma_buf, by_address)?;
        if self.data_direct {
            match self.register_data_direct(region, buffer, order) {
                Ok(raw) => {
                    tracing::info!("{}: registering GPU memory for peers: by data direct", self.title());
                    key.for_peers = Some(raw);
                }
                Err(why) => {
                    tracing::warn!("{}: peers access GPU memory through the NIC itself: {why}", self.title());
                }
            }
        }
        Ok(key)
    }

    /// Registers GPU memory for access through the data-direct device. The error names the call that failed.
    fn register_data_direct(
        &self,
        region: &Region,
        buffer: &DeviceBuffer,
        order: KeyOrder,
    ) -> Result<NonNull<ibv_mr>, String> {
        let functions = ffi::data_direct().ok_or("libmlx5 lacks data direct")?;
        // Where PCIe is the only way to the GPU, the driver may not offer a choice.
        let fd = buffer.dma_buf(DmaBufMapping::Pcie).or_else(|_| buffer.dma_buf(DmaBufMapping::Default));
        let fd = fd.map_err(|error| error.to_string())?;
        let _offer = peer_memory::offer(region, buffer, Some(&fd));
        let (len, flag) = (region.memory.len() as usize, ffi::REG_DMABUF_DATA_DIRECT);
        // SAFETY: the protection domain is live, and the dma-buf has at least this length.
        let raw =
            unsafe { (functions.reg_dmabuf_mr)(self.raw(), 0, len, 0, fd.as_raw_fd(), access(order), flag) };
        NonNull::new(raw).ok_or_else(|| format!("mlx5dv_reg_dmabuf_mr: {}", errno_text(last_errno())))
    }

    fn register_host(
        self: &Arc<Self>,
        start: NonNull<u8>,
        len: u64,
        base: u64,
        order: KeyOrder,
    ) -> Result<RdmaKey, RdmaError> {
        // SAFETY: the protection domain is live. The region keeps the memory mapped, and outlives the key.
        let raw = unsafe {
            ffi::ibv_reg_mr_iova(self.raw(), start.as_ptr().cast(), len as usize, base, access(order))
        };
        self.key(raw, base).map_err(|errno| {
            self.context.error(format!("ibv_reg_mr_iova of {} KiB", len >> 10), errno, memory_remedy(errno))
        })
    }

    fn register(self: &Arc<Self>, region: &Region, order: KeyOrder) -> Result<RdmaKey, RdmaError> {
        match (&region.gpu, region.memory.host_ptr()) {
            (Some(buffer), _) => self.register_gpu(region, buffer, order),
            (None, Some(start)) => self.register_host(start, region.memory.len(), page_offset(region), order),
            (None, None) => Err(no_address(&self.context)),
        }
    }
}

impl Drop for RdmaPd {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the domain, and it is deallocated once, after its keys and address handles.
        let errno = unsafe { ffi::ibv_dealloc_pd(self.raw()) };
        if errno != 0 {
            tracing::warn!("{}: ibv_dealloc_pd: {}", self.title(), errno_text(errno));
        }
    }
}

pub(super) struct SharedPd(pub(super) Arc<RdmaPd>);

impl Pd for SharedPd {
    fn number(&self) -> u32 {
        self.0.number
    }

    fn register(&self, memory: &Region, order: KeyOrder) -> Result<Box<dyn Key>, NicError> {
        Ok(Box::new(self.0.register(memory, order)?))
    }
}

/// A memory region of libibverbs, deregistered on drop.
struct RdmaKey {
    raw: NonNull<ibv_mr>,
    /// Another region of the same memory, which peers access instead: by data direct.
    for_peers: Option<NonNull<ibv_mr>>,
    base: u64,
    pd: Arc<RdmaPd>,
}

// SAFETY: the regions never change, and any thread may deregister them.
unsafe impl Send for RdmaKey {}
// SAFETY: as for `Send`.
unsafe impl Sync for RdmaKey {}

impl Key for RdmaKey {
    fn lkey(&self) -> u32 {
        // SAFETY: the memory region is live.
        unsafe { self.raw.as_ref().lkey }
    }

    fn rkey(&self) -> u32 {
        // SAFETY: both memory regions are live.
        unsafe { self.for_peers.as_ref().unwrap_or(&self.raw).as_ref().rkey }
    }

    fn base(&self) -> u64 {
        self.base
    }
}

impl Drop for RdmaKey {
    fn drop(&mut self) {
        for raw in self.for_peers.into_iter().chain([self.raw]) {
            // SAFETY: a function of libibverbs or libmlx5 made the region, and it is deregistered once.
            let errno = unsafe { ffi::ibv_dereg_mr(raw.as_ptr()) };
            if errno != 0 {
                tracing::warn!("{}: ibv_dereg_mr: {}", self.pd.title(), errno_text(errno));
            }
        }
    }
}

/// Memory registered for queues (`mlx5dv_devx_umem_reg_ex`), deregistered on drop.
pub(super) struct RdmaUmem {
    raw: NonNull<ffi::DevxUmem>,
    context: Arc<Context>,
}

// SAFETY: the umem never changes, and any thread may deregister it.
unsafe impl Send for RdmaUmem {}
// SAFETY: as for `Send`.
unsafe impl Sync for RdmaUmem {}

impl RdmaUmem {
    /// Registers all of `region` as memory for queues.
    pub(super) fn new(context: &Arc<Context>, region: &Region) -> Result<Self, RdmaError> {
        match (&region.gpu, region.memory.host_ptr()) {
            (Some(buffer), _) => Self::register_gpu(context, region, buffer),
            (None, Some(start)) => {
                let len = region.memory.len();
                Self::register(context, start.as_ptr().cast(), len, None).map_err(|errno| {
                    let call = format!("mlx5dv_devx_umem_reg_ex of {} KiB", len >> 10);
                    context.error(call, errno, memory_remedy(errno))
                })
            }
            (None, None) => Err(no_address(context)),
        }
    }

    /// Registers a region of GPU memory for queues.
    fn register_gpu(
        context: &Arc<Context>,
        region: &Region,
        buffer: &DeviceBuffer,
    ) -> Result<Self, RdmaError> {
        let len = region.memory.len();
        // The offers are for a software device, which claims the memory during the call.
        let by_dma_buf = |fd: &OwnedFd| {
            let _offer = peer_memory::offer(region, buffer, Some(fd));
            Self::register(context, std::ptr::null_mut(), len, Some(fd))
        };
        let by_address = || {
            let _offer = peer_memory::offer(region, buffer, None);
            Self::register(context, address(buffer), len, None)
        };
        let calls = Calls {
            dma_buf: "mlx5dv_devx_umem_reg_ex of a dma-buf",
            address: "mlx5dv_devx_umem_reg_ex of the GPU's address",
            remedy: "or use RUSHMEM_QUEUES=host",
        };
        gpu_memory(context, buffer, "putting queues into GPU memory", calls, by_dma_buf, by_address)
    }

    /// Registers memory for queues: `len` bytes at `start`, or the first `len` bytes of a dma-buf.
    fn register(
        context: &Arc<Context>,
        start: *mut c_void,
        len: u64,
        dma_buf: Option<&OwnedFd>,
    ) -> Result<Self, i32> {
        let mut input = ffi::UmemIn {
            addr: start,
            size: len as usize,
            access: QUEUE_ACCESS,
            pgsz_bitmap: page_sizes(),
            comp_mask: if dma_buf.is_some() { ffi::UMEM_DMABUF } else { 0 },
            dmabuf_fd: dma_buf.map_or(-1, AsRawFd::as_raw_fd),
        };
        // SAFETY: the context is open. Linux checks addresses and lengths, and the memory outlives the umem.
        let raw = unsafe { ffi::mlx5dv_devx_umem_reg_ex(context.raw(), &mut input) };
        match NonNull::new(raw) {
            Some(raw) => Ok(Self { raw, context: Arc::clone(context) }),
            None => Err(last_errno()),
        }
    }
}

impl Umem for RdmaUmem {
    fn id(&self) -> u32 {
        // SAFETY: the umem is live.
        unsafe { self.raw.as_ref().umem_id }
    }
}

impl Drop for RdmaUmem {
    fn drop(&mut self) {
        // SAFETY: `mlx5dv_devx_umem_reg_ex` made the umem, and it is deregistered once.
        let errno = unsafe { ffi::mlx5dv_devx_umem_dereg(self.raw.as_ptr()) };
        if errno != 0 {
            tracing::warn!("{}: mlx5dv_devx_umem_dereg: {}", self.context.title(), errno_text(errno));
        }
    }
}

/// Names of the two calls that can register GPU memory, and a setting that avoids them, for error messages.
struct Calls {
    dma_buf: &'static str,
    address: &'static str,
    remedy: &'static str,
}

/// Registers GPU memory by dma-buf or, failing that, by address, for which Linux needs nvidia-peermem.
fn gpu_memory<T>(
    context: &Context,
    buffer: &DeviceBuffer,
    action: &str,
    calls: Calls,
    by_dma_buf: impl Fn(&OwnedFd) -> Result<T, i32>,
    by_address: impl Fn() -> Result<T, i32>,
) -> Result<T, RdmaError> {
    let mut attempts = Vec::new();
    if let Err(error) = buffer.sync_copies() {
        tracing::warn!(
            "{}: copies of GPU memory may be out of order with NIC traffic: {error}",
            context.title()
        );
    }
    match buffer.dma_buf(DmaBufMapping::Default) {
        Ok(fd) => match by_dma_buf(&fd) {
            Ok(registered) => {
                tracing::info!("{}: {action}: by dma-buf", context.title());
                return Ok(registered);
            }
            Err(errno) => attempts.push(format!("{}: {}", calls.dma_buf, errno_text(errno))),
        },
        Err(error) => attempts.push(error.to_string()),
    }
    match by_address() {
        Ok(registered) => {
            tracing::info!("{}: {action}: by address, since {}", context.title(), attempts.join("; "));
            Ok(registered)
        }
        Err(errno) => {
            attempts.push(format!("{}: {}", calls.address, errno_text(errno)));
            let remedy = format!("{GPU_REMEDY}; {}", calls.remedy);
            Err(RdmaError::Attempts { nic: context.title().into(), action: action.into(), attempts, remedy })
        }
    }
}

fn address(buffer: &DeviceBuffer) -> *mut c_void {
    buffer.address() as *mut c_void
}

fn no_address(context: &Context) -> RdmaError {
    let why = "the memory has no address on the CPU or on a GPU, so it cannot be registered";
    RdmaError::Unusable { nic: context.title().into(), why: why.into() }
}
