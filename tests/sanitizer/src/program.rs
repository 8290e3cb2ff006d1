//! Programs, and the memory that each of them gets.

use rushmem::bootstrap::is_launched;
use rushmem::config::Config;
use rushmem::{Error, Job, LaunchConfig, Pe};
use rushmem_device::kernel::{Call, KernelArg};
use rushmem_device::{Lock, Signal, Sym, SymSlice};

/// One block of one thread.
pub(crate) const ONE: LaunchConfig = LaunchConfig::new(1, 1);

/// Words of each array.
const WORDS: usize = 8;

/// The symmetric memory of a program. All of it is zero at the start, except for the outbox.
#[derive(Clone, Copy, KernelArg)]
#[repr(C)]
pub struct Memory {
    /// Eight words for the data that others send.
    pub inbox: SymSlice<u64>,
    /// Eight words of data to send: 10 to 17 on PE 0, 20 to 27 on PE 1, and so on.
    pub outbox: SymSlice<u64>,
    /// Eight words for everything else.
    pub words: SymSlice<u64>,
    /// A word that announces data.
    pub flag: Sym<Signal>,
    /// A word for the answer.
    pub answer: Sym<Signal>,
    /// A free lock.
    pub lock: Sym<Lock>,
}

impl Memory {
    fn new(pe: &Pe) -> rushmem::Result<Self> {
        let memory = Self {
            inbox: pe.alloc_named("inbox", WORDS)?,
            outbox: pe.alloc_named("outbox", WORDS)?,
            words: pe.alloc_named("words", WORDS)?,
            flag: pe.alloc_named("flag", 1)?.at(0),
            answer: pe.alloc_named("answer", 1)?.at(0),
            lock: pe.alloc_named("lock", 1)?.at(0),
        };
        let first = 10 * (u64::from(pe.my_pe()) + 1);
        pe.write(memory.outbox, &Vec::from_iter(first..first + WORDS as u64))?;
        pe.host_sync()?;
        Ok(memory)
    }
}

/// The judgement that a sanitizer must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No race and no deadlock.
    Clean,
    /// One race, between the lines marked `// first` and `// second`.
    Race,
    /// One deadlock, of the calls marked `// waits`.
    Deadlock,
}

/// The code of a program.
#[derive(Clone, Copy, Debug)]
pub enum Code {
    /// A kernel that every PE launches.
    Kernel {
        /// The kernel.
        kernel: fn(Memory) -> Call,
        /// Blocks and threads of a block.
        grid: (u32, u32),
    },
    /// A function that the host of every PE calls.
    Host(fn(&Pe, Memory) -> rushmem::Result<()>),
}

/// A small program with a known verdict.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name of its function.
    pub name: &'static str,
    /// The right verdict.
    pub verdict: Verdict,
    /// The number of PEs.
    pub pes: u32,
    /// The code.
    pub code: Code,
}

/// Programs about one part of the memory model, in one file.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    /// The name of the module.
    pub name: &'static str,
    /// The part of the memory model.
    pub title: &'static str,
    /// The file, as the compiler names it.
    pub file: &'static str,
    /// The text of the file.
    pub text: &'static str,
    /// The programs, in the order of the file.
    pub programs: &'static [Program],
}

/// Creates a clean program of two PEs, with one thread each.
pub(crate) const fn device(name: &'static str, kernel: fn(Memory) -> Call) -> Program {
    Program { name, verdict: Verdict::Clean, pes: 2, code: Code::Kernel { kernel, grid: (1, 1) } }
}

/// Creates a clean program of two PEs, which begins on their hosts.
pub(crate) const fn host(name: &'static str, run: fn(&Pe, Memory) -> rushmem::Result<()>) -> Program {
    Program { name, verdict: Verdict::Clean, pes: 2, code: Code::Host(run) }
}

impl Program {
    /// Gives it a race.
    pub(crate) const fn races(self) -> Self {
        Self { verdict: Verdict::Race, ..self }
    }

    /// Gives it a deadlock.
    pub(crate) const fn hangs(self) -> Self {
        Self { verdict: Verdict::Deadlock, ..self }
    }

    /// Sets the number of PEs.
    pub(crate) const fn pes(self, pes: u32) -> Self {
        Self { pes, ..self }
    }

    /// Sets the number of blocks, and of threads in each of them.
    pub(crate) const fn grid(self, blocks: u32, threads: u32) -> Self {
        match self.code {
            Code::Kernel { kernel, .. } => {
                Self { code: Code::Kernel { kernel, grid: (blocks, threads) }, ..self }
            }
            Code::Host(_) => self,
        }
    }

    /// Runs it on this PE, with new memory.
    ///
    /// # Errors
    /// - the error of the program, or of its memory
    pub fn run(&self, pe: &Pe) -> rushmem::Result<()> {
        let memory = Memory::new(pe)?;
        match self.code {
            Code::Kernel { kernel, grid: (blocks, threads) } => {
                pe.run(LaunchConfig::new(blocks, threads), kernel(memory))
            }
            Code::Host(run) => run(pe, memory),
        }
    }

    /// Runs it natively, with these settings and those that all programs need. The PEs are threads of this process, or
    /// processes if a launcher has started this one.
    ///
    /// # Errors
    /// - the error of the job: [`Error::Sanitizer`] for findings
    pub fn run_job(&self, settings: &[(&str, &str)]) -> Result<(), Error> {
        let mut config = Config::load()?;
        let pes = self.pes.to_string();
        if !is_launched(&config).map_err(Error::Bootstrap)? {
            config.set("pes", &pes)?;
        }
        let common = [("device", "native"), ("heap_bytes", "1MiB"), ("teams", "8")];
        let queues = [("context_qps", "2"), ("exclusive_qps", "1"), ("block_qps", "1")];
        for (key, value) in common.iter().chain(&queues).chain(settings) {
            config.set(key, value)?;
        }
        Job::with_config(config).run(|pe| self.run(pe)).map(drop)
    }
}
