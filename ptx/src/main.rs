//! Command-line tool that compiles the project's own kernels: updates and checks their committed PTX, and reports their
//! register usage.

use std::cmp::Reverse;
use std::env;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;

use rushmem_ptx::archive::{self, Archive};
use rushmem_ptx::bitcode;
use rushmem_ptx::ptxas::{self, Usage};
use rushmem_ptx::{
    Error, Extras, Header, Search, Source, Target, Toolchain, compile, compile_conformance, compile_library,
    inspect,
};

/// A kernel crate of this project, as opposed to one of a user.
struct KernelCrate {
    /// Path of the crate, relative to the project's root.
    dir: &'static str,
    /// Folder of committed PTX, inside the package that embeds it. `None` for kernels of tests and benchmarks, whose
    /// PTX is built on demand.
    committed: Option<&'static str>,
    spills: Spills,
}

/// Kernels that may spill registers without failing the report.
#[derive(Clone, Copy)]
enum Spills {
    Any,
    Named(&'static [&'static str]),
}

const NONE: Spills = Spills::Named(&[]);

impl Spills {
    fn permit(self, kernel: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Named(kernels) => kernels.contains(&kernel),
        }
    }
}

impl KernelCrate {
    /// Returns the path of the crate's committed PTX, if there should be any. `name` is the crate's name in Rust.
    fn committed_path(&self, name: &str) -> Option<PathBuf> {
        self.committed.map(|dir| root().join(dir).join(format!("{name}.ptx")))
    }
}

const KERNEL_CRATES: [KernelCrate; 7] = [
    KernelCrate { dir: "host/kernels", committed: Some("host/committed"), spills: Spills::Any },
    KernelCrate { dir: "host/service", committed: Some("host/committed"), spills: NONE },
    // Named kernels store to P2P peers in their loops and also post to NIC peers, in blocks of 512 threads. Fewer
    // threads were not tried, and outlined postings of ep spill more. `jacobi` keeps three words of its setup in memory.
    KernelCrate {
        dir: "examples/kernels",
        committed: Some("examples/committed"),
        spills: Spills::Named(&["kv_store", "jacobi"]),
    },
    KernelCrate { dir: "tests/kernels", committed: None, spills: Spills::Any },
    KernelCrate { dir: "tests/litmus/kernels", committed: None, spills: Spills::Any },
    KernelCrate { dir: "benches/kernels", committed: None, spills: NONE },
    KernelCrate { dir: "ep/kernels", committed: None, spills: Spills::Named(&["ep_send", "ep_combine"]) },
];

const USAGE: &str = "\
usage: cargo run -p rushmem-ptx -- COMMAND

  update              compile the kernels of the runtime and the examples, and write their PTX
  check               compile all kernels, and compare with the committed PTX
  library DIR [ARCH ...]
                      compile the device functions for other languages, and write them as LLVM assembly, PTX
                      and, if there are ptxas and fatbinary, relocatable machine code and a static library
                      for nvcc, with a table of the functions; as bitcode too, if there is an llvm-as of the
                      compiler's LLVM; machine code for each ARCH, such as sm_90, or
                      for the first of each major version
  conformance DIR ARCH
                      compile the kernels of the conformance suite in Rust to machine code, such as for sm_90
  report [FILE.ptx ...]
                      print registers, stack, spills and barriers of each kernel on Hopper, by
                      ptxas. Without files: compile all kernels, fail if those of the examples,
                      benchmarks or experts spill, but for some by name, and assemble committed PTX for older and newer GPUs";

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["update"] => update(),
        ["check"] => check(),
        ["library", dir] => library(Path::new(dir), &MACHINE_CODE_ARCHES),
        ["library", dir, arches @ ..] => library(Path::new(dir), arches),
        ["conformance", dir, arch] => conformance(Path::new(dir), arch),
        ["report", rest @ ..] => report(rest),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    let ptx = Path::new(env!("CARGO_MANIFEST_DIR"));
    ptx.parent().unwrap_or(ptx).to_owned()
}

fn toolchain() -> Result<Toolchain, Failure> {
    let search = Search::run()?;
    search.found.ok_or_else(|| {
        let looked = search.rejected.iter().map(|(p, why)| format!("\n  {}: {why}", p.display()));
        format!(
            "no PTX compiler was found:{}\ninstall one: rustup toolchain install nightly --component rust-src, \
             or apt-get install rustc-web rust-web-src",
            looked.collect::<String>()
        )
        .into()
    })
}

/// Compiles `kernel_crates` with `extras`. For each, calls `with` with the crate, its name in Rust, the compiler and
/// the PTX text.
fn compile_each<'a>(
    kernel_crates: impl Iterator<Item = &'a KernelCrate>,
    extras: Extras,
    mut with: impl FnMut(&KernelCrate, &str, &Toolchain, String) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let toolchain = toolchain()?;
    for kernel_crate in kernel_crates {
        let source = Source::read(&root().join(kernel_crate.dir))?;
        let made =
            compile(&source, &toolchain, &Target::default(), extras, &root().join("target/rushmem-ptx"))?;
        with(kernel_crate, &source.crate_name, &toolchain, made.text)?;
    }
    Ok(())
}

fn update() -> Result<(), Failure> {
    let committed = KERNEL_CRATES.iter().filter(|kernels| kernels.committed.is_some());
    compile_each(committed, Extras::default(), |kernels, name, toolchain, text| {
        let Some(path) = kernels.committed_path(name) else { return Ok(()) };
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        let unchanged = fs::read_to_string(&path).is_ok_and(|old| old == text);
        println!(
            "{}: {} by {}",
            path.display(),
            if unchanged { "unchanged," } else { "written" },
            toolchain.version
        );
        Ok(fs::write(&path, text)?)
    })
}

/// Path of the crate of device functions for other languages, relative to the project's root.
const LIBRARY: &str = "bindings/device";

/// Architectures for which the LLVM assembly and the PTX of the library differ: the oldest one, and the first one with
/// one-way fences.
const LIBRARY_ARCHES: [&str; 2] = ["sm_75", "sm_90"];

/// Architectures for which the library has machine code by default. Newer ones of the same major version execute it
/// too.
const MACHINE_CODE_ARCHES: [&str; 4] = ["sm_75", "sm_80", "sm_90", "sm_100"];

fn library(dir: &Path, arches: &[&str]) -> Result<(), Failure> {
    let toolchain = toolchain()?;
    let cache = root().join("target/rushmem-ptx");
    let source = Source::read(&root().join(LIBRARY))?;
    let library = compile_library(&source, &toolchain, &Target::default(), &cache)?;
    fs::create_dir_all(dir)?;
    fs::write(dir.join("rushmem_device.ptx"), &library.ptx.text)?;
    fs::copy(root().join(LIBRARY).join("functions.json"), dir.join("functions.json"))?;
    let file = |arch: &str, ending| dir.join(format!("rushmem_device_{}.{ending}", arch.replace('_', "")));
    let machine_code: Vec<_> = arches.iter().map(|&arch| (arch, file(arch, "cubin"))).collect();
    let archive = dir.join("librushmem_device.a");
    // Never leave those of an older build.
    for old in fs::read_dir(dir)? {
        let old = old?.path();
        let name = old.file_name().unwrap_or_default().to_string_lossy();
        if old == archive
            || name.starts_with("rushmem_device_") && (name.ends_with(".cubin") || name.ends_with(".bc"))
        {
            fs::remove_file(old)?;
        }
    }
    let assembler = bitcode::assembler(&toolchain);
    for arch in LIBRARY_ARCHES {
        fs::write(file(arch, "ll"), library.llvm(arch))?;
        if let Some(assembler) = &assembler {
            bitcode::assemble(assembler, &file(arch, "ll"), &file(arch, "bc"))?;
        }
    }
    if assembler.is_none() {
        println!("no bitcode: no llvm-as of LLVM {}", toolchain.version.llvm);
    }
    match ptxas::find() {
        Err(error) => println!("no machine code and no static library: {error}"),
        Ok(ptxas) => assemble_library(&ptxas, &library.ptx.text, &machine_code, &archive)?,
    }
    println!("{}: by {}", dir.display(), toolchain.version);
    Ok(())
}

/// Assembles `ptx` for each architecture of `machine_code` to the file beside it, in parallel, and packs all of it into
/// the static library `archive`, if there is a `fatbinary`.
fn assemble_library(
    ptxas: &Path,
    ptx: &str,
    machine_code: &[(&str, PathBuf)],
    archive: &Path,
) -> Result<(), Failure> {
    thread::scope(|scope| {
        let start = |(arch, to)| scope.spawn(move || ptxas::relocatable(ptxas, ptx, arch, to));
        let workers: Vec<_> = machine_code.iter().map(|(arch, to)| start((*arch, to))).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?.map_err(Failure::from))
    })?;
    match archive::fatbinary(ptxas) {
        Err(error) => println!("no static library: {error}"),
        Ok(fatbinary) => {
            Archive { ptx, ptx_arches: &LIBRARY_ARCHES, machine_code }.write(&fatbinary, archive)?
        }
    }
    Ok(())
}

fn conformance(dir: &Path, arch: &str) -> Result<(), Failure> {
    let source = Source::read(&root().join(LIBRARY))?;
    let kernels =
        compile_conformance(&source, &toolchain()?, &Target::default(), &root().join("target/rushmem-ptx"))?;
    fs::create_dir_all(dir)?;
    let name = format!("rushmem_conformance_{}.cubin", arch.replace('_', ""));
    ptxas::assemble(&ptxas::find()?, &kernels.text, arch, arch, &dir.join(name))?;
    Ok(())
}

fn check() -> Result<(), Failure> {
    compile_each(KERNEL_CRATES.iter(), Extras::default(), |kernels, name, toolchain, text| {
        let Some(path) = kernels.committed_path(name) else {
            println!("{name}: compiles by {}", toolchain.version);
            return Ok(());
        };
        let old = fs::read_to_string(&path).map_err(|e| {
            format!("cannot read {}: {e}\nmake it: cargo run -p rushmem-ptx -- update", path.display())
        })?;
        match difference(&old, &text) {
            None => println!("{}: same as compiled by {}", path.display(), toolchain.version),
            Some(cause) => {
                return Err(format!(
                    "{}: {cause}\nwrite it again: cargo run -p rushmem-ptx -- update",
                    path.display()
                )
                .into());
            }
        }
        Ok(())
    })
}

/// Explains why committed PTX (`old`) differs from compiled PTX (`new`), or returns `None` if they are equal.
fn difference(old: &str, new: &str) -> Option<String> {
    if old == new {
        return None;
    }
    let (Some(was), Some(is)) = (Header::parse(old), Header::parse(new)) else {
        return Some("it was not written by rushmem-ptx".into());
    };
    if was.source != is.source {
        return Some("it was made from other source".into());
    }
    if was.compiler != is.compiler {
        return Some(format!("it was made by {}, and this compiler is {}", was.compiler, is.compiler));
    }
    let line = old.lines().zip(new.lines()).position(|(a, b)| a != b);
    let line = line.unwrap_or(old.lines().count().min(new.lines().count()));
    let at = |text: &str| text.lines().nth(line).unwrap_or("(end)").to_owned();
    Some(format!("the first difference is in line {}:\n- {}\n+ {}", line + 1, at(old), at(new)))
}

fn report(args: &[&str]) -> Result<(), Failure> {
    if let Some(option) = args.iter().find(|arg| arg.starts_with('-')) {
        return Err(format!("unknown option {option}\n{USAGE}").into());
    }
    let ptxas = ptxas::find()?;
    println!(
        "{:<40} {:>9} {:>5} {:>6} {:>8} {:>12}",
        "kernel", "registers", "stack", "spills", "barriers", "in PTX, local"
    );
    let texts = if args.is_empty() { compiled()? } else { read(args)? };
    let mut spilling = Vec::new();
    for (text, usages) in texts.iter().zip(assemble(&ptxas, &texts)?) {
        print_kernels(text, &usages)?;
        let spills =
            usages.into_iter().filter(|usage| !text.spills.permit(&usage.entry) && spilled_bytes(usage) > 0);
        spilling.extend(spills.map(|usage| usage.entry));
    }
    if !spilling.is_empty() {
        return Err(format!("registers are spilled in: {}", spilling.join(", ")).into());
    }
    Ok(())
}

/// PTX whose register usage is reported.
struct Text {
    /// File or crate that the PTX comes from.
    title: PathBuf,
    ptx: String,
    spills: Spills,
    /// Whether the PTX must assemble for all of [`ptxas::ARCHES`], as committed PTX must.
    for_all: bool,
}

/// Compiles the kernels of all crates of the project.
fn compiled() -> Result<Vec<Text>, Failure> {
    let mut texts = Vec::new();
    compile_each(KERNEL_CRATES.iter(), Extras::default(), |kernels, name, _, ptx| {
        let (spills, for_all) = (kernels.spills, kernels.committed.is_some());
        texts.push(Text { title: name.into(), ptx, spills, for_all });
        Ok(())
    })?;
    // DC transport and failover cost registers, so kernels that support them may spill.
    let benchmarks = KERNEL_CRATES.iter().filter(|kernels| kernels.dir == "benches/kernels");
    compile_each(benchmarks, Extras { dc: true, failover: true, timeline: false }, |_, name, _, ptx| {
        let title = format!("{name}, RUSHMEM_PTX_DC=1 RUSHMEM_PTX_FAILOVER=1").into();
        texts.push(Text { title, ptx, spills: Spills::Any, for_all: false });
        Ok(())
    })?;
    Ok(texts)
}

fn read(files: &[&str]) -> Result<Vec<Text>, Failure> {
    let read = |file: &&str| {
        let ptx = fs::read_to_string(file).map_err(|e| format!("cannot read {file}: {e}"))?;
        Ok(Text { title: file.into(), ptx, spills: Spills::Any, for_all: false })
    };
    files.iter().map(read).collect()
}

/// Returns the name of the kernel crate that the PTX in `file` was compiled from.
fn crate_name(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// GPU architecture whose registers and spills are reported.
const REPORTED: &str = "sm_90";

/// Returns the number of bytes that a thread of a kernel spills: stores plus loads.
fn spilled_bytes(usage: &Usage) -> u32 {
    usage.spill_stores + usage.spill_loads
}

/// Checks PTX against the rules of [`inspect`], and prints a line of resource usage per kernel.
fn print_kernels(text: &Text, usages: &[Usage]) -> Result<(), Failure> {
    let Text { title, ptx, for_all, .. } = text;
    let contents = inspect::check(ptx, &Target::default()).map_err(|violations| Error::Refused {
        krate: crate_name(title),
        ptx: title.into(),
        violations,
    })?;
    println!("{}", title.display());
    for usage in usages {
        let in_ptx = contents.entries.get(&usage.entry);
        let (barriers, local) = in_ptx.map_or((0, 0), |f| (f.barriers, f.local_bytes));
        println!(
            "  {:<38} {:>9} {:>5} {:>6} {:>8} {:>8} {:>4}",
            usage.entry,
            usage.registers,
            usage.stack,
            spilled_bytes(usage),
            usage.barriers,
            barriers,
            local
        );
    }
    if *for_all {
        println!("{} assembles for {}", title.display(), ptxas::ARCHES.join(", "));
    }
    Ok(())
}

/// Assembles all `texts`, in parallel on all cores. Returns the resource usage of each text's kernels on [`REPORTED`].
fn assemble(ptxas: &Path, texts: &[Text]) -> Result<Vec<Vec<Usage>>, Failure> {
    let arches = |text: &Text| {
        let for_all = text.for_all;
        ptxas::ARCHES.into_iter().filter(move |arch| for_all || *arch == REPORTED)
    };
    let mut jobs: Vec<_> =
        (0..).zip(texts).flat_map(|(i, text)| arches(text).map(move |arch| (i, arch))).collect();
    // Start with the longest, or a single core might still be busy when all others are done.
    jobs.sort_by_key(|(i, _)| Reverse(texts[*i].ptx.len()));
    let (jobs, found) = (Mutex::new(jobs.into_iter()), Mutex::new(vec![Vec::new(); texts.len()]));
    let work = || -> Result<(), Error> {
        loop {
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((i, arch)) = job else { return Ok(()) };
            let usages = ptxas::usage(ptxas, &texts[i].ptx, arch)?;
            if arch == REPORTED {
                found.lock().unwrap_or_else(PoisonError::into_inner)[i] = usages;
            }
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?.map_err(Failure::from))
    })?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ptx(source: &str, compiler: &str, body: &str) -> String {
        let header = Header {
            krate: "k".into(),
            compiler: compiler.into(),
            target: "t".into(),
            source: source.into(),
        };
        format!("{header}{body}")
    }

    #[test]
    fn reports_the_cause_of_a_difference() {
        let new = ptx("s", "c", "a\nb\n");
        assert_eq!(difference(&new, &new), None);
        assert_eq!(difference("text", &new).unwrap(), "it was not written by rushmem-ptx");
        assert_eq!(difference(&ptx("x", "y", ""), &new).unwrap(), "it was made from other source");
        assert_eq!(
            difference(&ptx("s", "y", "a\nb\n"), &new).unwrap(),
            "it was made by y, and this compiler is c"
        );
        assert_eq!(
            difference(&ptx("s", "c", "a\nx\n"), &new).unwrap(),
            "the first difference is in line 6:\n- x\n+ b"
        );
        assert_eq!(
            difference(&ptx("s", "c", "a\n"), &new).unwrap(),
            "the first difference is in line 6:\n- (end)\n+ b"
        );
    }
}
