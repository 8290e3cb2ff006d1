//! Doorbell pages: of the best type that works, reached by kernels themselves or through a thread of the CPU.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rushmem_device::abi::DevAddr;

use super::context::Context;
use super::doorbell::{DoorbellProxy, DoorbellWord, store_register};
use super::error::{RdmaError, errno_text, last_errno};
use super::ffi::{self, uar_type};
use crate::Result;
use crate::config::DoorbellKind;
use crate::machine::{Machine, Mapping, PageKind};
use crate::provider::{self, MappedDoorbell, QpDoorbell, Uar};

const PAGE: usize = 4096;

/// Types of pages, best first: a register of a QP's own, stored to as is; shared with others; behind write combining.
const TYPES: [(u32, &str); 3] =
    [(uar_type::NC_DEDICATED, "NC_DEDICATED"), (uar_type::NC, "NC"), (uar_type::BF, "BF")];

const REMEDY: &str = "For a GPU that rings by itself, load the NVIDIA driver with NVreg_RegistryDwords=\"PeerMappingOverride=1\", or use \
     RUSHMEM_DOORBELL=auto, where a thread of the CPU rings if it must";

/// Gives a page of a type, or says why not.
type AllocPage = Box<dyn Fn(u32) -> Result<Page, String> + Send + Sync>;

/// The doorbell pages of one opened device.
pub(super) struct Doorbells {
    /// The device.
    nic: String,
    source: AllocPage,
    kind: DoorbellKind,
    /// Pages that are mapped for kernels: libmlx5 gives the uncached one to everybody who asks.
    mapped: Mutex<Vec<Weak<Mapped>>>,
    proxy: Mutex<Option<Arc<DoorbellProxy>>>,
    said: Mutex<Option<String>>,
}

impl Doorbells {
    pub(super) fn new(context: &Arc<Context>, kind: DoorbellKind) -> Self {
        let (nic, context) = (context.title().into(), Arc::clone(context));
        Self::of(nic, Box::new(move |flags| Owned::alloc(&context, flags)), kind)
    }

    fn of(nic: String, source: AllocPage, kind: DoorbellKind) -> Self {
        let (mapped, proxy, said) = Default::default();
        Self { nic, source, kind, mapped, proxy, said }
    }

    /// A page for kernels of `machine`.
    pub(super) fn get(&self, machine: &dyn Machine) -> Result<Box<dyn Uar>> {
        let mut attempts = Vec::new();
        if self.kind != DoorbellKind::Cpu {
            for (flags, name) in TYPES {
                match self.direct(machine, flags, name) {
                    Ok(uar) => return Ok(uar),
                    Err(mut why) => attempts.append(&mut why),
                }
            }
        }
        if self.kind == DoorbellKind::Gpu {
            return Err(self.failed("letting kernels ring the doorbell", attempts, REMEDY));
        }
        let mut refused = Vec::new();
        for (flags, name) in TYPES {
            match self.alloc(flags, name) {
                Ok(page) => return self.proxied(machine, page, name, &attempts),
                Err(why) => refused.push(why),
            }
        }
        let remedy = "If the device has no page left, end other processes that use it; else see dmesg for what the \
                      mlx5_ib driver says";
        Err(self.failed("getting a doorbell page", refused, remedy))
    }

    fn failed(&self, what: &str, attempts: Vec<String>, remedy: &str) -> crate::Error {
        let nic = self.nic.clone();
        let error = RdmaError::Attempts { nic, what: what.into(), attempts, remedy: remedy.into() };
        provider::Error::from(error).into()
    }

    fn alloc(&self, flags: u32, name: &str) -> Result<Page, String> {
        (self.source)(flags).map_err(|why| format!("mlx5dv_devx_alloc_uar of type {name}: {why}"))
    }

    /// A page whose register kernels reach; or what was tried.
    fn direct(&self, machine: &dyn Machine, flags: u32, name: &str) -> Result<Box<dyn Uar>, Vec<String>> {
        let page = self.alloc(flags, name).map_err(|why| vec![why])?;
        let mut known = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|mapped| mapped.strong_count() != 0);
        let same = |mapped: &Arc<Mapped>| mapped.page.base() == page.base();
        if let Some(mapped) = known.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(Box::new(MappedUar(mapped)));
        }
        let mut attempts = Vec::new();
        // A device's page is mapped as such; where that is refused, or the device is software, as memory.
        for kind in [PageKind::Registers, PageKind::Memory] {
            // SAFETY: the page stays mapped as long as `page`, which `Mapped` keeps until after the mapping.
            match unsafe { machine.map_page(page.base(), kind) } {
                Ok(mapping) => {
                    let who = if machine.is_gpu() { "the GPU writes" } else { "native kernels write" };
                    self.say(format!("{who} to a register of type {name}, mapped as {kind:?}"));
                    let mapped = Arc::new(Mapped { mapping, page });
                    known.push(Arc::downgrade(&mapped));
                    return Ok(Box::new(MappedUar(mapped)));
                }
                Err(error) => attempts.push(format!("type {name} as {kind:?}: {error}")),
            }
        }
        Err(attempts)
    }

    /// A page whose register a thread of the CPU writes.
    fn proxied(&self, machine: &dyn Machine, page: Page, name: &str, why: &[String]) -> Result<Box<dyn Uar>> {
        let proxy = self.proxy(machine, name, why)?;
        Ok(Box::new(ProxiedUar { proxy, page: Arc::new(page) }))
    }

    fn proxy(&self, machine: &dyn Machine, name: &str, why: &[String]) -> Result<Arc<DoorbellProxy>> {
        let mut slot = self.proxy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(proxy) = &*slot {
            return Ok(Arc::clone(proxy));
        }
        let proxy = Arc::new(DoorbellProxy::start(machine)?);
        let took = proxy.measure(machine)?;
        let cause = if why.is_empty() { "RUSHMEM_DOORBELL=cpu".into() } else { why.join("; ") };
        self.say(format!(
            "a thread of the CPU writes them for kernels to a register of type {name}, {took:.1?} after it is told ({cause})"
        ));
        *slot = Some(Arc::clone(&proxy));
        Ok(proxy)
    }

    /// Logs how doorbells are rung, if it has changed.
    fn say(&self, how: String) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.as_ref() != Some(&how) {
            tracing::info!("{}: doorbells: {how}", self.nic);
            *said = Some(how);
        }
    }

    /// How doorbells are rung, once one has been made.
    pub(super) fn said(&self) -> Option<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A page of the device's.
struct Page {
    id: u32,
    /// The doorbell register.
    register: *mut u64,
    /// Gives it back when it is dropped.
    _owner: Box<dyn Send + Sync>,
}

// SAFETY: the register may be written by any thread, whole and as often as one likes.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// First byte of the page that holds the register.
    fn base(&self) -> *mut u8 {
        let register = self.register.cast::<u8>();
        register.wrapping_sub(register as usize % PAGE)
    }

    /// Rings from the CPU.
    fn ring(&self, doorbell: u64) {
        // SAFETY: the register of a live page.
        unsafe { store_register(self.register, doorbell) };
    }
}

/// A page that libmlx5 has given. Given back on drop.
struct Owned {
    raw: NonNull<ffi::DevxUar>,
    context: Arc<Context>,
}

// SAFETY: the description does not change, and libmlx5 locks for itself.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Owned {
    fn alloc(context: &Arc<Context>, flags: u32) -> Result<Page, String> {
        // SAFETY: an open context.
        let raw = NonNull::new(unsafe { ffi::mlx5dv_devx_alloc_uar(context.raw(), flags) });
        let raw = raw.ok_or_else(|| errno_text(last_errno()))?;
        let owner = Self { raw, context: Arc::clone(context) };
        let uar = owner.uar();
        Ok(Page { id: uar.page_id, register: uar.reg_addr.cast(), _owner: Box::new(owner) })
    }

    fn uar(&self) -> &ffi::DevxUar {
        // SAFETY: a live page.
        unsafe { self.raw.as_ref() }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        tracing::trace!("{}: UAR page {} goes", self.context.title(), self.uar().page_id);
        // SAFETY: made by `mlx5dv_devx_alloc_uar`, freed once.
        unsafe { ffi::mlx5dv_devx_free_uar(self.raw.as_ptr()) };
    }
}

/// A page that kernels reach. Fields drop in order: the mapping before the page.
struct Mapped {
    mapping: Box<dyn Mapping>,
    page: Page,
}

struct MappedUar(Arc<Mapped>);

impl Uar for MappedUar {
    fn page_id(&self) -> u32 {
        self.0.page.id
    }

    fn doorbell(&self, _: &dyn Machine) -> Result<Box<dyn QpDoorbell>> {
        let page = &self.0.page;
        let offset = page.register as usize - page.base() as usize;
        Ok(Box::new(MappedDoorbell(self.0.mapping.addr().add(offset as u64))))
    }

    fn ring(&self, doorbell: u64) {
        self.0.page.ring(doorbell);
    }
}

/// A page that the thread writes.
struct ProxiedUar {
    proxy: Arc<DoorbellProxy>,
    page: Arc<Page>,
}

impl Uar for ProxiedUar {
    fn page_id(&self) -> u32 {
        self.page.id
    }

    fn doorbell(&self, machine: &dyn Machine) -> Result<Box<dyn QpDoorbell>> {
        // SAFETY: the register stays mapped as long as the page, which `ProxiedBell` keeps until after the word.
        let word = unsafe { self.proxy.word(machine, self.page.register) }?;
        Ok(Box::new(ProxiedBell { word, _ringer: Arc::clone(&self.proxy), _page: Arc::clone(&self.page) }))
    }

    fn ring(&self, doorbell: u64) {
        self.page.ring(doorbell);
    }
}

/// A word of a QP's own: one that QPs shared could lose a doorbell. Fields drop in order: the word before the page.
struct ProxiedBell {
    word: DoorbellWord,
    _ringer: Arc<DoorbellProxy>,
    _page: Arc<Page>,
}

impl QpDoorbell for ProxiedBell {
    fn register(&self) -> DevAddr {
        self.word.addr()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::machine::{LimitedMachine, Region};

    /// Where the register is in its page.
    const REGISTER: u64 = 0x800;

    /// A device, all pages of which are this memory.
    fn device(page: &Region, kind: DoorbellKind) -> Doorbells {
        let page = page.clone();
        let source = move |_| {
            let start = page.memory.host_ptr().unwrap().as_ptr();
            let register = start.wrapping_add(REGISTER as usize).cast();
            Ok(Page { id: 7, register, _owner: Box::new(page.clone()) })
        };
        Doorbells::of("a device".into(), Box::new(source), kind)
    }

    /// Rings as a native kernel does.
    fn ring(bell: &dyn QpDoorbell, value: u64) {
        // SAFETY: the word of a live bell, which lies in the CPU's address space here.
        unsafe { &*bell.register().ptr::<AtomicU64>() }.store(value, Ordering::Release);
    }

    /// What was last stored to the register.
    fn rung(page: &Region) -> u64 {
        let mut value = 0;
        page.read(REGISTER, bytemuck::bytes_of_mut(&mut value)).unwrap();
        value
    }

    #[test]
    fn a_thread_rings_where_kernels_cannot_reach_the_register() {
        let (page, machine) = (Region::host(PAGE as u64), LimitedMachine::with_pages(|_| false));
        let doorbells = device(&page, DoorbellKind::Auto);
        let uar = doorbells.get(&machine).unwrap();
        let bells = [(); 2].map(|()| uar.doorbell(&machine).unwrap());
        for (bell, value) in bells.iter().zip([0x1234, u64::MAX]) {
            assert!(bell.register() != page.addr.add(REGISTER));
            ring(&**bell, value);
            let start = Instant::now();
            while rung(&page) != value {
                assert!(start.elapsed() < Duration::from_secs(20), "{value:#x} did not arrive");
                std::thread::yield_now();
            }
        }
        let said = doorbells.said().unwrap();
        assert!(said.starts_with("a thread of the CPU writes them for kernels"), "{said}");
        for (_, name) in TYPES {
            for kind in ["Registers", "Memory"] {
                let why = format!("type {name} as {kind}: a map is not available: there is no paper");
                assert!(said.contains(&why), "{why:?} is not in {said:?}");
            }
        }
    }

    #[test]
    fn kernels_ring_where_they_reach_the_register() {
        let page = Region::host(PAGE as u64);
        for (pages, kind) in
            [((|_| true) as fn(_) -> _, "Registers"), (|kind| kind == PageKind::Memory, "Memory")]
        {
            let machine = LimitedMachine::with_pages(pages);
            for setting in [DoorbellKind::Auto, DoorbellKind::Gpu] {
                let doorbells = device(&page, setting);
                let uar = doorbells.get(&machine).unwrap();
                assert!(uar.doorbell(&machine).unwrap().register() == page.addr.add(REGISTER));
                let said = "native kernels write to a register of type NC_DEDICATED, mapped as";
                assert_eq!(doorbells.said().unwrap(), format!("{said} {kind}"));
            }
        }
    }

    #[test]
    fn kernels_that_must_ring_and_cannot_are_an_error_with_a_remedy() {
        let (page, machine) = (Region::host(PAGE as u64), LimitedMachine::with_pages(|_| false));
        let error = device(&page, DoorbellKind::Gpu).get(&machine).err().unwrap().to_string();
        assert!(error.starts_with("a device: letting kernels ring the doorbell"), "{error}");
        assert!(error.contains("type BF as Memory: a map is not available"), "{error}");
        assert!(error.contains(REMEDY), "{error}");
    }
}
