//! Types that describe a program of the sanitizer suite and the symmetric memory it runs with.

use rushmem::bootstrap::is_launched;
use rushmem::config::Config;
use rushmem::{Error, Job, LaunchConfig, Pe};
use rushmem_device::kernel::{Call, KernelArg};
use rushmem_device::{Lock, Signal, Sym, SymSlice};

pub(crate) const ONE: LaunchConfig = LaunchConfig::new(1, 1);

const WORDS: usize = 8;

/// Symmetric memory allocated for one test program. All of it is initially zero, except for the outbox.
#[derive(Clone, Copy, KernelArg)]
#[repr(C)]
pub struct Memory {
    /// Eight words to which other PEs put data.
    pub inbox: SymSlice<u64>,
    /// Eight words from which a PE sends data, initially 10 to 17 on PE 0, 20 to 27 on PE 1, and so on.
    pub outbox: SymSlice<u64>,
    /// Eight words of scratch memory, initially zero.
    pub words: SymSlice<u64>,
    /// Signal by which a sender announces data.
    pub flag: Sym<Signal>,
    /// Signal by which a receiver acknowledges data.
    pub answer: Sym<Signal>,
    /// A lock, initially free.
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

/// The verdict that the sanitizer must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The program has neither a race nor a deadlock.
    Clean,
    /// The program has a single race, between the lines marked `// first` and `// second`.
    Race,
    /// The program has a single deadlock, of the calls marked `// waits`.
    Deadlock,
}

/// The code of a program.
#[derive(Clone, Copy, Debug)]
pub enum Code {
    /// A kernel that every PE launches.
    Kernel {
        /// Binds the kernel's arguments to the program's memory.
        kernel: fn(Memory) -> Call,
        /// Number of blocks, and number of threads per block.
        grid: (u32, u32),
    },
    /// A function that every PE calls on its host.
    Host(fn(&Pe, Memory) -> rushmem::Result<()>),
}

/// A test program for the sanitizer, with its correct verdict.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name of its function.
    pub name: &'static str,
    /// The verdict that the sanitizer must reach.
    pub verdict: Verdict,
    /// Number of PEs.
    pub pes: u32,
    /// The kernel or host function to run.
    pub code: Code,
}

/// The programs of one file, which concern one aspect of the memory model.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    /// Name of the module.
    pub name: &'static str,
    /// The aspect of the memory model that the programs cover, as a heading.
    pub title: &'static str,
    /// Path of the file, as the compiler reports it.
    pub file: &'static str,
    /// Contents of the source file, in which the marked lines are found.
    pub text: &'static str,
    /// The programs, in file order.
    pub programs: &'static [Program],
}

/// Creates a clean program for two PEs, which launch a kernel of one thread.
pub(crate) const fn device(name: &'static str, kernel: fn(Memory) -> Call) -> Program {
    Program { name, verdict: Verdict::Clean, pes: 2, code: Code::Kernel { kernel, grid: (1, 1) } }
}

/// Creates a clean program for two PEs, which call a host function.
pub(crate) const fn host(name: &'static str, run: fn(&Pe, Memory) -> rushmem::Result<()>) -> Program {
    Program { name, verdict: Verdict::Clean, pes: 2, code: Code::Host(run) }
}

impl Program {
    pub(crate) const fn races(self) -> Self {
        Self { verdict: Verdict::Race, ..self }
    }

    pub(crate) const fn hangs(self) -> Self {
        Self { verdict: Verdict::Deadlock, ..self }
    }

    pub(crate) const fn pes(self, pes: u32) -> Self {
        Self { pes, ..self }
    }

    /// Sets the number of blocks and of threads per block.
    pub(crate) const fn grid(self, blocks: u32, threads: u32) -> Self {
        match self.code {
            Code::Kernel { kernel, .. } => {
                Self { code: Code::Kernel { kernel, grid: (blocks, threads) }, ..self }
            }
            Code::Host(_) => self,
        }
    }

    /// Runs the program on this PE, with new memory.
    ///
    /// # Errors
    /// - the error of the program, or of allocating its memory
    pub fn run(&self, pe: &Pe) -> rushmem::Result<()> {
        let memory = Memory::new(pe)?;
        match self.code {
            Code::Kernel { kernel, grid: (blocks, threads) } => {
                pe.run(LaunchConfig::new(blocks, threads), kernel(memory))
            }
            Code::Host(run) => run(pe, memory),
        }
    }

    /// Runs the program natively, with these settings and those that all programs need. The PEs are threads of this
    /// process, or processes if a launcher started this one.
    ///
    /// # Errors
    /// - the error of the job, which is [`Error::Sanitizer`] for findings
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
