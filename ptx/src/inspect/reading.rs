//! Collects functions, calls and violations in a single pass over the statements of a PTX module.

use std::collections::{BTreeMap, BTreeSet};

use super::panics::{self, Call};
use super::reader::{self, Statement};
use super::symbol::readable;
use super::{Function, Report, Rule, Violation};
use crate::target::Target;

/// Device functions that the CUDA driver provides to every module.
const DRIVER_FUNCTIONS: [&str; 4] = ["vprintf", "malloc", "free", "__assertfail"];

const SEMANTICS: [&str; 4] = ["relaxed", "acquire", "release", "acq_rel"];
const SCOPES: [&str; 4] = ["cta", "cluster", "gpu", "sys"];

/// A position in the Rust source: index of the file, line and column.
type Position = (u32, u32, u32);

/// What has been collected so far from the statements of a PTX module.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) report: Report,
    /// Whether the target is Hopper or newer, so one-way fences are allowed.
    is_hopper: bool,
    bodies: Vec<Body>,
    /// Whether the current statement is inside the last function in `bodies`.
    is_inside: bool,
    /// Source position of the current instruction.
    at: Option<Position>,
    calls: Vec<CallSite>,
    /// Declared functions that neither the module nor the driver provides: line and name.
    undefined: Vec<(usize, String)>,
    /// Paths of source files, by index.
    files: BTreeMap<u32, String>,
    found: Vec<Found>,
    in_block: InBlock,
}

/// What the current basic block contains so far, reduced to what [`Rule::CallBetweenBarriers`] needs.
#[derive(Default)]
enum InBlock {
    #[default]
    NoBarrier,
    Barrier,
    /// A barrier, followed by a call of this function.
    Call(String),
}

/// A kernel or function with a body.
struct Body {
    name: String,
    is_entry: bool,
    returns: bool,
    /// First source position in the function.
    head: Option<Position>,
}

/// A call, with the index of the body that it belongs to.
struct CallSite {
    line: usize,
    body: usize,
    at: Option<Position>,
    callee: String,
}

/// A violation, recorded before all function and file names are known. Without a `body`, it concerns a declaration.
struct Found {
    line: usize,
    body: Option<usize>,
    at: Option<Position>,
    rule: Rule,
}

impl Reading {
    pub(super) fn new(target: &Target) -> Self {
        Self { is_hopper: target.is_hopper(), ..Self::default() }
    }

    /// Updates the state with the next statement of the module.
    pub(super) fn take(&mut self, statement: &Statement<'_>) {
        match statement {
            Statement::Version(major, minor) => self.report.isa = (*major, *minor),
            Statement::Target(arch) => self.report.arch = (*arch).to_owned(),
            Statement::ExternFunction { line, name } => {
                if !DRIVER_FUNCTIONS.contains(name) {
                    self.undefined.push((*line, (*name).to_owned()));
                }
            }
            Statement::Function { line, name, entry } => {
                let map = if *entry { &mut self.report.entries } else { &mut self.report.functions };
                map.insert((*name).to_owned(), Function { line: *line, ..Function::default() });
                let name = (*name).to_owned();
                self.bodies.push(Body { name, is_entry: *entry, returns: false, head: None });
                self.is_inside = true;
            }
            Statement::End => (self.is_inside, self.at, self.in_block) = (false, None, InBlock::NoBarrier),
            Statement::Label => self.in_block = InBlock::NoBarrier,
            Statement::File { number, path } => {
                self.files.insert(*number, (*path).to_owned());
            }
            Statement::Location { file, line, column } => {
                self.at = Some((*file, *line, *column));
                if let Some(body) = self.body() {
                    body.head = body.head.or(Some((*file, *line, *column)));
                }
            }
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
            Some("fence") if !self.is_hopper && matches!(parts.next(), Some("acquire" | "release")) => {
                self.refuse(line, Rule::OneWayFence(text.to_owned()));
            }
            Some("bar" | "barrier") if parts.next() != Some("warp") => {
                self.count(|f| f.barriers += 1);
                if let InBlock::Call(callee) = std::mem::replace(&mut self.in_block, InBlock::Barrier) {
                    self.refuse(line, Rule::CallBetweenBarriers(readable(&callee)));
                }
            }
            Some("bra" | "brx") => self.in_block = InBlock::NoBarrier,
            Some("ret") => {
                self.in_block = InBlock::NoBarrier;
                if let Some(body) = self.body() {
                    body.returns = true;
                }
            }
            Some("call") => self.call(line, reader::callee(text).unwrap_or(text)),
            _ => {}
        }
    }

    fn call(&mut self, line: usize, callee: &str) {
        if matches!(self.in_block, InBlock::Barrier) {
            self.in_block = InBlock::Call(callee.to_owned());
        }
        if let Some(body) = self.current() {
            self.calls.push(CallSite { line, body, at: self.at, callee: callee.to_owned() });
        }
        self.count(|f| {
            if !f.calls.iter().any(|known| known == callee) {
                f.calls.push(callee.to_owned());
            }
        });
    }

    /// Returns the index of the function that contains the current statement.
    fn current(&self) -> Option<usize> {
        self.bodies.len().checked_sub(1).filter(|_| self.is_inside)
    }

    fn body(&mut self) -> Option<&mut Body> {
        self.current().map(|index| &mut self.bodies[index])
    }

    fn count(&mut self, with: impl FnOnce(&mut Function)) {
        let Some(index) = self.current() else { return };
        let body = &self.bodies[index];
        let map = if body.is_entry { &mut self.report.entries } else { &mut self.report.functions };
        if let Some(function) = map.get_mut(&body.name) {
            with(function);
        }
    }

    fn refuse(&mut self, line: usize, rule: Rule) {
        self.found.push(Found { line, body: self.current(), at: self.at, rule });
    }

    /// Reports undefined functions: the first call in each body, or the declaration if there is no call.
    pub(super) fn refuse_undefined(&mut self) {
        for (line, name) in &self.undefined {
            let rule = || Rule::UndefinedFunction(name.clone());
            let mut bodies = BTreeSet::new();
            for site in self.calls.iter().filter(|site| site.callee == *name) {
                if bodies.insert(site.body) {
                    let (line, body, at) = (site.line, Some(site.body), site.at);
                    self.found.push(Found { line, body, at, rule: rule() });
                }
            }
            if bodies.is_empty() {
                self.found.push(Found { line: *line, body: None, at: None, rule: rule() });
            }
        }
    }

    /// Reports calls to functions that always panic, except for calls from such functions.
    pub(super) fn refuse_panics(&mut self) {
        let calls: Vec<Call<'_>> = self
            .calls
            .iter()
            .map(|site| Call { caller: &self.bodies[site.body].name, callee: &site.callee })
            .collect();
        let returning: BTreeSet<&str> =
            self.bodies.iter().filter(|b| b.returns).map(|b| b.name.as_str()).collect();
        let machinery = panics::machinery(&calls, |name| returning.contains(name));
        let panics = self
            .calls
            .iter()
            .zip(&calls)
            .filter(|(_, call)| machinery.contains(call.callee) && !machinery.contains(call.caller));
        self.found.extend(panics.map(|(site, call)| Found {
            line: site.line,
            body: Some(site.body),
            at: site.at,
            rule: Rule::Panic(readable(call.callee)),
        }));
    }

    /// Returns all violations found, sorted by line.
    pub(super) fn violations(&self) -> Vec<Violation> {
        let violation = |found: &Found| {
            let body = found.body.map(|index| &self.bodies[index]);
            Violation {
                line: found.line,
                source: body.and_then(|body| self.source(found.at, body.head)),
                function: body.map(|body| readable(&body.name)),
                kernels: body
                    .filter(|body| !body.is_entry)
                    .map(|body| self.callers(&body.name))
                    .unwrap_or_default(),
                rule: found.rule.clone(),
            }
        };
        let mut violations: Vec<Violation> = self.found.iter().map(violation).collect();
        violations.sort_by_key(|violation| violation.line);
        violations
    }

    /// Formats a source position. A position in inlined code of `core` is replaced by that of the function's first
    /// line.
    fn source(&self, at: Option<Position>, head: Option<Position>) -> Option<String> {
        let file = |position: Position| Some((self.files.get(&position.0)?, position));
        let own = |position| file(position).filter(|(path, _)| !path.contains("/library/core/"));
        let (path, (_, line, column)) = at
            .and_then(own)
            .or_else(|| head.and_then(own).map(|(path, (file, line, _))| (path, (file, line, 0))))?;
        Some(if column == 0 { format!("{path}:{line}") } else { format!("{path}:{line}:{column}") })
    }

    /// Returns the kernels that call the function `name`, directly or indirectly.
    fn callers(&self, name: &str) -> Vec<String> {
        let reaches = |entry: &Function| {
            let mut seen = BTreeSet::new();
            let mut todo: Vec<&str> = entry.calls.iter().map(String::as_str).collect();
            while let Some(next) = todo.pop() {
                if seen.insert(next)
                    && let Some(function) = self.report.functions.get(next)
                {
                    todo.extend(function.calls.iter().map(String::as_str));
                }
            }
            seen.contains(name)
        };
        self.report
            .entries
            .iter()
            .filter(|(_, entry)| reaches(entry))
            .map(|(kernel, _)| kernel.clone())
            .collect()
    }
}
