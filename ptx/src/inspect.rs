//! Checks of PTX modules.
//!
//! Some mistakes show in PTX only: an atomic without ordering or scope because the compiler dropped them, a panic path,
//! a call of a function that no GPU has. [`check`] refuses them. The [`Report`] counts local memory and barriers, which
//! are merely suspicious.

use std::collections::BTreeMap;
use std::fmt;

use crate::target::{OLDEST_ISA, Target};

mod reader;

use reader::{Statement, statements};

/// Contents of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// `.version`.
    pub isa: (u32, u32),
    /// `.target`.
    pub arch: String,
    /// The kernels, by name.
    pub entries: BTreeMap<String, Function>,
    /// The functions that were not inlined, by their mangled names.
    pub functions: BTreeMap<String, Function>,
}

/// A kernel or a function that was not inlined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Line of its head in the PTX, from 1.
    pub line: usize,
    /// Number of block-wide barriers in the text. It exceeds the number in the source if the compiler duplicated some.
    pub barriers: usize,
    /// Bytes of local memory: arrays with a computed index, and values with their address taken.
    pub local_bytes: u64,
    /// The functions that it calls.
    pub calls: Vec<String>,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Line in the PTX, from 1; 0 for the whole module.
    pub line: usize,
    /// Name of the kernel, or mangled name of the function.
    pub function: Option<String>,
    /// The rule.
    pub rule: Rule,
}

/// A rule that a module broke, with the offending text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A `.target` that differs from the requested one.
    Arch(String),
    /// A `.version` older than requested, or too old for doorbells.
    Isa(u32, u32),
    /// No kernel.
    NoEntry,
    /// An atomic without `.sem` or `.scope`.
    UnscopedAtomic(String),
    /// A path that panics.
    Panic(String),
    /// A function that neither the module nor the driver has.
    UndefinedFunction(String),
}

/// Functions that the driver provides.
const DRIVER_FUNCTIONS: [&str; 4] = ["vprintf", "malloc", "free", "__assertfail"];

const SEMANTICS: [&str; 4] = ["relaxed", "acquire", "release", "acq_rel"];
const SCOPES: [&str; 4] = ["cta", "cluster", "gpu", "sys"];

/// Reads a module and checks it against every rule.
///
/// # Errors
/// All violations, in the order of their lines.
pub fn check(ptx: &str, target: &Target) -> Result<Report, Vec<Violation>> {
    let mut reading = Reading::default();
    for statement in statements(ptx) {
        reading.take(&statement);
    }
    let Reading { report, mut violations, .. } = reading;
    let mut whole = |rule| violations.insert(0, Violation { line: 0, function: None, rule });
    if report.entries.is_empty() {
        whole(Rule::NoEntry);
    }
    if report.isa < target.isa || report.isa < OLDEST_ISA {
        whole(Rule::Isa(report.isa.0, report.isa.1));
    }
    if report.arch != target.arch {
        whole(Rule::Arch(report.arch.clone()));
    }
    if violations.is_empty() { Ok(report) } else { Err(violations) }
}

#[derive(Default)]
struct Reading {
    report: Report,
    violations: Vec<Violation>,
    /// Whether the current body belongs to a kernel, and its function's name.
    current: Option<(bool, String)>,
}

impl Reading {
    fn take(&mut self, statement: &Statement<'_>) {
        match statement {
            Statement::Version(major, minor) => self.report.isa = (*major, *minor),
            Statement::Target(arch) => self.report.arch = (*arch).to_owned(),
            Statement::ExternFunction { line, name } => {
                if !DRIVER_FUNCTIONS.contains(name) {
                    self.refuse(*line, Rule::UndefinedFunction((*name).to_owned()));
                }
            }
            Statement::Function { line, name, entry } => {
                let map = if *entry { &mut self.report.entries } else { &mut self.report.functions };
                map.insert((*name).to_owned(), Function { line: *line, ..Function::default() });
                self.current = Some((*entry, (*name).to_owned()));
            }
            Statement::End => self.current = None,
            Statement::Local { bytes } => self.count(|f| f.local_bytes += bytes),
            Statement::Instruction { line, opcode, text } => self.instruction(*line, opcode, text),
        }
    }

    fn instruction(&mut self, line: usize, opcode: &str, text: &str) {
        let mut parts = opcode.split('.');
        match parts.next() {
            Some("atom" | "red") => {
                let has = |list: &[&str]| opcode.split('.').any(|part| list.contains(&part));
                if !has(&SEMANTICS) || !has(&SCOPES) {
                    self.refuse(line, Rule::UnscopedAtomic(text.to_owned()));
                }
            }
            Some("bar" | "barrier") if parts.next() != Some("warp") => self.count(|f| f.barriers += 1),
            Some("call") => {
                let callee = reader::callee(text).unwrap_or(text).to_owned();
                // Inside of the panic machinery itself there is nothing more to say.
                let inside = self.current.as_ref().is_some_and(|(_, name)| name.contains("panic"));
                if callee.contains("panic") && !inside {
                    self.refuse(line, Rule::Panic(callee.clone()));
                }
                self.count(|f| {
                    if !f.calls.contains(&callee) {
                        f.calls.push(callee);
                    }
                });
            }
            _ => {}
        }
    }

    fn count(&mut self, with: impl FnOnce(&mut Function)) {
        let Some((entry, name)) = &self.current else { return };
        let map = if *entry { &mut self.report.entries } else { &mut self.report.functions };
        if let Some(function) = map.get_mut(name) {
            with(function);
        }
    }

    fn refuse(&mut self, line: usize, rule: Rule) {
        let function = self.current.as_ref().map(|(_, name)| name.clone());
        self.violations.push(Violation { line, function, rule });
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        if let Some(function) = &self.function {
            write!(f, "in {function}: ")?;
        }
        self.rule.fmt(f)
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
            Self::Panic(callee) => write!(f, "a path that panics: {} ({callee})", panic_cause(callee)),
            Self::UndefinedFunction(name) => {
                write!(f, "`{name}` does not exist on a GPU{}", undefined_hint(name))
            }
        }
    }
}

/// Returns the cause of this panic in the source, with the remedy.
fn panic_cause(callee: &str) -> &'static str {
    const CAUSES: [(&str, &str); 6] = [
        ("bounds_check", "an index that may be out of bounds: use `get`"),
        ("rem_by_zero", "`%` by a variable: use `checked_rem`"),
        ("div_by_zero", "`/` by a variable: use `checked_div`"),
        ("overflow", "arithmetic that checks for overflow: use `wrapping_` or `checked_` operations"),
        ("slice_index", "a range that may be out of bounds: use `get`"),
        ("copy_from_slice", "slices whose lengths may differ"),
    ];
    let cause = CAUSES.iter().find(|(part, _)| callee.contains(part));
    cause.map_or("`unwrap`, `expect`, `assert`, an index or the like", |(_, cause)| cause)
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
