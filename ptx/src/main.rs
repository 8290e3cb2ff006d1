//! The project's own kernels: writes their committed PTX, checks it, and reports what it needs on a GPU.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rushmem_ptx::{Error, Header, Search, Source, Target, Toolchain, compile, inspect, ptxas};

/// The kernel crates whose PTX is committed, seen from the root of the project.
const KERNEL_CRATES: [&str; 5] =
    ["host/kernels", "examples/kernels", "tests/kernels", "tests/litmus/kernels", "benches/kernels"];

const USAGE: &str = "\
usage: cargo run -p rushmem-ptx -- COMMAND

  update              compile all kernels and write ptx/committed
  check               compile all kernels and compare with ptx/committed
  report [--no-spills] [FILE.ptx ...]
                      registers, stack, spills and barriers of each kernel, by ptxas;
                      of ptx/committed if no file is named";

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["update"] => update(),
        ["check"] => check(),
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

fn committed() -> PathBuf {
    root().join("ptx/committed")
}

/// Compiles every kernel crate, and hands its name and PTX to `with`.
fn each(mut with: impl FnMut(&str, &Toolchain, String) -> Result<(), Failure>) -> Result<(), Failure> {
    let search = Search::run()?;
    let Some(toolchain) = search.found else {
        let looked = search.rejected.iter().map(|(p, why)| format!("\n  {}: {why}", p.display()));
        return Err(format!("no compiler for the GPU was found:{}", looked.collect::<String>()).into());
    };
    for dir in KERNEL_CRATES {
        let source = Source::read(&root().join(dir))?;
        let made = compile(&source, &toolchain, &Target::default(), &root().join("target/rushmem-ptx"))?;
        with(&source.crate_name, &toolchain, made.text)?;
    }
    Ok(())
}

fn update() -> Result<(), Failure> {
    let dir = committed();
    fs::create_dir_all(&dir)?;
    each(|name, toolchain, text| {
        let path = dir.join(format!("{name}.ptx"));
        let changed = fs::read_to_string(&path).is_ok_and(|old| old == text);
        println!(
            "{}: {} by {}",
            path.display(),
            if changed { "as it was" } else { "written" },
            toolchain.version
        );
        Ok(fs::write(&path, text)?)
    })
}

fn check() -> Result<(), Failure> {
    each(|name, toolchain, text| {
        let path = committed().join(format!("{name}.ptx"));
        let old = fs::read_to_string(&path).map_err(|e| {
            format!("cannot read {}: {e}\nmake it: cargo run -p rushmem-ptx -- update", path.display())
        })?;
        match difference(&old, &text) {
            None => println!("{}: as the source and {} make it", path.display(), toolchain.version),
            Some(what) => {
                return Err(format!(
                    "{}: {what}\nwrite it again: cargo run -p rushmem-ptx -- update",
                    path.display()
                )
                .into());
            }
        }
        Ok(())
    })
}

/// How what is committed differs from what was made just now.
fn difference(old: &str, new: &str) -> Option<String> {
    if old == new {
        return None;
    }
    let (Some(was), Some(is)) = (Header::parse(old), Header::parse(new)) else {
        return Some("not written by rushmem-ptx".into());
    };
    if was.source != is.source {
        return Some("made from other source".into());
    }
    if was.compiler != is.compiler {
        return Some(format!("made by {}, and this is {}", was.compiler, is.compiler));
    }
    let line = old.lines().zip(new.lines()).position(|(a, b)| a != b);
    let line = line.unwrap_or(old.lines().count().min(new.lines().count()));
    let at = |text: &str| text.lines().nth(line).unwrap_or("(end)").to_owned();
    Some(format!("differs first in line {}:\n- {}\n+ {}", line + 1, at(old), at(new)))
}

fn report(args: &[&str]) -> Result<(), Failure> {
    let mut no_spills = false;
    let mut files = Vec::new();
    for arg in args {
        match *arg {
            "--no-spills" => no_spills = true,
            option if option.starts_with('-') => {
                return Err(format!("unknown option {option}\n{USAGE}").into());
            }
            file => files.push(PathBuf::from(file)),
        }
    }
    if files.is_empty() {
        files = fs::read_dir(committed())?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_, std::io::Error>>()?;
        files.retain(|path| path.extension().is_some_and(|e| e == "ptx"));
        files.sort();
    }
    let ptxas = ptxas::find()?;
    let mut spilling = Vec::new();
    println!(
        "{:<40} {:>9} {:>5} {:>6} {:>8} {:>12}",
        "kernel", "registers", "stack", "spills", "barriers", "in PTX, local"
    );
    for file in &files {
        spilling.extend(report_file(&ptxas, file)?);
    }
    if no_spills && !spilling.is_empty() {
        return Err(format!("registers are spilled in: {}", spilling.join(", ")).into());
    }
    Ok(())
}

/// Prints a line for each kernel of `file`, and returns the names of those that spill.
fn report_file(ptxas: &Path, file: &Path) -> Result<Vec<String>, Failure> {
    let target = Target::default();
    let text = fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    let contents = inspect::check(&text, &target)
        .map_err(|violations| Error::Refused { krate: file.display().to_string(), violations })?;
    let mut spilling = Vec::new();
    println!("{}", file.display());
    for usage in ptxas::usage(ptxas, file, &target.arch)? {
        let in_ptx = contents.entries.get(&usage.entry);
        let (barriers, local) = in_ptx.map_or((0, 0), |f| (f.barriers, f.local_bytes));
        let spills = usage.spill_stores + usage.spill_loads;
        println!(
            "  {:<38} {:>9} {:>5} {:>6} {:>8} {:>8} {:>4}",
            usage.entry, usage.registers, usage.stack, spills, usage.barriers, barriers, local
        );
        if spills > 0 {
            spilling.push(usage.entry);
        }
    }
    Ok(spilling)
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
    fn a_difference_is_told_by_its_cause() {
        let new = ptx("s", "c", "a\nb\n");
        assert_eq!(difference(&new, &new), None);
        assert_eq!(difference("text", &new).unwrap(), "not written by rushmem-ptx");
        assert_eq!(difference(&ptx("x", "y", ""), &new).unwrap(), "made from other source");
        assert_eq!(difference(&ptx("s", "y", "a\nb\n"), &new).unwrap(), "made by y, and this is c");
        assert_eq!(difference(&ptx("s", "c", "a\nx\n"), &new).unwrap(), "differs first in line 6:\n- x\n+ b");
        assert_eq!(
            difference(&ptx("s", "c", "a\n"), &new).unwrap(),
            "differs first in line 6:\n- (end)\n+ b"
        );
    }
}
