//! Kernels that are loaded together.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Machine;
use crate::cuda::{self, Function};
use crate::{Ptx, Result};

/// Kernels as a machine runs them.
pub(crate) enum Code {
    /// Functions of the program, which are there anyway.
    Native,
    /// By name.
    Gpu(HashMap<String, Function>),
}

/// The kernels of one PTX, loaded. What runs, or may run again, keeps it.
pub(crate) struct Module {
    name: &'static str,
    kernels: BTreeSet<String>,
    code: Code,
    /// A CUDA graph of the application's may hold its kernels.
    captured: AtomicBool,
}

/// What this process has loaded for good, by GPU, and by place and length of the PTX; `None` while nothing is.
type Kept = HashMap<(Option<u32>, usize, usize), Arc<Mutex<Option<Arc<Module>>>>>;

impl Module {
    /// Loads the kernels of `ptx`.
    ///
    /// # Errors
    /// What the machine refuses.
    pub(crate) fn load(machine: &dyn Machine, ptx: &Ptx) -> Result<Arc<Self>> {
        let (kernels, code) = (Self::names(ptx), machine.load(ptx)?);
        Ok(Arc::new(Self { name: ptx.name, kernels, code, captured: AtomicBool::new(false) }))
    }

    /// Names of the kernels of `ptx`; none if it was not built.
    pub(crate) fn names(ptx: &Ptx) -> BTreeSet<String> {
        cuda::kernels(ptx.image).into_keys().collect()
    }

    /// Loads the kernels of `ptx` once for all PEs and jobs of this process, and until it ends: loading may take long, and
    /// kernels keep nothing from one launch to the next.
    ///
    /// # Errors
    /// As [`Module::load`].
    pub(crate) fn load_for_good(machine: &dyn Machine, ptx: &Ptx) -> Result<Arc<Self>> {
        static KEPT: Mutex<Option<Kept>> = Mutex::new(None);
        let kept = {
            let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
            let place = (machine.gpu(), ptx.image.as_ptr().addr(), ptx.image.len());
            Arc::clone(all.get_or_insert_default().entry(place).or_default())
        };
        // Of several PEs on one GPU the first one loads, while those on others load theirs.
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some(module) => Ok(Arc::clone(module)),
            None => Ok(Arc::clone(kept.insert(Self::load(machine, ptx)?))),
        }
    }

    /// The crate that it was made of.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// [`Module::names`] of what it was loaded from.
    pub(crate) fn kernels(&self) -> &BTreeSet<String> {
        &self.kernels
    }

    /// A kernel of it, on a GPU.
    pub(super) fn function(&self, name: &str) -> Option<&Function> {
        match &self.code {
            Code::Native => None,
            Code::Gpu(functions) => functions.get(name),
        }
    }

    /// A kernel of it went into a graph of which nobody tells when it is gone.
    pub(crate) fn capture(&self) {
        self.captured.store(true, Ordering::Relaxed);
    }

    /// Whether nobody but the holder of `module` needs it.
    pub(crate) fn is_free(module: &Arc<Self>) -> bool {
        Arc::strong_count(module) == 1 && !module.captured.load(Ordering::Relaxed)
    }
}
