//! Checks of PTX modules, and a report on what they contain.
//!
//! Some mistakes are visible only in PTX: an atomic that lost its ordering or scope in the compiler, a panic path, a
//! call to a function that no GPU has, a call that ptxas wrongly assumes to be converged. [`check`] rejects them. The
//! [`Report`] lists local memory and barriers, which are merely suspicious.

use std::collections::BTreeMap;
use std::fmt;

use crate::target::{OLDEST_ISA, Target};

mod panics;
mod reader;
mod reading;
mod symbol;

use reader::statements;
use reading::Reading;

/// Contents of a PTX module: its target, kernels and functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// PTX version, major and minor, from the directive `.version`.
    pub isa: (u32, u32),
    /// GPU architecture from the directive `.target`, such as `sm_75`.
    pub arch: String,
    /// The kernels, by name.
    pub entries: BTreeMap<String, Function>,
    /// Functions that were not inlined into a kernel, by mangled name.
    pub functions: BTreeMap<String, Function>,
}

/// What a kernel, or a function that was not inlined, uses and calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Line in the PTX where the function starts, counting from 1.
    pub line: usize,
    /// Number of block-wide barriers in the PTX. It exceeds that in the source if the compiler has duplicated some.
    pub barriers: usize,
    /// Bytes of local memory per thread: arrays with a computed index, and values with their address taken.
    pub local_bytes: u64,
    /// Names of the functions called directly.
    pub calls: Vec<String>,
}

/// A place in a PTX module that violates a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Line in the PTX, counting from 1, or 0 if the violation concerns the whole module.
    pub line: usize,
    /// File, line and column in the Rust source, if the PTX has `.loc` and `.file`.
    pub source: Option<String>,
    /// Name of the kernel, or Rust path of the function, that contains the line.
    pub function: Option<String>,
    /// Kernels that call the function, directly or indirectly. Empty if it is a kernel itself.
    pub kernels: Vec<String>,
    /// The violated rule.
    pub rule: Rule,
}

/// A rule that a PTX module violates, with the offending text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// The `.target` differs from the requested one. Contains the one found.
    Arch(String),
    /// The `.version` is older than requested, or too old for ringing doorbells. Contains the version found.
    Isa(u32, u32),
    /// The module has neither a kernel nor an exported function.
    NoEntry,
    /// An atomic without `.sem` or `.scope`. Contains the instruction.
    UnscopedAtomic(String),
    /// A fence that only Hopper and newer GPUs have, in PTX for older ones. Contains the instruction.
    OneWayFence(String),
    /// A call that panics. Contains the Rust path of the callee.
    Panic(String),
    /// A function that is called or declared, but that neither the module nor the driver provides. Contains its name.
    UndefinedFunction(String),
    /// A call between two block-wide barriers in the same basic block. Contains the Rust path of the callee.
    ///
    /// ptxas knows that the lanes of a warp are converged at the first barrier. It assumes that they are converged at
    /// the second one too, and omits the code for diverged lanes. If the called function returns to them at different
    /// times, the second barrier is an illegal instruction. Observed with ptxas 13.0 on an H100.
    CallBetweenBarriers(String),
}

/// Parses a module and checks it against all rules.
///
/// # Errors
/// All violations, sorted by line.
pub fn check(ptx: &str, target: &Target) -> Result<Report, Vec<Violation>> {
    let mut reading = Reading::new(target);
    for statement in statements(ptx) {
        reading.take(&statement);
    }
    reading.refuse_panics();
    reading.refuse_undefined();
    let report = &reading.report;
    let mut rules = Vec::new();
    if report.arch != target.arch {
        rules.push(Rule::Arch(report.arch.clone()));
    }
    if report.isa < target.isa || report.isa < OLDEST_ISA {
        rules.push(Rule::Isa(report.isa.0, report.isa.1));
    }
    if report.entries.is_empty() && report.functions.keys().all(|name| symbol::rust_path(name).is_some()) {
        rules.push(Rule::NoEntry);
    }
    let whole = |rule| Violation { line: 0, source: None, function: None, kernels: Vec::new(), rule };
    let mut violations: Vec<Violation> = rules.into_iter().map(whole).collect();
    violations.extend(reading.violations());
    if violations.is_empty() { Ok(reading.report) } else { Err(violations) }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(f, "{source}: ")?;
        }
        if let Some(function) = &self.function {
            write!(f, "in `{function}`")?;
            match self.kernels.as_slice() {
                [] => {}
                [kernel] => write!(f, ", which kernel `{kernel}` calls")?,
                kernels => write!(f, ", which kernels `{}` call", kernels.join("`, `"))?,
            }
            f.write_str(": ")?;
        }
        self.rule.fmt(f)?;
        if self.line > 0 {
            write!(f, " (line {} of the PTX)", self.line)?;
        }
        Ok(())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arch(arch) => write!(f, "its target {arch:?} is not the requested one"),
            Self::Isa(major, minor) => {
                let (oldest, minor_oldest) = OLDEST_ISA;
                write!(
                    f,
                    "PTX {major}.{minor} is older than requested, or older than {oldest}.{minor_oldest}, which \
                     doorbells need"
                )
            }
            Self::NoEntry => f.write_str("it has no kernel: is there a `#[kernel]` in the crate?"),
            Self::UnscopedAtomic(text) => write!(
                f,
                "`{text}` has no ordering or no scope. The compiler drops them from `core`'s read-modify-write \
                 atomics: use rushmem_device's"
            ),
            Self::OneWayFence(text) => write!(
                f,
                "`{text}` needs sm_90: put it on a line of its own, or use `fence.acq_rel`, or build for sm_90 only \
                 (`Builder::arch`)"
            ),
            Self::Panic(callee) => {
                write!(f, "a path that panics: {}; it calls {callee}", panics::cause(callee))
            }
            Self::CallBetweenBarriers(callee) => write!(
                f,
                "a call of {callee} lies between two barriers of the block, and diverged lanes may return from it: inline \
                 the function, or branch on its result before the second barrier"
            ),
            Self::UndefinedFunction(name) => {
                write!(f, "`{name}` does not exist on a GPU{}", undefined_hint(name))
            }
        }
    }
}

fn undefined_hint(name: &str) -> &'static str {
    match name {
        "memcmp" | "bcmp" => ": compare slices element by element, not with `==`",
        "memcpy" | "memmove" | "memset" => ": copy element by element",
        _ if name.starts_with("llvm.") => ": this LLVM has no such intrinsic",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
