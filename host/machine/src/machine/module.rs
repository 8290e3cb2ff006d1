//! Modules: kernels that are loaded together.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use rushmem_base::Ptx;
use rushmem_base::lock;
use rushmem_cuda::{self as cuda, Function};
use rushmem_error::Result;

use super::Machine;

/// Kernels in the form that a machine runs.
pub enum Code {
    /// Functions of the program, which need no loading.
    Native,
    /// Loaded kernels, by name.
    Gpu(HashMap<String, Function>),
}

/// The loaded kernels of one PTX. Running and repeatable launches keep it.
pub struct Module {
    name: &'static str,
    kernels: BTreeSet<String>,
    code: Code,
}

/// The modules that this process keeps, by GPU, and by address and length of the PTX. `None` before the first load.
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

    /// Returns the names of the kernels of `ptx`; none if it was not built.
    pub fn names(ptx: &Ptx) -> BTreeSet<String> {
        cuda::ptx_kernels(ptx.image).into_keys().collect()
    }

    /// Loads the kernels of `ptx` once for all PEs and jobs of this process, until the process ends. Loading may take
    /// long, and kernels keep no state between launches.
    ///
    /// # Errors
    /// The errors of [`Module::load`].
    pub fn load_for_good(machine: &dyn Machine, ptx: &Ptx) -> Result<Arc<Self>> {
        static KEPT: Mutex<Option<Kept>> = Mutex::new(None);
        let kept = {
            let mut all = lock(&KEPT);
            let place = (machine.gpu(), ptx.image.as_ptr().addr(), ptx.image.len());
            Arc::clone(all.get_or_insert_default().entry(place).or_default())
        };
        // The first of several PEs on one GPU loads, while PEs on other GPUs load theirs.
        let mut kept = lock(&kept);
        match &*kept {
            Some(module) => Ok(Arc::clone(module)),
            None => Ok(Arc::clone(kept.insert(Self::load(machine, ptx)?))),
        }
    }

    /// Returns the name of the crate that contains the kernels.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the kernels' names; see [`Module::names`].
    pub fn kernels(&self) -> &BTreeSet<String> {
        &self.kernels
    }

    /// Returns a kernel of the module, on a GPU.
    pub(super) fn function(&self, name: &str) -> Option<&Function> {
        match &self.code {
            Code::Native => None,
            Code::Gpu(functions) => functions.get(name),
        }
    }

    /// Returns whether only the holder of `module` needs it.
    pub fn is_free(module: &Arc<Self>) -> bool {
        Arc::strong_count(module) == 1
    }
}
