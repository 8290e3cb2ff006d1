//! UAR pages, which contain the doorbell registers of a NIC. Kernels write to the registers directly, or through a CPU
//! thread if the pages cannot be mapped.
//!
//! Several types of pages are tried, best first.
#![allow(unsafe_code, reason = "allocates UAR pages of libmlx5 and maps them for kernels")]

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Weak};

use rushmem_base::lock;
use rushmem_config::DoorbellKind;
use rushmem_device::abi::DevAddr;
use rushmem_error::{NicError, RdmaError, Result, errno_text};
use rushmem_machine::{Machine, Mapping, PageKind};
use rushmem_mlx5::doorbell::uar;
use rushmem_softnic::page_size;

use super::context::Context;
use super::doorbell::{DoorbellProxy, DoorbellWord, store_register};
use super::ffi::{self, uar_type};
use super::remedy::{SEE_DMESG, last_errno};
use crate::provider::{DoorbellForm, DoorbellWriter, MappedDoorbell, QpDoorbell, Uar};

/// Types of UAR pages to try, best first: dedicated uncached, shared uncached, dedicated with write combining.
const TYPES: [(u32, &str); 3] =
    [(uar_type::NC_DEDICATED, "NC_DEDICATED"), (uar_type::NC, "NC"), (uar_type::BF, "BF")];

const REMEDY: &str = "To let a GPU ring, load the NVIDIA driver with NVreg_RegistryDwords=\"PeerMappingOverride=1\". Or use \
     RUSHMEM_DOORBELL=auto, which lets a CPU thread ring if the GPU cannot";

/// A function that allocates a UAR page of a given type, or returns why that failed.
type AllocPage = Box<dyn Fn(u32) -> Result<Page, String> + Send + Sync>;

/// Allocates the UAR pages of an open device, and determines who writes to their doorbell registers.
pub(super) struct Doorbells {
    nic: String,
    alloc_page: AllocPage,
    kind: DoorbellKind,
    /// UAR pages currently mapped for kernels. A page has several registers, which libmlx5 hands out one by one, or one that
    /// it hands out repeatedly. All share the mapping.
    mapped: Mutex<Vec<Weak<MappedPage>>>,
    proxy: Mutex<Option<Arc<DoorbellProxy>>>,
    /// Description of how kernels ring doorbells, as last logged.
    description: Mutex<Option<String>>,
}

impl Doorbells {
    pub(super) fn new(context: &Arc<Context>, kind: DoorbellKind) -> Self {
        let (nic, context) = (context.title().into(), Arc::clone(context));
        Self::with_source(nic, Box::new(move |flags| DevxUarPage::alloc(&context, flags)), kind)
    }

    fn with_source(nic: String, alloc_page: AllocPage, kind: DoorbellKind) -> Self {
        let (mapped, proxy, description) = Default::default();
        Self { nic, alloc_page, kind, mapped, proxy, description }
    }

    /// Allocates a UAR page for kernels of `machine`.
    ///
    /// The setting `doorbell` selects who writes to its registers: kernels (`gpu`) or a CPU thread (`cpu`). With
    /// `auto`, the thread writes if kernels cannot, or if `kernels_fail` says that their writes get lost.
    pub(super) fn alloc_uar(
        &self,
        machine: &dyn Machine,
        kernels_fail: Option<&str>,
    ) -> Result<Box<dyn Uar>> {
        let mut attempts = Vec::from_iter(kernels_fail.map(String::from));
        if self.kind != DoorbellKind::Cpu && kernels_fail.is_none() {
            for (flags, name) in TYPES {
                match self.alloc_mapped(machine, flags, name) {
                    Ok(uar) => return Ok(uar),
                    Err(mut failed) => attempts.append(&mut failed),
                }
            }
        }
        if self.kind == DoorbellKind::Gpu {
            return Err(self.failed("letting kernels ring the doorbell", attempts, REMEDY));
        }
        let mut refused = Vec::new();
        for (flags, name) in TYPES {
            match self.alloc(flags, name) {
                Ok(page) => {
                    let proxy = self.proxy(machine, name, &attempts)?;
                    let cause = (!attempts.is_empty()).then(|| attempts.join("; "));
                    return Ok(Box::new(ProxiedUar { proxy, page: Arc::new(page), cause }));
                }
                Err(why) => refused.push(why),
            }
        }
        let remedy = format!("If the device has no page left, end other processes that use it. {SEE_DMESG}");
        Err(self.failed("allocating a UAR page", refused, &remedy))
    }

    fn failed(&self, action: &str, attempts: Vec<String>, remedy: &str) -> rushmem_error::Error {
        let nic = self.nic.clone();
        let error = RdmaError::Attempts { nic, action: action.into(), attempts, remedy: remedy.into() };
        NicError::from(error).into()
    }

    fn alloc(&self, flags: u32, name: &str) -> Result<Page, String> {
        (self.alloc_page)(flags).map_err(|why| format!("mlx5dv_devx_alloc_uar of type {name}: {why}"))
    }

    /// Allocates a UAR page of type `flags`, and maps it for kernels. The error lists the failed attempts.
    fn alloc_mapped(
        &self,
        machine: &dyn Machine,
        flags: u32,
        name: &str,
    ) -> Result<Box<dyn Uar>, Vec<String>> {
        let page = self.alloc(flags, name).map_err(|why| vec![why])?;
        let mut known = lock(&self.mapped);
        known.retain(|mapped| mapped.strong_count() != 0);
        let same = |mapped: &Arc<MappedPage>| mapped.page.mapped_at() == page.mapped_at();
        if let Some(mapped) = known.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(Box::new(MappedUar { mapped, page: Arc::new(page) }));
        }
        let mut attempts = Vec::new();
        // The page of a software device is ordinary memory, which cannot be mapped as registers.
        for kind in [PageKind::Registers, PageKind::Memory] {
            // SAFETY: `page` keeps the UAR page mapped, and `MappedPage` drops it after the mapping.
            match unsafe { machine.map_page(page.mapped_at(), kind) } {
                Ok(mapping) => {
                    let writers = if machine.is_gpu() { "the GPU writes" } else { "native kernels write" };
                    self.log(format!("{writers} to a register of type {name}, mapped as {kind:?}"));
                    let page = Arc::new(page);
                    let mapped = Arc::new(MappedPage { mapping, page: Arc::clone(&page) });
                    known.push(Arc::downgrade(&mapped));
                    return Ok(Box::new(MappedUar { mapped, page }));
                }
                Err(error) => attempts.push(format!("type {name} as {kind:?}: {error}")),
            }
        }
        Err(attempts)
    }

    /// Returns the CPU thread that rings doorbells for kernels, started on the first call. `attempts` are the failed
    /// attempts to let kernels ring.
    fn proxy(&self, machine: &dyn Machine, name: &str, attempts: &[String]) -> Result<Arc<DoorbellProxy>> {
        let mut slot = lock(&self.proxy);
        if let Some(proxy) = &*slot {
            return Ok(Arc::clone(proxy));
        }
        let proxy = Arc::new(DoorbellProxy::start(machine)?);
        let delay = proxy.measure(machine)?;
        let cause = if attempts.is_empty() { "RUSHMEM_DOORBELL=cpu".into() } else { attempts.join("; ") };
        self.log(format!(
            "a CPU thread writes them for kernels to a register of type {name}, with a delay of {delay:.1?} ({cause})"
        ));
        *slot = Some(Arc::clone(&proxy));
        Ok(proxy)
    }

    /// Logs how kernels ring doorbells, unless that was the last description logged.
    fn log(&self, description: String) {
        let mut last = lock(&self.description);
        if last.as_ref() != Some(&description) {
            tracing::info!("{}: doorbells: {description}", self.nic);
            *last = Some(description);
        }
    }

    /// Returns a description of how kernels ring doorbells, or `None` before the first page is allocated.
    pub(super) fn description(&self) -> Option<String> {
        lock(&self.description).clone()
    }
}

/// A doorbell register of the device, and its UAR page, which is mapped into this process.
struct Page {
    id: u32,
    register: *mut u64,
    /// Owner of the page, which frees it on drop.
    _owner: Box<dyn Send + Sync>,
}

// SAFETY: any thread may write to the register at any time, with whole stores.
unsafe impl Send for Page {}
// SAFETY: as for `Send`.
unsafe impl Sync for Page {}

impl Page {
    /// Returns the address of the UAR page, which contains the register.
    fn base(&self) -> *mut u8 {
        page_of(self.register, uar::PAGE_BYTES)
    }

    /// Returns the address of the system's page that contains the register. It may have several UAR pages.
    fn mapped_at(&self) -> *mut u8 {
        page_of(self.register, page_size())
    }

    /// Returns the doorbell register for `form`. libmlx5 reports only the register for doorbells with a record; the
    /// other one has a fixed offset in the page.
    fn register(&self, form: DoorbellForm) -> *mut u64 {
        match form {
            DoorbellForm::Record => self.register,
            DoorbellForm::NoRecord => self.base().wrapping_add(uar::NO_DBR).cast(),
        }
    }

    fn ring(&self, form: DoorbellForm, doorbell: u64) {
        // SAFETY: the page of the register is live.
        unsafe { store_register(self.register(form), doorbell) };
    }
}

/// Returns the start of the page of this size that contains the register.
fn page_of(register: *mut u64, page: usize) -> *mut u8 {
    let register = register.cast::<u8>();
    register.wrapping_sub(register.addr() % page)
}

/// A UAR page allocated by libmlx5, freed on drop.
struct DevxUarPage {
    raw: NonNull<ffi::DevxUar>,
    context: Arc<Context>,
}

// SAFETY: the structure never changes, and libmlx5 locks internally.
unsafe impl Send for DevxUarPage {}
// SAFETY: as for `Send`.
unsafe impl Sync for DevxUarPage {}

impl DevxUarPage {
    /// Allocates a UAR page with the type `flags` (`mlx5dv_devx_alloc_uar`).
    fn alloc(context: &Arc<Context>, flags: u32) -> Result<Page, String> {
        // SAFETY: the context is open.
        let raw = NonNull::new(unsafe { ffi::mlx5dv_devx_alloc_uar(context.raw(), flags) });
        let raw = raw.ok_or_else(|| errno_text(last_errno()))?;
        let owner = Self { raw, context: Arc::clone(context) };
        let uar = owner.uar();
        Ok(Page { id: uar.page_id, register: uar.reg_addr.cast(), _owner: Box::new(owner) })
    }

    fn uar(&self) -> &ffi::DevxUar {
        // SAFETY: the page is live.
        unsafe { self.raw.as_ref() }
    }
}

impl Drop for DevxUarPage {
    fn drop(&mut self) {
        tracing::trace!("{}: freeing UAR page {}", self.context.title(), self.uar().page_id);
        // SAFETY: `mlx5dv_devx_alloc_uar` made the page, and it is freed once.
        unsafe { ffi::mlx5dv_devx_free_uar(self.raw.as_ptr()) };
    }
}

/// A UAR page mapped for kernels. Fields drop in order: the mapping before the page.
struct MappedPage {
    mapping: Box<dyn Mapping>,
    /// The register with which the page was first allocated.
    page: Arc<Page>,
}

/// A doorbell register to which kernels write directly, and its page.
struct MappedUar {
    mapped: Arc<MappedPage>,
    page: Arc<Page>,
}

impl Uar for MappedUar {
    fn page_id(&self) -> u32 {
        self.page.id
    }

    fn doorbell(&self, _: &dyn Machine, form: DoorbellForm) -> Result<Box<dyn QpDoorbell>> {
        let offset = self.page.register(form).addr() - self.page.mapped_at().addr();
        Ok(Box::new(MappedDoorbell(self.mapped.mapping.addr().add(offset as u64))))
    }

    fn ring(&self, form: DoorbellForm, doorbell: u64) -> Result<()> {
        self.page.ring(form, doorbell);
        Ok(())
    }
}

/// A UAR page to whose doorbell registers a CPU thread writes on behalf of kernels.
struct ProxiedUar {
    proxy: Arc<DoorbellProxy>,
    page: Arc<Page>,
    /// Why kernels cannot write to the registers. `None` if the settings ask for the thread.
    cause: Option<String>,
}

impl Uar for ProxiedUar {
    fn writer(&self) -> DoorbellWriter {
        DoorbellWriter::CpuThread { cause: self.cause.clone() }
    }

    fn page_id(&self) -> u32 {
        self.page.id
    }

    fn doorbell(&self, machine: &dyn Machine, form: DoorbellForm) -> Result<Box<dyn QpDoorbell>> {
        // SAFETY: the page keeps the register mapped, and `ProxiedDoorbell` drops it after the word.
        let word = unsafe { self.proxy.word(machine, self.page.register(form)) }?;
        Ok(Box::new(ProxiedDoorbell { word, _proxy: Arc::clone(&self.proxy), _page: Arc::clone(&self.page) }))
    }

    fn ring(&self, form: DoorbellForm, doorbell: u64) -> Result<()> {
        self.page.ring(form, doorbell);
        Ok(())
    }
}

/// The doorbell of one QP on a [`ProxiedUar`]: a word that the CPU thread polls. If QPs shared a word, one could
/// overwrite the doorbell of another.
///
/// Fields drop in order: the word before the page.
struct ProxiedDoorbell {
    word: DoorbellWord,
    _proxy: Arc<DoorbellProxy>,
    _page: Arc<Page>,
}

impl QpDoorbell for ProxiedDoorbell {
    fn register(&self) -> DevAddr {
        self.word.addr()
    }

    fn set_in_use(&self, is_used: bool) {
        self.word.set_in_use(is_used);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use rushmem_machine::{LimitedMachine, Region};

    /// Offset of the doorbell register in its UAR page.
    const REGISTER: u64 = 0x800;

    #[test]
    fn a_register_is_in_a_uar_page_and_in_a_page_of_the_system() {
        let register = std::ptr::without_provenance_mut(0x7_3800);
        assert_eq!(page_of(register, 4 << 10).addr(), 0x7_3000);
        assert_eq!(page_of(register, 64 << 10).addr(), 0x7_0000);
    }

    /// Returns the doorbells of a fake device that returns `page` for all UAR pages, always with the same register.
    fn device(page: &Region, kind: DoorbellKind) -> Doorbells {
        device_with(page, kind, || REGISTER)
    }

    /// Like [`device`], with registers at the offsets that `register` returns.
    fn device_with(
        page: &Region,
        kind: DoorbellKind,
        register: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Doorbells {
        let page = page.clone();
        let alloc_page = move |_| {
            let start = page.memory.host_ptr().unwrap().as_ptr();
            let register = start.wrapping_add(register() as usize).cast();
            Ok(Page { id: 7, register, _owner: Box::new(page.clone()) })
        };
        Doorbells::with_source("a device".into(), Box::new(alloc_page), kind)
    }

    /// Rings a doorbell as a native kernel does: stores `value` to its register.
    fn ring(doorbell: &dyn QpDoorbell, value: u64) {
        // SAFETY: the doorbell is live, and its word is in the CPU's address space here.
        unsafe { &*doorbell.register().ptr::<AtomicU64>() }.store(value, Ordering::Release);
    }

    /// Returns the last doorbell value written to the register in `page`.
    fn register_value(page: &Region) -> u64 {
        let mut value = 0;
        page.read(REGISTER, bytemuck::bytes_of_mut(&mut value)).unwrap();
        value
    }

    #[test]
    fn thread_rings_if_kernels_cannot() {
        let (page, machine) =
            (Region::host(uar::PAGE_BYTES as u64).unwrap(), LimitedMachine::with_pages(|_| false));
        let doorbells = device(&page, DoorbellKind::Auto);
        let uar = doorbells.alloc_uar(&machine, None).unwrap();
        let writer = uar.writer();
        assert!(matches!(&writer, DoorbellWriter::CpuThread { cause: Some(_) }), "{writer:?}");
        let qps = [(); 2].map(|()| uar.doorbell(&machine, DoorbellForm::Record).unwrap());
        for (doorbell, value) in qps.iter().zip([0x1234, u64::MAX]) {
            assert!(doorbell.register() != page.addr.add(REGISTER));
            doorbell.set_in_use(true);
            ring(&**doorbell, value);
            let start = Instant::now();
            while register_value(&page) != value {
                assert!(start.elapsed() < Duration::from_secs(20), "{value:#x} did not arrive");
                std::thread::yield_now();
            }
        }
        let description = doorbells.description().unwrap();
        assert!(description.starts_with("a CPU thread writes them for kernels"), "{description}");
        for (_, name) in TYPES {
            for kind in ["Registers", "Memory"] {
                let why =
                    format!("type {name} as {kind}: a mapping is not available: this machine maps nothing");
                assert!(description.contains(&why), "{why:?} is not in {description:?}");
            }
        }
    }

    #[test]
    fn kernels_ring_a_mapped_register() {
        let page = Region::host(uar::PAGE_BYTES as u64).unwrap();
        for (pages, kind) in
            [((|_| true) as fn(_) -> _, "Registers"), (|kind| kind == PageKind::Memory, "Memory")]
        {
            let machine = LimitedMachine::with_pages(pages);
            for setting in [DoorbellKind::Auto, DoorbellKind::Gpu] {
                let doorbells = device(&page, setting);
                let uar = doorbells.alloc_uar(&machine, None).unwrap();
                for (form, register) in [(DoorbellForm::Record, REGISTER), (DoorbellForm::NoRecord, 0x600)] {
                    let doorbell = uar.doorbell(&machine, form).unwrap();
                    assert!(doorbell.register() == page.addr.add(register));
                }
                let expected =
                    format!("native kernels write to a register of type NC_DEDICATED, mapped as {kind}");
                assert_eq!(doorbells.description().unwrap(), expected);
            }
        }
    }

    #[test]
    fn each_register_of_a_page_is_used() {
        let (page, machine) =
            (Region::host(uar::PAGE_BYTES as u64).unwrap(), LimitedMachine::with_pages(|_| true));
        let next = AtomicU64::new(REGISTER);
        let register = move || next.fetch_add(0x100, Ordering::Relaxed);
        let doorbells = device_with(&page, DoorbellKind::Auto, register);
        let uars = [(); 4].map(|()| doorbells.alloc_uar(&machine, None).unwrap());
        for (uar, register) in uars.iter().zip([0x800, 0x900, 0xa00, 0xb00]) {
            let doorbell = uar.doorbell(&machine, DoorbellForm::Record).unwrap();
            assert!(doorbell.register() == page.addr.add(register), "{register:#x}");
        }
        assert_eq!(lock(&doorbells.mapped).len(), 1, "one mapping for the page");
    }

    #[test]
    fn fails_with_a_remedy_if_kernels_must_ring_but_cannot() {
        let (page, machine) =
            (Region::host(uar::PAGE_BYTES as u64).unwrap(), LimitedMachine::with_pages(|_| false));
        let error = device(&page, DoorbellKind::Gpu).alloc_uar(&machine, None).err().unwrap().to_string();
        assert!(error.starts_with("a device: letting kernels ring the doorbell"), "{error}");
        assert!(error.contains("type BF as Memory: a mapping is not available"), "{error}");
        assert!(error.contains(REMEDY), "{error}");
    }
}
