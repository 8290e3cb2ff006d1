//! Finds a Rust compiler that can build `core` for GPUs: one whose standard-library source is installed.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};

/// Environment variable with the path of the `rustc` for GPU code.
pub(crate) const RUSTC: &str = "RUSHMEM_PTX_RUSTC";
/// Environment variable with the path of the `cargo` that drives the GPU compiler.
pub(crate) const CARGO: &str = "RUSHMEM_PTX_CARGO";

/// The oldest compiler that generates correct PTX. It marks every GPU function convergent, so no pass duplicates a call
/// that contains a barrier.
const OLDEST: (u32, u32) = (1, 96);

/// A Rust compiler with the source of its standard library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// Path of `rustc`.
    pub rustc: PathBuf,
    /// Folder of the standard library's source, which contains `core`.
    pub library: PathBuf,
    /// Version that the compiler reports.
    pub version: Version,
}

/// The version of a Rust compiler, from `rustc -vV`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The first line of the output, such as `rustc 1.96.0 (ac68faa20 2026-05-25)`.
    pub line: String,
    /// The version of the compiler's LLVM.
    pub llvm: String,
    release: (u32, u32),
}

/// Formats the version as in the [`Header`](crate::Header) of a PTX file.
impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, LLVM {}", self.line, self.llvm)
    }
}

/// Result of a search for compilers that can generate PTX.
#[derive(Debug, Default)]
pub struct Search {
    /// The first usable compiler, if there is one.
    pub found: Option<Toolchain>,
    /// Compilers that were found but are unusable, each with the reason.
    pub rejected: Vec<(PathBuf, String)>,
}

/// Where to search for compilers.
pub(crate) struct Candidates {
    /// Compiler named by `RUSHMEM_PTX_RUSTC`. If it is unusable, the search fails.
    pub(crate) chosen: Option<PathBuf>,
    /// The folder in which rustup keeps its toolchains.
    pub(crate) rustup: Option<PathBuf>,
    /// Path of the distribution's `rustc`.
    pub(crate) system: PathBuf,
}

impl Candidates {
    fn of_this_machine() -> Self {
        let home = || env::var_os("HOME").map(|h| PathBuf::from(h).join(".rustup"));
        Self {
            chosen: env::var_os(RUSTC).map(PathBuf::from),
            rustup: env::var_os("RUSTUP_HOME").map(PathBuf::from).or_else(home).map(|r| r.join("toolchains")),
            system: "/usr/bin/rustc".into(),
        }
    }
}

impl Search {
    /// Searches this machine for a compiler: `RUSHMEM_PTX_RUSTC`, then nightlies of rustup, then Debian's compiler,
    /// then other toolchains of rustup.
    ///
    /// Compilers that are not nightlies are run with `RUSTC_BOOTSTRAP` to accept unstable features.
    ///
    /// # Errors
    /// - [`Error::Override`] if `RUSHMEM_PTX_RUSTC` names an unusable compiler.
    pub fn run() -> Result<Self> {
        Self::through(&Candidates::of_this_machine())
    }

    pub(crate) fn through(candidates: &Candidates) -> Result<Self> {
        let mut search = Self::default();
        if let Some(path) = &candidates.chosen {
            let toolchain = Toolchain::at(path);
            search.found = Some(toolchain.map_err(|problem| Error::Override {
                name: RUSTC,
                path: path.clone(),
                problem,
            })?);
            return Ok(search);
        }
        let (nightlies, others) = candidates.rustup.as_deref().map(of_rustup).unwrap_or_default();
        for rustc in nightlies.into_iter().chain([candidates.system.clone()]).chain(others) {
            match Toolchain::at(&rustc) {
                Ok(toolchain) => {
                    search.found = Some(toolchain);
                    break;
                }
                Err(why) => search.rejected.push((rustc, why)),
            }
        }
        Ok(search)
    }

    /// Formats the rejected compilers and the reasons, one per line.
    pub(crate) fn looked(&self) -> String {
        self.rejected.iter().map(|(path, why)| format!("{}: {why}\n", path.display())).collect()
    }
}

/// Returns the compilers in rustup's folder: nightlies, and others. In both lists, toolchains without a date or number
/// come first, followed by the others, newest first.
fn of_rustup(toolchains: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut names: Vec<OsString> = fs::read_dir(toolchains)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .collect();
    let numbered = |name: &OsString| {
        let name = name.to_string_lossy();
        name.trim_start_matches("nightly-").starts_with(|c: char| c.is_ascii_digit())
    };
    names.sort_by(|a, b| numbered(a).cmp(&numbered(b)).then(b.cmp(a)));
    let is_nightly = |name: &OsString| name.to_string_lossy().starts_with("nightly");
    let (nightlies, others): (Vec<_>, Vec<_>) = names.into_iter().partition(is_nightly);
    let rustc =
        |names: Vec<OsString>| names.iter().map(|name| toolchains.join(name).join("bin/rustc")).collect();
    (rustc(nightlies), rustc(others))
}

impl Toolchain {
    /// Returns the toolchain of the compiler at `rustc`, or the reason why it cannot build for GPUs.
    pub(crate) fn at(rustc: &Path) -> Result<Self, String> {
        if !rustc.exists() {
            return Err("does not exist".into());
        }
        let version = Version::parse(&ask(rustc, &["-vV"])?)
            .ok_or_else(|| "the output of `rustc -vV` has no known form".to_owned())?;
        let (major, minor) = OLDEST;
        if version.release < OLDEST {
            return Err(format!("{} is older than {major}.{minor}", version.line));
        }
        let sysroot = ask(rustc, &["--print", "sysroot"])?;
        let sysroot = Path::new(sysroot.trim());
        let source = sysroot.join("lib/rustlib/src/rust");
        // On Debian, this is a link. Its target may remain, as an empty folder, after the package is removed.
        let library = source.join("library");
        if !library.join("core/src/lib.rs").exists() {
            return Err(format!("no library source at {}", source.display()));
        }
        let library = library.canonicalize().map_err(|e| e.to_string())?;
        // `rustc` may be rustup's proxy, which runs a compiler in another folder.
        let own = Some(sysroot.join("bin/rustc")).filter(|path| path.exists());
        Ok(Self { rustc: own.unwrap_or_else(|| rustc.into()), library, version })
    }
}

fn ask(rustc: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new(rustc).args(args).output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(format!(
            "`rustc {}` failed: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
        let line = text.lines().next()?.strip_suffix(" (built from a source tarball)");
        let line = line.or(text.lines().next())?.to_owned();
        let mut numbers = field("release:")?.split(['.', '-']).map(|n| n.parse().ok());
        let release = (numbers.next()??, numbers.next()??);
        Some(Self { line, llvm: field("LLVM version:")?.to_owned(), release })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Writes a fake `dir/bin/rustc`, a script that answers `-vV` and `--print` only, and adds library source if
    /// `with_source`.
    pub(crate) fn fake(dir: &Path, release: &str, with_source: bool) -> PathBuf {
        let rustc = dir.join("bin/rustc");
        fs::create_dir_all(dir.join("bin")).unwrap();
        if with_source {
            let core = dir.join("lib/rustlib/src/rust/library/core/src");
            fs::create_dir_all(&core).unwrap();
            fs::write(core.join("lib.rs"), "").unwrap();
        }
        let script = format!(
            "#!/bin/sh\ncase \"$1\" in\n-vV) printf 'rustc {release} (abc 2026-01-01)\\nrelease: {release}\\nLLVM version: 22.1.8\\n';;\n\
             --print) echo '{}';;\nesac\n",
            dir.display()
        );
        // Let another process write the script. If this process had it open for writing while a concurrent test starts
        // a program, the child would inherit the descriptor, and executing the script would fail as busy.
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf %s \"$1\" >\"$2\" && chmod +x \"$2\"", "sh", &script]).arg(&rustc);
        assert!(shell.status().unwrap().success());
        rustc
    }

    fn candidates(root: &Path) -> Candidates {
        Candidates { chosen: None, rustup: Some(root.join("toolchains")), system: root.join("usr/bin/rustc") }
    }

    #[test]
    fn prefers_nightlies_with_source_to_the_system() {
        let tmp = tempfile::tempdir().unwrap();
        fake(&tmp.path().join("toolchains/stable-x"), "1.95.0", true);
        fake(&tmp.path().join("toolchains/nightly-x"), "1.97.0-nightly", false);
        let dated = fake(&tmp.path().join("toolchains/nightly-2026-01-01-x"), "1.98.0-nightly", true);
        fake(&tmp.path().join("toolchains/nightly-2025-12-01-x"), "1.97.0-nightly", true);
        fake(&tmp.path().join("usr"), "1.96.0", true);
        let search = Search::through(&candidates(tmp.path())).unwrap();
        let found = search.found.as_ref().unwrap();
        assert_eq!(found.rustc, dated);
        assert_eq!(found.version.to_string(), "rustc 1.98.0-nightly (abc 2026-01-01), LLVM 22.1.8");
        assert!(
            search.looked().contains("nightly-x/bin/rustc: no library source at "),
            "{}",
            search.looked()
        );
    }

    #[test]
    fn falls_back_to_the_system_unless_it_is_too_old() {
        let tmp = tempfile::tempdir().unwrap();
        let system = fake(&tmp.path().join("usr"), "1.96.0", true);
        assert_eq!(Search::through(&candidates(tmp.path())).unwrap().found.unwrap().rustc, system);
        fake(&tmp.path().join("usr"), "1.63.0", true);
        let search = Search::through(&candidates(tmp.path())).unwrap();
        assert_eq!(search.found, None);
        assert!(
            search.looked().contains("rustc 1.63.0 (abc 2026-01-01) is older than 1.96"),
            "{}",
            search.looked()
        );
    }

    #[test]
    fn stable_toolchain_with_source_is_the_last_resort() {
        let tmp = tempfile::tempdir().unwrap();
        fake(&tmp.path().join("toolchains/1.95.0-x"), "1.95.0", true);
        let numbered = fake(&tmp.path().join("toolchains/1.97.0-x"), "1.97.0", true);
        let found = || Search::through(&candidates(tmp.path())).unwrap().found.unwrap().rustc;
        assert_eq!(found(), numbered);
        let stable = fake(&tmp.path().join("toolchains/stable-x"), "1.96.0", true);
        assert_eq!(found(), stable);
        let system = fake(&tmp.path().join("usr"), "1.96.0", true);
        assert_eq!(found(), system);
        let nightly = fake(&tmp.path().join("toolchains/nightly-x"), "1.98.0-nightly", true);
        assert_eq!(found(), nightly);
    }

    #[test]
    fn finds_nothing_in_empty_folders() {
        let tmp = tempfile::tempdir().unwrap();
        let search = Search::through(&candidates(tmp.path())).unwrap();
        assert_eq!(search.found, None);
        assert!(search.looked().ends_with("usr/bin/rustc: does not exist\n"));
    }

    #[test]
    fn user_choice_is_never_overridden() {
        let tmp = tempfile::tempdir().unwrap();
        fake(&tmp.path().join("usr"), "1.96.0", true);
        let mine = fake(&tmp.path().join("mine"), "1.99.0", true);
        let choose = |path: &Path| {
            Search::through(&Candidates { chosen: Some(path.into()), ..candidates(tmp.path()) })
        };
        assert_eq!(choose(&mine).unwrap().found.unwrap().rustc, mine);
        let error = choose(&tmp.path().join("absent")).unwrap_err().to_string();
        assert!(
            error.starts_with("RUSHMEM_PTX_RUSTC=") && error.ends_with("absent: does not exist"),
            "{error}"
        );
    }

    #[test]
    fn resolves_a_proxy_to_its_compiler() {
        let tmp = tempfile::tempdir().unwrap();
        let real = fake(&tmp.path().join("real"), "1.96.0", true);
        let proxy = tmp.path().join("proxy");
        std::os::unix::fs::symlink(&real, &proxy).unwrap();
        assert_eq!(Toolchain::at(&proxy).unwrap().rustc, real);
    }

    #[test]
    fn reads_versions_as_numbers() {
        let parse = |release: &str| Version::parse(&format!("rustc\nrelease: {release}\nLLVM version: 1\n"));
        assert_eq!(parse("1.97.0-nightly").unwrap().release, (1, 97));
        assert_eq!(parse("2.0").unwrap().release, (2, 0));
        assert_eq!(parse("x"), None);
        assert_eq!(Version::parse("rustc\nrelease: 1.97.0\n"), None);
    }
}
