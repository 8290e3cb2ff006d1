//! Tracks the kernel modules that a PE has loaded.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use rushmem_base::lock;
use rushmem_fabric::queues::Shape;
use rushmem_machine::{Machine, Module, RuntimePtx};

use crate::{Error, Ptx, Result, ptx};

/// PTX of the runtime's kernels: its operations, and the service kernel of the software ConnectX.
pub(crate) const RUNTIME: RuntimePtx =
    RuntimePtx { operations: ptx!("rushmem_runtime_kernels"), service: ptx!("rushmem_service") };

/// Checks that kernels support what the job's settings demand of them.
///
/// # Errors
/// - [`Error::Unavailable`] if they run on a GPU and their PTX was built without it.
pub(crate) fn check_features(machine: &dyn Machine, shape: Shape, ptx: &Ptx) -> Result<()> {
    // Each optional feature leaves a symbol in the PTX.
    let optional = [
        (
            shape.is_dc(),
            "DC transport",
            " rushmem_dc[",
            "RUSHMEM_PTX_DC=1, or leave RUSHMEM_DC_ABOVE at auto",
        ),
        (
            shape.failover,
            "failover",
            " rushmem_failover[",
            "RUSHMEM_PTX_FAILOVER=1, or leave RUSHMEM_FAILOVER off",
        ),
    ];
    for (is_needed, feature, symbol, remedy) in optional {
        if is_needed && machine.is_gpu() && !ptx.image.contains(symbol) {
            let what = format!("{feature} in the kernels of {}", ptx.name);
            let why = format!("their PTX was built without it; build with {remedy}");
            return Err(Error::Unavailable { what, why });
        }
    }
    Ok(())
}

/// The kernel modules that a PE has loaded.
#[derive(Default)]
pub(crate) struct Modules(Mutex<State>);

#[derive(Default)]
struct State {
    loaded: Vec<Arc<Module>>,
    /// Unloaded modules that launches or graphs still needed when they were unloaded.
    leaving: Vec<Arc<Module>>,
    /// Names of all kernels that have been unloaded.
    unloaded: BTreeSet<String>,
}

impl Modules {
    /// Loads the kernels of a job, and keeps them for all jobs of the process.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if two kernels have the same name.
    /// - [`Error::Unavailable`] or [`Error::Cuda`] if a GPU cannot load the PTX.
    pub(crate) fn of_job(machine: &dyn Machine, all: &[Ptx]) -> Result<Self> {
        let mut state = State::default();
        for ptx in all {
            let module = Module::load_for_good(machine, ptx)?;
            state.admit("Job::kernels", ptx.name, module.kernels())?;
            state.loaded.push(module);
        }
        Ok(Self(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Loads another module of kernels while the job runs.
    ///
    /// # Errors
    /// - The errors of [`Modules::of_job`].
    pub(crate) fn load(&self, call: &'static str, machine: &dyn Machine, ptx: &Ptx) -> Result<Weak<Module>> {
        self.lock().admit(call, ptx.name, &Module::names(ptx))?;
        self.sweep();
        let module = Module::load(machine, ptx)?;
        let mut state = self.lock();
        // Loading waits without the lock, and another thread may have loaded a module in the meantime.
        state.admit(call, ptx.name, module.kernels())?;
        let known = Arc::downgrade(&module);
        state.loaded.push(module);
        Ok(known)
    }

    /// Unloads a module. If launches or graphs still need it, a later call frees it.
    pub(crate) fn unload(&self, module: &Weak<Module>) {
        let mut state = self.lock();
        if let Some(at) = state.loaded.iter().position(|known| Arc::as_ptr(known) == module.as_ptr()) {
            let module = state.loaded.remove(at);
            state.unloaded.extend(module.kernels().iter().cloned());
            state.leaving.push(module);
        }
        drop(state);
        self.sweep();
    }

    /// Frees unloaded modules that are no longer needed. May wait for kernels, so it does not hold the lock while
    /// freeing.
    fn sweep(&self) {
        let free: Vec<_> = self.lock().leaving.extract_if(.., |module| Module::is_free(module)).collect();
        drop(free);
    }

    /// Returns the loaded module that contains `kernel`, or `None` for a native kernel that is not in any module.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if no loaded module has it.
    pub(crate) fn of(&self, machine: &dyn Machine, kernel: &str) -> Result<Option<Arc<Module>>> {
        let state = self.lock();
        if let Some(module) = state.loaded.iter().find(|module| module.kernels().contains(kernel)) {
            return Ok(Some(Arc::clone(module)));
        }
        let was_there = state.unloaded.contains(kernel);
        if !machine.is_gpu() && !was_there {
            return Ok(None);
        }
        let what = format!("kernel {kernel}");
        if was_there {
            let why = "its module has been unloaded; Pe::load loads it again".into();
            return Err(Error::Unavailable { what, why });
        }
        let known = state.loaded.iter().flat_map(|module| module.kernels()).map(String::as_str);
        let mut known: Vec<_> = known.filter(|name| !name.starts_with("rushmem_")).collect();
        known.sort_unstable();
        let why = format!(
            "the loaded PTX has {}; add its crate with Job::kernels or Pe::load",
            if known.is_empty() { "no kernels".into() } else { known.join(", ") }
        );
        Err(Error::Unavailable { what, why })
    }
}

impl State {
    /// Checks that module `name` may be loaded: none of its `kernels` has the name of a kernel loaded before.
    fn admit(&self, call: &'static str, name: &str, kernels: &BTreeSet<String>) -> Result<()> {
        for other in &self.loaded {
            if let Some(kernel) = kernels.intersection(other.kernels()).next() {
                let (has, theirs) = (format!("{name} has a kernel {kernel}"), other.name());
                let what = format!("{has}, and so has {theirs}, which is loaded; their names must differ");
                return Err(Error::misuse(call, what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem_machine::Native;
    use rushmem_observe::trace::has_timeline;

    const ONE: Ptx = Ptx {
        name: "one",
        image: ".visible .entry first()\n.visible .entry second()",
        omitted: "",
        code: &[],
    };
    const OTHER: Ptx = Ptx { name: "other", image: ".visible .entry third()", omitted: "", code: &[] };

    #[test]
    fn committed_ptx_has_no_timeline() {
        assert!(!RUNTIME.operations.image.is_empty() && !has_timeline(&RUNTIME.operations));
    }

    fn machine() -> Native {
        Native::new(Default::default())
    }

    #[test]
    fn unloaded_module_is_freed_once_it_is_not_needed() {
        let (modules, machine) = (Modules::default(), machine());
        let one = modules.load("load", &machine, &ONE).unwrap();
        let other = modules.load("load", &machine, &OTHER).unwrap();
        let needed = modules.of(&machine, "second").unwrap().unwrap();
        assert_eq!(needed.name(), "one");
        modules.unload(&one);
        modules.unload(&other);
        assert!(one.upgrade().is_some() && other.upgrade().is_none());

        // The same kernels can be loaded again while the first module is still needed.
        let again = modules.load("load", &machine, &ONE).unwrap();
        drop(needed);
        assert!(one.upgrade().is_some(), "the last user would wait for kernels");
        modules.unload(&again);
        assert!(one.upgrade().is_none() && again.upgrade().is_none());
    }

    #[test]
    fn refuses_names_that_are_loaded_and_kernels_that_are_not() {
        let machine = machine();
        let modules = Modules::of_job(&machine, &[ONE]).unwrap();
        let error = modules.load("load", &machine, &Ptx { name: "again", ..ONE }).unwrap_err();
        let text = "load: again has a kernel first, and so has one, which is loaded; their names must differ";
        assert_eq!(error.to_string(), text);
        let other = modules.load("load", &machine, &OTHER).unwrap();
        modules.unload(&other);
        let error = modules.of(&machine, "third").err().unwrap();
        let text = "kernel third is not available: its module has been unloaded; Pe::load loads it again";
        assert_eq!(error.to_string(), text);
        // A function of the program.
        assert!(modules.of(&machine, "fourth").unwrap().is_none());
        let error = Modules::of_job(&machine, &[ONE, OTHER, OTHER]).err().unwrap();
        assert!(matches!(error, Error::Misuse { call: "Job::kernels", .. }), "{error}");
    }
}
