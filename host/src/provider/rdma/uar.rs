//! Doorbell pages: of the best type that works, reached by kernels themselves or through a thread of the CPU.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rushmem_device::abi::DevAddr;

use super::context::Context;
use super::doorbell::{Ringer, Word, store_register};
use super::error::{RdmaError, errno_text, last_errno};
use super::ffi::{self, uar_type};
use crate::Result;
use crate::config::DoorbellKind;
use crate::machine::{Machine, Mapping, PageKind};
use crate::provider::{self, Bell, Register, Uar};

const PAGE: usize = 4096;

/// Types of pages, best first: a register of a QP's own, stored to as is; shared with others; behind write combining.
const TYPES: [(u32, &str); 3] =
    [(uar_type::NC_DEDICATED, "NC_DEDICATED"), (uar_type::NC, "NC"), (uar_type::BF, "BF")];

const REMEDY: &str = "For a GPU that rings by itself, load the NVIDIA driver with NVreg_RegistryDwords=\"PeerMappingOverride=1\", or use \
     RUSHMEM_DOORBELL=auto, where a thread of the CPU rings if it must";

/// The doorbell pages of one opened device.
pub(super) struct Doorbells {
    context: Arc<Context>,
    kind: DoorbellKind,
    /// Pages that are mapped for kernels: libmlx5 gives the uncached one to everybody who asks.
    mapped: Mutex<Vec<Weak<Mapped>>>,
    ringer: Mutex<Option<Arc<Ringer>>>,
    said: Mutex<Option<String>>,
}

impl Doorbells {
    pub(super) fn new(context: &Arc<Context>, kind: DoorbellKind) -> Self {
        let context = Arc::clone(context);
        Self { context, kind, mapped: Mutex::default(), ringer: Mutex::default(), said: Mutex::default() }
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
        let nic = self.context.title().into();
        let error = RdmaError::Attempts { nic, what: what.into(), attempts, remedy: remedy.into() };
        provider::Error::from(error).into()
    }

    fn alloc(&self, flags: u32, name: &str) -> Result<Page, String> {
        // SAFETY: an open context.
        match NonNull::new(unsafe { ffi::mlx5dv_devx_alloc_uar(self.context.raw(), flags) }) {
            Some(raw) => Ok(Page { raw, context: Arc::clone(&self.context) }),
            None => Err(format!("mlx5dv_devx_alloc_uar of type {name}: {}", errno_text(last_errno()))),
        }
    }

    /// A page whose register kernels reach; or what was tried.
    fn direct(&self, machine: &dyn Machine, flags: u32, name: &str) -> Result<Box<dyn Uar>, Vec<String>> {
        let page = self.alloc(flags, name).map_err(|why| vec![why])?;
        let mut known = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|mapped| mapped.strong_count() != 0);
        let same = |mapped: &Arc<Mapped>| mapped.page.base() == page.base();
        if let Some(mapped) = known.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(Box::new(Direct(mapped)));
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
                    return Ok(Box::new(Direct(mapped)));
                }
                Err(error) => attempts.push(format!("type {name} as {kind:?}: {error}")),
            }
        }
        Err(attempts)
    }

    /// A page whose register a thread of the CPU writes.
    fn proxied(&self, machine: &dyn Machine, page: Page, name: &str, why: &[String]) -> Result<Box<dyn Uar>> {
        let ringer = self.ringer(machine, name, why)?;
        Ok(Box::new(Proxied { ringer, page: Arc::new(page) }))
    }

    fn ringer(&self, machine: &dyn Machine, name: &str, why: &[String]) -> Result<Arc<Ringer>> {
        let mut slot = self.ringer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ringer) = &*slot {
            return Ok(Arc::clone(ringer));
        }
        let ringer = Arc::new(Ringer::start(machine)?);
        let took = ringer.measure(machine)?;
        let cause = if why.is_empty() { "RUSHMEM_DOORBELL=cpu".into() } else { why.join("; ") };
        self.say(format!(
            "a thread of the CPU writes them for kernels to a register of type {name}, {took:.1?} after it is told ({cause})"
        ));
        *slot = Some(Arc::clone(&ringer));
        Ok(ringer)
    }

    /// Logs how doorbells are rung, if it has changed.
    fn say(&self, how: String) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.as_ref() != Some(&how) {
            tracing::info!("{}: doorbells: {how}", self.context.title());
            *said = Some(how);
        }
    }

    /// How doorbells are rung, once one has been made.
    pub(super) fn said(&self) -> Option<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A page of the device's. Given back on drop.
struct Page {
    raw: NonNull<ffi::DevxUar>,
    context: Arc<Context>,
}

// SAFETY: the description does not change, and libmlx5 locks for itself.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    fn raw(&self) -> &ffi::DevxUar {
        // SAFETY: a live page.
        unsafe { self.raw.as_ref() }
    }

    /// First byte of the page that holds the register.
    fn base(&self) -> *mut u8 {
        let register = self.register().cast::<u8>();
        register.wrapping_sub(register as usize % PAGE)
    }

    /// The doorbell register.
    fn register(&self) -> *mut u64 {
        self.raw().reg_addr.cast()
    }

    /// Rings from the CPU.
    fn ring(&self, doorbell: u64) {
        // SAFETY: the register of a live page.
        unsafe { store_register(self.register(), doorbell) };
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        tracing::trace!("{}: UAR page {} goes", self.context.title(), self.raw().page_id);
        // SAFETY: made by `mlx5dv_devx_alloc_uar`, freed once.
        unsafe { ffi::mlx5dv_devx_free_uar(self.raw.as_ptr()) };
    }
}

/// A page that kernels reach. Fields drop in order: the mapping before the page.
struct Mapped {
    mapping: Box<dyn Mapping>,
    page: Page,
}

struct Direct(Arc<Mapped>);

impl Uar for Direct {
    fn page_id(&self) -> u32 {
        self.0.page.raw().page_id
    }

    fn bell(&self, _: &dyn Machine) -> Result<Box<dyn Bell>> {
        let page = &self.0.page;
        let offset = page.register() as usize - page.base() as usize;
        Ok(Box::new(Register(self.0.mapping.addr().add(offset as u64))))
    }

    fn ring(&self, doorbell: u64) {
        self.0.page.ring(doorbell);
    }
}

/// A page that the thread writes.
struct Proxied {
    ringer: Arc<Ringer>,
    page: Arc<Page>,
}

impl Uar for Proxied {
    fn page_id(&self) -> u32 {
        self.page.raw().page_id
    }

    fn bell(&self, machine: &dyn Machine) -> Result<Box<dyn Bell>> {
        // SAFETY: the register stays mapped as long as the page, which `ProxiedBell` keeps until after the word.
        let word = unsafe { self.ringer.word(machine, self.page.register()) }?;
        Ok(Box::new(ProxiedBell { word, _ringer: Arc::clone(&self.ringer), _page: Arc::clone(&self.page) }))
    }

    fn ring(&self, doorbell: u64) {
        self.page.ring(doorbell);
    }
}

/// A word of a QP's own: one that QPs shared could lose a doorbell. Fields drop in order: the word before the page.
struct ProxiedBell {
    word: Word,
    _ringer: Arc<Ringer>,
    _page: Arc<Page>,
}

impl Bell for ProxiedBell {
    fn register(&self) -> DevAddr {
        self.word.addr()
    }
}
