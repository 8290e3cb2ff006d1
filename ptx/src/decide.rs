//! Decides whether to compile a kernel crate, to use its committed PTX, or to omit the PTX.

use std::path::Path;

use crate::error::{Error, Result, TOOLCHAIN_REMEDY};
use crate::files;
use crate::header::Header;
use crate::source::Source;
use crate::target::Target;
use crate::toolchain::{Search, Toolchain};

/// Environment variable that overrides how PTX is obtained; see [`Mode`].
pub(crate) const MODE: &str = "RUSHMEM_PTX";

/// How PTX is obtained, as selected by the environment variable `RUSHMEM_PTX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Use committed PTX that matches the source; otherwise compile. Omit [optional](crate::Builder::optional)
    /// PTX.
    #[default]
    Auto,
    /// Like `Auto`, but including optional PTX.
    All,
    /// Compile everything, even if the committed PTX matches the source.
    Build,
    /// Only use committed PTX; never compile.
    Committed,
    /// Omit all PTX: kernels run natively only.
    None,
}

impl Mode {
    pub(crate) fn from_env() -> Result<Self> {
        match std::env::var_os(MODE) {
            Some(value) => Self::parse(&value.to_string_lossy()),
            None => Ok(Self::Auto),
        }
    }

    fn parse(value: &str) -> Result<Self> {
        match value {
            "auto" | "" => Ok(Self::Auto),
            "all" => Ok(Self::All),
            "build" => Ok(Self::Build),
            "committed" => Ok(Self::Committed),
            "none" => Ok(Self::None),
            other => {
                let expected = "auto, all, build, committed or none";
                Err(Error::Variable { name: MODE, value: other.into(), expected })
            }
        }
    }
}

/// Whether a kernel crate has usable committed PTX.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// The committed PTX was made from the current source for this target. Contains its text.
    Matches(String),
    /// There is no PTX, or it is stale or for another target. Contains the reason.
    Unusable(String),
}

impl Committed {
    /// Reads the committed PTX at `path`, if there is one, and compares its header with `source` and `target`.
    pub(crate) fn read(path: Option<&Path>, source: &Source, target: &Target) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self::Unusable("none is committed".into()));
        };
        if !path.exists() {
            return Ok(Self::Unusable(format!("{} does not exist", path.display())));
        }
        // A checkout may have converted line breaks. Undo that: the driver should get the same bytes everywhere.
        let text = files::read(path)?.replace("\r\n", "\n");
        Ok(match Header::parse(&text) {
            None => Self::Unusable(format!("{} was not written by rushmem-ptx", path.display())),
            Some(header) if header.source != source.hash => {
                Self::Unusable(format!("{} was made from other source", path.display()))
            }
            Some(header) if header.target != target.to_string() => {
                Self::Unusable(format!("{} is for {}, not for {target}", path.display(), header.target))
            }
            Some(_) => Self::Matches(text),
        })
    }
}

/// How a build will obtain its PTX.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Use the committed PTX, with this text.
    Use(String),
    /// Compile the kernels with this toolchain.
    Compile(Toolchain),
    /// Write an empty PTX file, for this reason.
    Omit(String),
}

/// What happens to a build that cannot obtain its PTX without compiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Need {
    /// The build must compile PTX, or fails.
    #[default]
    Required,
    /// The build omits PTX if there is no compiler.
    IfPossible,
    /// The build omits PTX unless `RUSHMEM_PTX` requests that optional kernels are compiled.
    OnRequest,
}

/// The properties of a kernel crate that determine how its PTX is obtained.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) krate: &'a str,
    /// Whether matching committed PTX is used whatever `RUSHMEM_PTX` says.
    pub(crate) bundled: bool,
    pub(crate) need: Need,
    pub(crate) committed: Committed,
}

/// Decides how to obtain the PTX. Calls `search` to find a compiler only if one is needed.
pub(crate) fn decide(
    mode: Mode,
    request: Request<'_>,
    search: impl FnOnce() -> Result<Search>,
) -> Result<Plan> {
    let krate = request.krate.to_owned();
    let committed = match (mode, request.committed) {
        (_, Committed::Matches(text)) if request.bundled => return Ok(Plan::Use(text)),
        (Mode::None, _) => {
            return Ok(Plan::Omit(format!("it was built with {MODE}=none; build it again without")));
        }
        (Mode::Auto | Mode::All | Mode::Committed, Committed::Matches(text)) => return Ok(Plan::Use(text)),
        (Mode::Auto | Mode::Committed, Committed::Unusable(_)) if request.need == Need::OnRequest => {
            return Ok(Plan::Omit(not_requested()));
        }
        (Mode::Committed, Committed::Unusable(committed)) => {
            return Err(Error::NotCommitted { krate, committed });
        }
        (Mode::Build, Committed::Matches(_)) => format!("{MODE}=build ignores what is committed"),
        (Mode::Auto | Mode::All | Mode::Build, Committed::Unusable(why)) => why,
    };
    let search = search()?;
    let looked = search.looked();
    if (mode, request.need) == (Mode::Auto, Need::IfPossible) && search.found.is_none() {
        return Ok(Plan::Omit(no_compiler(&looked)));
    }
    search.found.map(Plan::Compile).ok_or(Error::NoToolchain { krate, committed, looked })
}

/// Explains why a build without a compiler omitted PTX, with the rejected compilers and the remedy.
fn no_compiler(looked: &str) -> String {
    format!(
        "no PTX compiler was found when it was built ({}); install one ({}), touch build.rs and build again",
        looked.trim_end().replace('\n', "; "),
        TOOLCHAIN_REMEDY.join(" or ")
    )
}

/// Explains why optional PTX was omitted, with the remedy.
fn not_requested() -> String {
    format!(
        "it is built only with {MODE}=all; build again with that, and with a PTX compiler ({})",
        TOOLCHAIN_REMEDY.join(" or ")
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::toolchain::tests::fake;

    const MODES: [Mode; 5] = [Mode::Auto, Mode::All, Mode::Build, Mode::Committed, Mode::None];

    fn source(hash: &str) -> Source {
        Source {
            dir: "/k".into(),
            crate_name: "k".into(),
            workspace: "/".into(),
            hash: hash.into(),
            files: Vec::new(),
            packages: Vec::new(),
            module: None,
        }
    }

    fn never() -> Result<Search> {
        panic!("searched for a compiler without need")
    }

    fn none() -> Result<Search> {
        Ok(Search { found: None, rejected: vec![("/usr/bin/rustc".into(), "does not exist".into())] })
    }

    fn required(committed: Committed) -> Request<'static> {
        Request { krate: "k", bundled: false, need: Need::Required, committed }
    }

    fn optional(committed: Committed) -> Request<'static> {
        Request { krate: "k", bundled: false, need: Need::OnRequest, committed }
    }

    fn matching() -> Committed {
        Committed::Matches("ptx".into())
    }

    fn stale() -> Committed {
        Committed::Unusable("k.ptx was made from other source".into())
    }

    #[test]
    fn matching_committed_ptx_is_used_without_a_search() {
        for mode in [Mode::Auto, Mode::All, Mode::Committed] {
            for request in [required(matching()), optional(matching())] {
                assert_eq!(decide(mode, request, never).unwrap(), Plan::Use("ptx".into()));
            }
        }
    }

    #[test]
    fn compiles_when_needed_or_requested() {
        let tmp = tempfile::tempdir().unwrap();
        let toolchain = Toolchain::at(&fake(tmp.path(), "1.96.0", true)).unwrap();
        let found = || Ok(Search { found: Some(toolchain.clone()), rejected: Vec::new() });
        let cases = [
            (Mode::Auto, required(stale())),
            (Mode::All, required(stale())),
            (Mode::All, optional(stale())),
            (Mode::Build, required(stale())),
            (Mode::Build, required(matching())),
            (Mode::Build, optional(matching())),
        ];
        for (mode, request) in cases {
            assert_eq!(decide(mode, request, found).unwrap(), Plan::Compile(toolchain.clone()));
        }
    }

    #[test]
    fn optional_ptx_is_omitted_unless_requested() {
        for mode in [Mode::Auto, Mode::Committed] {
            let Plan::Omit(why) = decide(mode, optional(stale()), never).unwrap() else {
                panic!("{mode:?} does not leave it out")
            };
            assert_eq!(
                why,
                "it is built only with RUSHMEM_PTX=all; build again with that, and with a PTX compiler \
                 (rustup toolchain install nightly --component rust-src or apt-get install rustc-web rust-web-src)"
            );
        }
    }

    #[test]
    fn omits_ptx_without_compiler_if_it_may_run_natively() {
        let request = |committed| Request { krate: "k", bundled: false, need: Need::IfPossible, committed };
        let Plan::Omit(why) = decide(Mode::Auto, request(stale()), none).unwrap() else {
            panic!("it does not leave it out")
        };
        let words = "no PTX compiler was found when it was built (/usr/bin/rustc: does not exist); install one (rustup";
        assert!(why.starts_with(words), "{why}");
        for mode in [Mode::All, Mode::Build] {
            assert!(matches!(decide(mode, request(stale()), none).unwrap_err(), Error::NoToolchain { .. }));
        }
        assert_eq!(decide(Mode::Auto, request(matching()), never).unwrap(), Plan::Use("ptx".into()));
    }

    #[test]
    fn requested_optional_ptx_needs_a_compiler() {
        for mode in [Mode::All, Mode::Build] {
            let error = decide(mode, optional(stale()), none).unwrap_err();
            assert!(matches!(error, Error::NoToolchain { .. }), "{error}");
        }
    }

    #[test]
    fn missing_compiler_is_reported_with_the_remedy() {
        let message = decide(Mode::Auto, required(stale()), none).unwrap_err().to_string();
        assert_eq!(
            message,
            "no PTX for the kernels `k`: k.ptx was made from other source, and no PTX compiler was found\n\
             /usr/bin/rustc: does not exist\n\
             install one of these and build again:\n  \
             rustup toolchain install nightly --component rust-src\n  \
             apt-get install rustc-web rust-web-src    (Debian 12)"
        );
        let message = decide(Mode::Build, required(matching()), none).unwrap_err().to_string();
        assert!(message.contains("RUSHMEM_PTX=build ignores what is committed"), "{message}");
    }

    #[test]
    fn committed_mode_never_compiles() {
        let message = decide(Mode::Committed, required(stale()), never).unwrap_err().to_string();
        assert!(message.ends_with("and RUSHMEM_PTX=committed forbids compiling it"), "{message}");
    }

    #[test]
    fn bundled_ptx_is_used_in_every_mode() {
        let bundled = |committed| Request { bundled: true, ..required(committed) };
        for mode in MODES {
            assert_eq!(decide(mode, bundled(matching()), never).unwrap(), Plan::Use("ptx".into()));
        }
        assert!(matches!(decide(Mode::None, bundled(stale()), never).unwrap(), Plan::Omit(_)));
    }

    #[test]
    fn none_mode_omits_all_ptx() {
        for request in [required(matching()), required(stale()), optional(stale())] {
            let why = "it was built with RUSHMEM_PTX=none; build it again without".to_owned();
            assert_eq!(decide(Mode::None, request, never).unwrap(), Plan::Omit(why));
        }
    }

    #[test]
    fn modes_are_parsed() {
        for (text, mode) in ["auto", "all", "build", "committed", "none"].into_iter().zip(MODES) {
            assert_eq!(Mode::parse(text).unwrap(), mode);
        }
        assert_eq!(Mode::parse("").unwrap(), Mode::Auto);
        let message = Mode::parse("maybe").unwrap_err().to_string();
        assert_eq!(message, "RUSHMEM_PTX=maybe: expected auto, all, build, committed or none");
    }

    #[test]
    fn committed_ptx_matches_by_hash_and_target() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("k.ptx");
        let header = Header {
            krate: "k".into(),
            compiler: "c".into(),
            target: Target::default().to_string(),
            source: "aa".into(),
        };
        let text = format!("{header}.version 8.6\n");
        let read = |hash: &str, target: &Target| Committed::read(Some(&path), &source(hash), target).unwrap();
        let reason = |committed: Committed| match committed {
            Committed::Unusable(reason) => reason,
            Committed::Matches(_) => panic!("it matches"),
        };
        assert!(reason(read("aa", &Target::default())).ends_with("does not exist"));
        fs::write(&path, text.replace('\n', "\r\n")).unwrap();
        assert_eq!(read("aa", &Target::default()), Committed::Matches(text));
        assert!(reason(read("bb", &Target::default())).ends_with("was made from other source"));
        let other = Target { arch: "sm_80".into(), isa: (8, 6) };
        assert!(reason(read("aa", &other)).ends_with("is for sm_75, PTX 8.6, not for sm_80, PTX 8.6"));
        fs::write(&path, ".version 8.6\n").unwrap();
        assert!(reason(read("aa", &Target::default())).ends_with("was not written by rushmem-ptx"));
        let unnamed = Committed::read(None, &source("aa"), &Target::default()).unwrap();
        assert_eq!(reason(unnamed), "none is committed");
    }
}
