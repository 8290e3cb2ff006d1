//! Whether to compile kernels or to take the PTX that is committed next to them.

use std::path::Path;

use crate::error::{Error, Result};
use crate::files;
use crate::header::Header;
use crate::source::Source;
use crate::target::Target;
use crate::toolchain::{Search, Toolchain};

/// The variable that overrides the choice.
pub(crate) const MODE: &str = "RUSHMEM_PTX";

/// What `RUSHMEM_PTX` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Committed PTX if it fits, else compile.
    #[default]
    Auto,
    /// Compile.
    Build,
    /// Committed PTX only.
    Committed,
    /// No PTX at all: kernels run natively.
    None,
}

impl Mode {
    /// From the environment.
    pub(crate) fn from_env() -> Result<Self> {
        match std::env::var_os(MODE) {
            Some(value) => Self::parse(&value.to_string_lossy()),
            None => Ok(Self::Auto),
        }
    }

    fn parse(value: &str) -> Result<Self> {
        match value {
            "auto" | "" => Ok(Self::Auto),
            "build" => Ok(Self::Build),
            "committed" => Ok(Self::Committed),
            "none" => Ok(Self::None),
            other => {
                let expected = "auto, build, committed or none";
                Err(Error::Variable { name: MODE, value: other.into(), expected })
            }
        }
    }
}

/// What is committed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// PTX of this source for this target.
    Fits(String),
    /// Nothing that can be used, and why.
    Not(String),
}

impl Committed {
    /// Looks at the file at `path`, if the caller named one.
    pub(crate) fn look(path: Option<&Path>, source: &Source, target: &Target) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self::Not("none is committed".into()));
        };
        if !path.exists() {
            return Ok(Self::Not(format!("{} does not exist", path.display())));
        }
        // A checkout may have changed the line ends; the driver gets the same bytes everywhere.
        let text = files::read(path)?.replace("\r\n", "\n");
        Ok(match Header::parse(&text) {
            None => Self::Not(format!("{} was not written by rushmem-ptx", path.display())),
            Some(header) if header.source != source.hash => {
                Self::Not(format!("the source is newer than {}", path.display()))
            }
            Some(header) if header.target != target.to_string() => {
                Self::Not(format!("{} is for {}, not for {target}", path.display(), header.target))
            }
            Some(_) => Self::Fits(text),
        })
    }
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Use this text.
    Use(String),
    /// Compile with this toolchain.
    Compile(Toolchain),
    /// Do without.
    None,
}

/// Decides. `search` is only called if a compiler is needed.
pub(crate) fn decide(
    krate: &str,
    mode: Mode,
    committed: Committed,
    search: impl FnOnce() -> Result<Search>,
) -> Result<Plan> {
    let krate = krate.to_owned();
    let committed = match (mode, committed) {
        (Mode::Auto | Mode::Committed, Committed::Fits(text)) => return Ok(Plan::Use(text)),
        (Mode::None, _) => return Ok(Plan::None),
        (Mode::Committed, Committed::Not(committed)) => return Err(Error::NotCommitted { krate, committed }),
        (Mode::Build, Committed::Fits(_)) => "RUSHMEM_PTX=build forbids to use what is committed".to_owned(),
        (Mode::Auto | Mode::Build, Committed::Not(why)) => why,
    };
    let search = search()?;
    let looked = search.looked();
    search.found.map(Plan::Compile).ok_or(Error::NoToolchain { krate, committed, looked })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::toolchain::tests::fake;

    fn source(hash: &str) -> Source {
        Source {
            dir: "/k".into(),
            crate_name: "k".into(),
            workspace: "/".into(),
            hash: hash.into(),
            files: Vec::new(),
            packages: Vec::new(),
        }
    }

    fn never() -> Result<Search> {
        panic!("searched for a compiler without need")
    }

    fn none() -> Result<Search> {
        Ok(Search { found: None, rejected: vec![("/usr/bin/rustc".into(), "not there".into())] })
    }

    fn fits() -> Committed {
        Committed::Fits("ptx".into())
    }

    fn stale() -> Committed {
        Committed::Not("the source is newer than k.ptx".into())
    }

    #[test]
    fn committed_ptx_that_fits_is_used_at_once() {
        for mode in [Mode::Auto, Mode::Committed] {
            assert_eq!(decide("k", mode, fits(), never).unwrap(), Plan::Use("ptx".into()));
        }
    }

    #[test]
    fn a_compiler_is_used_when_needed_or_asked_for() {
        let tmp = tempfile::tempdir().unwrap();
        let toolchain = Toolchain::at(&fake(tmp.path(), "1.96.0", true)).unwrap();
        let found = || Ok(Search { found: Some(toolchain.clone()), rejected: Vec::new() });
        for (mode, committed) in [(Mode::Auto, stale()), (Mode::Build, stale()), (Mode::Build, fits())] {
            assert_eq!(decide("k", mode, committed, found).unwrap(), Plan::Compile(toolchain.clone()));
        }
    }

    #[test]
    fn without_both_the_message_says_what_to_install() {
        let message = decide("k", Mode::Auto, stale(), none).unwrap_err().to_string();
        assert_eq!(
            message,
            "no PTX for kernel crate `k`: the source is newer than k.ptx, and no compiler for the GPU was found\n\
             looked at /usr/bin/rustc: not there\n\
             install one of these and build again:\n  \
             rustup toolchain install nightly --component rust-src\n  \
             apt-get install rustc-web rust-web-src    (Debian 12)"
        );
        let message = decide("k", Mode::Build, fits(), none).unwrap_err().to_string();
        assert!(message.contains("RUSHMEM_PTX=build forbids"), "{message}");
    }

    #[test]
    fn committed_only_never_compiles() {
        let message = decide("k", Mode::Committed, stale(), never).unwrap_err().to_string();
        assert!(message.ends_with("and RUSHMEM_PTX=committed forbids to compile it"), "{message}");
    }

    #[test]
    fn none_looks_for_nothing() {
        for committed in [fits(), stale()] {
            assert_eq!(decide("k", Mode::None, committed, never).unwrap(), Plan::None);
        }
    }

    #[test]
    fn a_mode_that_means_nothing_is_named() {
        assert_eq!(Mode::parse("auto").unwrap(), Mode::Auto);
        let message = Mode::parse("maybe").unwrap_err().to_string();
        assert_eq!(message, "RUSHMEM_PTX=maybe: expected auto, build, committed or none");
    }

    #[test]
    fn committed_ptx_fits_by_hash_and_target() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("k.ptx");
        let header = Header {
            krate: "k".into(),
            compiler: "c".into(),
            target: Target::default().to_string(),
            source: "aa".into(),
        };
        let text = format!("{header}.version 8.6\n");
        let look = |hash: &str, target: &Target| Committed::look(Some(&path), &source(hash), target).unwrap();
        let why = |c: Committed| match c {
            Committed::Not(why) => why,
            Committed::Fits(_) => panic!("it fits"),
        };
        assert!(why(look("aa", &Target::default())).ends_with("does not exist"));
        fs::write(&path, text.replace('\n', "\r\n")).unwrap();
        assert_eq!(look("aa", &Target::default()), Committed::Fits(text));
        assert!(why(look("bb", &Target::default())).starts_with("the source is newer than "));
        let other = Target { arch: "sm_80".into(), isa: (8, 6) };
        assert!(why(look("aa", &other)).ends_with("is for sm_90, PTX 8.6, not for sm_80, PTX 8.6"));
        fs::write(&path, ".version 8.6\n").unwrap();
        assert!(why(look("aa", &Target::default())).ends_with("was not written by rushmem-ptx"));
        assert_eq!(
            why(Committed::look(None, &source("aa"), &Target::default()).unwrap()),
            "none is committed"
        );
    }
}
