//! Which kernels a PE has, and of which module each is.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use rushmem_base::lock;

use crate::machine::{Machine, Module};
use crate::{Error, Pe, Ptx, Result};

/// Kernels that [`Pe::load`] has loaded. Dropping it unloads them.
#[must_use = "dropping it unloads the kernels"]
pub struct Kernels<'a> {
    pe: &'a Pe,
    module: Weak<Module>,
}

impl Kernels<'_> {
    /// Unloads them: launches from now on are refused. What was launched goes on to its end, and graphs that were recorded
    /// keep what they launch. NVSHMEM's `nvshmemx_cumodule_finalize`.
    ///
    /// With kernels on a GPU it waits until none of this process's PEs runs one, and frees the module; while launches or
    /// graphs need that, it is left to the next [`Pe::load`] or `unload`, or to the PE's end. A module of which a kernel was
    /// captured from a CUDA stream of the application's stays until the PE's end: nobody tells when that graph is gone.
    pub fn unload(self) {}
}

impl Drop for Kernels<'_> {
    fn drop(&mut self) {
        self.pe.modules().unload(&self.module);
    }
}

impl Pe {
    /// Loads more kernels while the job runs, for this PE: its launches, streams and graphs take them from now on, until
    /// they are unloaded. Not collective: before a kernel waits for another PE's, both have loaded it. Those that the job
    /// was given ([`Job::kernels`](crate::Job::kernels)) are there all the time. NVSHMEM's `nvshmemx_cumodule_init`.
    ///
    /// With kernels on a GPU it waits until none of this process's PEs runs one, and none begins meanwhile: load before a
    /// kernel runs that waits for what this PE does next, or it waits until its deadline (`RUSHMEM_TIMEOUT`).
    ///
    /// Natively kernels are functions of the program, and loading keeps account of them only: one that no module was
    /// loaded with runs all the same, and nothing is known of a module without PTX.
    ///
    /// ```ignore
    /// let solver = pe.load(rushmem::ptx!("solver_kernels"))?;
    /// pe.run(pe.grid(), solver_kernels::relax(cells))?;
    /// solver.unload();
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] if one of its kernels has the name of one that is loaded: kernels are told apart by their names.
    /// [`Error::Unavailable`] on a GPU if the build left its PTX out; what the driver says of the PTX.
    pub fn load(&self, ptx: Ptx) -> Result<Kernels<'_>> {
        Ok(Kernels { pe: self, module: self.modules().load("Pe::load", self.machine_ref(), &ptx)? })
    }
}

/// All that a PE has loaded.
#[derive(Default)]
pub(crate) struct Modules(Mutex<State>);

#[derive(Default)]
struct State {
    loaded: Vec<Arc<Module>>,
    /// What was unloaded while something needed it.
    leaving: Vec<Arc<Module>>,
    /// The names of all kernels that were unloaded.
    unloaded: BTreeSet<String>,
}

impl Modules {
    /// What a job begins with.
    ///
    /// # Errors
    /// As [`Pe::load`].
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

    fn load(&self, call: &'static str, machine: &dyn Machine, ptx: &Ptx) -> Result<Weak<Module>> {
        self.lock().admit(call, ptx.name, &Module::names(ptx))?;
        self.sweep();
        let module = Module::load(machine, ptx)?;
        let mut state = self.lock();
        // Another thread may have loaded meanwhile.
        state.admit(call, ptx.name, module.kernels())?;
        let known = Arc::downgrade(&module);
        state.loaded.push(module);
        Ok(known)
    }

    fn unload(&self, module: &Weak<Module>) {
        let mut state = self.lock();
        if let Some(place) = state.loaded.iter().position(|known| Arc::as_ptr(known) == module.as_ptr()) {
            let module = state.loaded.remove(place);
            state.unloaded.extend(module.kernels().iter().cloned());
            state.leaving.push(module);
        }
        drop(state);
        self.sweep();
    }

    /// Frees what nobody needs any more. The lock is not held meanwhile: it may wait for kernels.
    fn sweep(&self) {
        let free: Vec<_> = self.lock().leaving.extract_if(.., |module| Module::is_free(module)).collect();
        drop(free);
    }

    /// The module of a kernel; none for a function of the program that is of no module.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if none of those that are loaded has it.
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
            "the PTX that is loaded has {}; add its crate with Job::kernels or Pe::load",
            if known.is_empty() { "no kernels".into() } else { known.join(", ") }
        );
        Err(Error::Unavailable { what, why })
    }
}

impl State {
    /// Whether kernels of these names may be loaded beside those that are.
    fn admit(&self, call: &'static str, name: &str, kernels: &BTreeSet<String>) -> Result<()> {
        for other in &self.loaded {
            if let Some(kernel) = kernels.intersection(other.kernels()).next() {
                let (has, theirs) = (format!("{name} has a kernel {kernel}"), other.name());
                let what = format!("{has}, and so has {theirs}, which is loaded: their names must differ");
                return Err(Error::Misuse { call, what });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Native;

    const ONE: Ptx = Ptx {
        name: "one",
        image: ".visible .entry first()\n.visible .entry second()",
        omitted: "",
        code: &[],
    };
    const OTHER: Ptx = Ptx { name: "other", image: ".visible .entry third()", omitted: "", code: &[] };

    fn machine() -> Native {
        Native::new(Default::default(), 1)
    }

    #[test]
    fn a_module_stays_while_it_is_needed_and_is_freed_by_the_next_call() {
        let (modules, machine) = (Modules::default(), machine());
        let one = modules.load("load", &machine, &ONE).unwrap();
        let other = modules.load("load", &machine, &OTHER).unwrap();
        let needed = modules.of(&machine, "second").unwrap().unwrap();
        assert_eq!(needed.name(), "one");
        modules.unload(&one);
        modules.unload(&other);
        assert!(one.upgrade().is_some() && other.upgrade().is_none());

        // Another one with the same kernels, while the first is still needed.
        let again = modules.load("load", &machine, &ONE).unwrap();
        drop(needed);
        assert!(one.upgrade().is_some(), "whoever needed it last would wait for kernels");
        modules.unload(&again);
        assert!(one.upgrade().is_none() && again.upgrade().is_none());
    }

    #[test]
    fn a_module_that_was_captured_stays() {
        let (modules, machine) = (Modules::default(), machine());
        let one = modules.load("load", &machine, &ONE).unwrap();
        one.upgrade().unwrap().capture();
        modules.unload(&one);
        let _other = modules.load("load", &machine, &OTHER).unwrap();
        assert!(one.upgrade().is_some());
        drop(modules);
        assert!(one.upgrade().is_none());
    }

    #[test]
    fn names_are_those_of_what_is_loaded() {
        let machine = machine();
        let modules = Modules::of_job(&machine, &[ONE]).unwrap();
        let error = modules.load("load", &machine, &Ptx { name: "again", ..ONE }).unwrap_err();
        let text = "load: again has a kernel first, and so has one, which is loaded: their names must differ";
        assert_eq!(error.to_string(), text);
        let other = modules.load("load", &machine, &OTHER).unwrap();
        modules.unload(&other);
        let error = modules.of(&machine, "third").err().unwrap();
        let text = "kernel third is not available: its module has been unloaded; Pe::load loads it again";
        assert_eq!(error.to_string(), text);
        // The program's own, of which nothing is known.
        assert!(modules.of(&machine, "fourth").unwrap().is_none());
        let error = Modules::of_job(&machine, &[ONE, OTHER, OTHER]).err().unwrap();
        assert!(matches!(error, Error::Misuse { call: "Job::kernels", .. }), "{error}");
    }
}
