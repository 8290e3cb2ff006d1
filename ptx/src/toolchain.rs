//! Finding a compiler that has the standard library's source next to it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};

/// The variable that names the compiler for the GPU side.
pub(crate) const RUSTC: &str = "RUSHMEM_PTX_RUSTC";
/// The variable that names the `cargo` that drives it.
pub(crate) const CARGO: &str = "RUSHMEM_PTX_CARGO";

/// The oldest compiler that the PTX is known to be right with: it marks every function of a GPU convergent, so that
/// none of its passes duplicates a call that holds a barrier.
const OLDEST: (u32, u32) = (1, 96);

/// A compiler, and the library source that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// The compiler.
    pub rustc: PathBuf,
    /// The folder `library` of its source, with `core` in it.
    pub library: PathBuf,
    /// What it says of itself.
    pub version: Version,
}

/// What `rustc -vV` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its first line: `rustc 1.96.0 (ac68faa20 2026-05-25)`.
    pub line: String,
    /// The version of its LLVM.
    pub llvm: String,
    release: (u32, u32),
}

/// As in the header of committed PTX.
impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, LLVM {}", self.line, self.llvm)
    }
}

/// Result of a search.
#[derive(Debug, Default)]
pub struct Search {
    /// The first compiler that can be used.
    pub found: Option<Toolchain>,
    /// The others that were looked at, each with the reason why it cannot.
    pub rejected: Vec<(PathBuf, String)>,
}

/// Where a search looks, in this order.
pub(crate) struct Places {
    /// The user's choice: if it cannot be used, nothing else is tried.
    pub(crate) chosen: Option<PathBuf>,
    /// rustup's folder of toolchains.
    pub(crate) rustup: Option<PathBuf>,
    /// The distribution's compiler.
    pub(crate) system: PathBuf,
}

impl Places {
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
    /// Looks through this machine: `RUSHMEM_PTX_RUSTC`, rustup's nightlies, Debian's compiler.
    ///
    /// # Errors
    /// If `RUSHMEM_PTX_RUSTC` is set and cannot be used.
    pub fn run() -> Result<Self> {
        Self::through(&Places::of_this_machine())
    }

    pub(crate) fn through(places: &Places) -> Result<Self> {
        let mut search = Self::default();
        if let Some(path) = &places.chosen {
            let toolchain = Toolchain::at(path);
            search.found = Some(toolchain.map_err(|problem| Error::Override {
                name: RUSTC,
                path: path.clone(),
                problem,
            })?);
            return Ok(search);
        }
        let nightlies = places.rustup.as_deref().map(nightlies).unwrap_or_default();
        for rustc in nightlies.into_iter().chain([places.system.clone()]) {
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

    /// Returns the rejected compilers, one on each line.
    pub(crate) fn looked(&self) -> String {
        self.rejected.iter().map(|(path, why)| format!("{}: {why}\n", path.display())).collect()
    }
}

/// The compilers of rustup's nightlies: the undated first, then the newest.
fn nightlies(toolchains: &Path) -> Vec<PathBuf> {
    let mut names: Vec<OsString> = fs::read_dir(toolchains)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| name.to_string_lossy().starts_with("nightly"))
        .collect();
    let dated = |name: &OsString| name.to_string_lossy().starts_with("nightly-2");
    names.sort_by(|a, b| dated(a).cmp(&dated(b)).then(b.cmp(a)));
    names.into_iter().map(|name| toolchains.join(name).join("bin/rustc")).collect()
}

impl Toolchain {
    /// The toolchain of the compiler at `rustc`, or why it cannot build for the GPU.
    pub(crate) fn at(rustc: &Path) -> Result<Self, String> {
        if !rustc.exists() {
            return Err("does not exist".into());
        }
        let version = Version::parse(&ask(rustc, &["-vV"])?)
            .ok_or_else(|| "its `rustc -vV` cannot be understood".to_owned())?;
        let (major, minor) = OLDEST;
        if version.release < OLDEST {
            return Err(format!("{} is older than {major}.{minor}", version.line));
        }
        let sysroot = ask(rustc, &["--print", "sysroot"])?;
        let sysroot = Path::new(sysroot.trim());
        let source = sysroot.join("lib/rustlib/src/rust");
        // Debian's is a link to a folder that could stay behind, empty, when the package goes.
        let library = source.join("library");
        if !library.join("core/src/lib.rs").exists() {
            return Err(format!("no library source at {}", source.display()));
        }
        let library = library.canonicalize().map_err(|e| e.to_string())?;
        // What was asked may be rustup's proxy, which stands for another compiler in another folder.
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

    /// A compiler that only answers questions, in `dir/bin/rustc`, with library source if `with_source`.
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
        // Another process writes it: a file that this one had open could not be run while another test starts one.
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf %s \"$1\" >\"$2\" && chmod +x \"$2\"", "sh", &script]).arg(&rustc);
        assert!(shell.status().unwrap().success());
        rustc
    }

    fn places(root: &Path) -> Places {
        Places { chosen: None, rustup: Some(root.join("toolchains")), system: root.join("usr/bin/rustc") }
    }

    #[test]
    fn a_nightly_with_source_comes_before_the_system() {
        let tmp = tempfile::tempdir().unwrap();
        fake(&tmp.path().join("toolchains/stable-x"), "1.95.0", true);
        fake(&tmp.path().join("toolchains/nightly-x"), "1.97.0-nightly", false);
        let dated = fake(&tmp.path().join("toolchains/nightly-2026-01-01-x"), "1.98.0-nightly", true);
        fake(&tmp.path().join("toolchains/nightly-2025-12-01-x"), "1.97.0-nightly", true);
        fake(&tmp.path().join("usr"), "1.96.0", true);
        let search = Search::through(&places(tmp.path())).unwrap();
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
    fn the_system_is_last_and_may_be_too_old() {
        let tmp = tempfile::tempdir().unwrap();
        let system = fake(&tmp.path().join("usr"), "1.96.0", true);
        assert_eq!(Search::through(&places(tmp.path())).unwrap().found.unwrap().rustc, system);
        fake(&tmp.path().join("usr"), "1.63.0", true);
        let search = Search::through(&places(tmp.path())).unwrap();
        assert_eq!(search.found, None);
        assert!(
            search.looked().contains("rustc 1.63.0 (abc 2026-01-01) is older than 1.96"),
            "{}",
            search.looked()
        );
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        let tmp = tempfile::tempdir().unwrap();
        let search = Search::through(&places(tmp.path())).unwrap();
        assert_eq!(search.found, None);
        assert!(search.looked().ends_with("usr/bin/rustc: does not exist\n"));
    }

    #[test]
    fn the_users_choice_is_used_or_named_and_never_replaced() {
        let tmp = tempfile::tempdir().unwrap();
        fake(&tmp.path().join("usr"), "1.96.0", true);
        let mine = fake(&tmp.path().join("mine"), "1.99.0", true);
        let choose =
            |path: &Path| Search::through(&Places { chosen: Some(path.into()), ..places(tmp.path()) });
        assert_eq!(choose(&mine).unwrap().found.unwrap().rustc, mine);
        let error = choose(&tmp.path().join("absent")).unwrap_err().to_string();
        assert!(
            error.starts_with("RUSHMEM_PTX_RUSTC=") && error.ends_with("absent: does not exist"),
            "{error}"
        );
    }

    #[test]
    fn a_proxy_is_replaced_by_what_it_stands_for() {
        let tmp = tempfile::tempdir().unwrap();
        let real = fake(&tmp.path().join("real"), "1.96.0", true);
        let proxy = tmp.path().join("proxy");
        std::os::unix::fs::symlink(&real, &proxy).unwrap();
        assert_eq!(Toolchain::at(&proxy).unwrap().rustc, real);
    }

    #[test]
    fn versions_are_compared_by_number() {
        let parse = |release: &str| Version::parse(&format!("rustc\nrelease: {release}\nLLVM version: 1\n"));
        assert_eq!(parse("1.97.0-nightly").unwrap().release, (1, 97));
        assert_eq!(parse("2.0").unwrap().release, (2, 0));
        assert_eq!(parse("x"), None);
        assert_eq!(Version::parse("rustc\nrelease: 1.97.0\n"), None);
    }
}
