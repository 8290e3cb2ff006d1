//! Checks of PTX modules.
//!
//! Some mistakes are visible only in PTX: an atomic that lost its ordering or scope in the compiler, a panic path,
//! a call to a function that no GPU has, a call that ptxas wrongly assumes to be converged. [`check`] rejects them. The
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

/// Contents of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// `.version`.
    pub isa: (u32, u32),
    /// `.target`.
    pub arch: String,
    /// Kernels, by name.
    pub entries: BTreeMap<String, Function>,
    /// Functions that were not inlined, by mangled name.
    pub functions: BTreeMap<String, Function>,
}

/// A kernel, or a function that was not inlined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Line of its head in the PTX, counting from 1.
    pub line: usize,
    /// Block-wide barriers in the text. More than in the source if the compiler has duplicated some.
    pub barriers: usize,
    /// Bytes of local memory: arrays with a computed index, and values with their address taken.
    pub local_bytes: u64,
    /// Functions that it calls.
    pub calls: Vec<String>,
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Line in the PTX, counting from 1. 0 stands for the whole module.
    pub line: usize,
    /// File, line and column in the source, if the PTX has `.loc` and `.file`.
    pub source: Option<String>,
    /// Name of the kernel, or Rust path of the function.
    pub function: Option<String>,
    /// The kernels that call the function, if it is not a kernel itself.
    pub kernels: Vec<String>,
    /// The rule.
    pub rule: Rule,
}

/// A rule that a module violates, with the offending text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A `.target` that differs from the requested one.
    Arch(String),
    /// A `.version` older than requested, or too old for doorbells.
    Isa(u32, u32),
    /// The module has no kernel.
    NoEntry,
    /// An atomic without `.sem` or `.scope`.
    UnscopedAtomic(String),
    /// A fence that only Hopper and newer GPUs have, in PTX for older ones.
    OneWayFence(String),
    /// A call that panics. Contains the Rust path of the callee.
    Panic(String),
    /// A function that neither the module nor the driver provides.
    UndefinedFunction(String),
    /// A call between two block-wide barriers in the same basic block. Contains the Rust path of the callee.
    ///
    /// ptxas knows that the lanes of a warp are converged at the first barrier. It assumes that they are converged at
    /// the second one too, and omits the code for diverged lanes. If the function returns to them at different times,
    /// the second barrier is an illegal instruction. Observed with ptxas 13.0 on an H100.
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
    if report.entries.is_empty() {
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
