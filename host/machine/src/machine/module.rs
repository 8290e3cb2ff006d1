//! Modules: kernels that are loaded together.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use rushmem_base::Ptx;
use rushmem_base::lock;
use rushmem_cuda::{self as cuda, Function};
use rushmem_error::Result;

use super::Machine;

/// Kernels of a loaded module.
pub enum Code {
    /// Functions of the program, which need no loading.
    Native,
    /// Kernels loaded to a GPU, by name.
    Gpu(HashMap<String, Function>),
}

/// The loaded kernels of one PTX. Launches and graphs hold a reference.
pub struct Module {
    name: &'static str,
    kernels: BTreeSet<String>,
    code: Code,
}

/// Cache of modules that are never unloaded. The key is the GPU's ordinal and the address and length of the PTX. The
/// value is `None` until the first load completes.
type Kept = HashMap<(Option<u32>, usize, usize), Arc<Mutex<Option<Arc<Module>>>>>;

impl Module {
    /// Loads the kernels of `ptx`.
    ///
    /// # Errors
    /// The errors of the machine.
    pub fn load(machine: &dyn Machine, ptx: &Ptx) -> Result<Arc<Self>> {
        let (kernels, code) = (Self::names(ptx), machine.load(ptx)?);
        Ok(Arc::new(Self { name: ptx.name, kernels, code }))
    }

    /// Returns the names of the kernels in `ptx`, or none if the build left the PTX out.
    pub fn names(ptx: &Ptx) -> BTreeSet<String> {
        cuda::ptx_kernels(ptx.image).into_keys().collect()
    }

    /// Loads the kernels of `ptx` on first use and keeps them for all PEs and jobs until the process exits. Loading is
    /// slow, and kernels keep no state between launches.
    ///
    /// # Errors
    /// The errors of [`Module::load`].
    pub fn load_for_good(machine: &dyn Machine, ptx: &Ptx) -> Result<Arc<Self>> {
        static KEPT: Mutex<Option<Kept>> = Mutex::new(None);
        let kept = {
            let mut all = lock(&KEPT);
            // The PTX is static, so its address identifies it without hashing the text.
            let place = (machine.gpu(), ptx.image.as_ptr().addr(), ptx.image.len());
            Arc::clone(all.get_or_insert_default().entry(place).or_default())
        };
        // The lock of one entry serializes PEs that load the same module on one GPU. Loads on other GPUs proceed in
        // parallel.
        let mut kept = lock(&kept);
        match &*kept {
            Some(module) => Ok(Arc::clone(module)),
            None => Ok(Arc::clone(kept.insert(Self::load(machine, ptx)?))),
        }
    }

    /// Name of the module or crate that contains the kernels.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Names of the kernels; see [`Module::names`].
    pub fn kernels(&self) -> &BTreeSet<String> {
        &self.kernels
    }

    pub(super) fn function(&self, name: &str) -> Option<&Function> {
        match &self.code {
            Code::Native => None,
            Code::Gpu(functions) => functions.get(name),
        }
    }

    /// Returns whether `module` is the only reference to a loaded module, so no launch or graph uses it.
    pub fn is_free(module: &Arc<Self>) -> bool {
        Arc::strong_count(module) == 1
    }
}
