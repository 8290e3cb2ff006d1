//! Tells how this process was started. It looks at settings and variables, decides once, and does nothing.

use crate::auth::Token;
use crate::client::Member;
use crate::error::Error;
use crate::id::UniqueId;
use crate::launcher::pmi::{Pmi, Version};
use crate::launcher::torchrun::Torchrun;
use rushmem_config::{BootstrapKind, Config};

/// What brings the PEs together.
#[derive(Clone, Debug)]
pub(crate) enum LaunchMethod {
    /// They are threads of this process.
    Threads,
    /// `rushmem run` has started them.
    Rushmem(Box<Member>),
    /// A unique id.
    Id { id: UniqueId, pe: u32, n_pes: u32 },
    /// A launcher that speaks PMI-1 or PMI-2.
    Pmi(Pmi),
    /// A launcher that speaks PMIx.
    Pmix,
    /// `torchrun`.
    Torchrun(Torchrun),
}

/// The way, and why that.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) way: LaunchMethod,
    pub(crate) why: String,
    /// One line for the user, if this looks like a job that we cannot join.
    pub(crate) warning: Option<String>,
}

/// Variables by name.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Launchers that give a process nothing to meet the others by: name, the variables of a process's number and of their
/// count, and what to do.
const SILENT: &[(&str, &str, &str, &str)] = &[
    ("mpirun (MVAPICH)", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "use `mpiexec` of its Hydra"),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "use `srun --mpi=pmi2` or `srun --mpi=pmix`"),
];

/// The variables that torchrun sets.
const TORCHRUN: [&str; 6] =
    ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];

/// The variables by which launchers tell a process its number among those of its node: torchrun, Open MPI, Hydra, MVAPICH,
/// Slurm.
const LOCAL_RANKS: [&str; 5] = [
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
];

/// True unless a launcher has said that this process is not the first one that it started on this node.
pub(crate) fn is_first_here(config: &Config, variables: Variables) -> bool {
    if let Some(local_pe) = config.local_pe {
        return local_pe == 0;
    }
    let number = |name: &&str| variables(name)?.parse().ok();
    LOCAL_RANKS.iter().filter_map(number).all(|local: u32| local == 0)
}

/// Decides by the settings, and by the variables of this process.
///
/// # Errors
///
/// [`Error::Launch`] for variables that are incomplete or that stand for several launchers; [`Error::NotStarted`] if
/// the setting `bootstrap` asks for one that has not started this process.
pub(crate) fn decide(config: &Config, build_id: &str, variables: Variables) -> Result<Decision, Error> {
    let kind = config.bootstrap;
    let asked = |way| {
        let why = format!("RUSHMEM_BOOTSTRAP={kind}");
        Ok(Decision { way, why, warning: None })
    };
    let missing = |why: &str| Error::NotStarted { kind, why: why.into() };
    match kind {
        BootstrapKind::Auto => auto(config, build_id, variables),
        BootstrapKind::Threads => asked(LaunchMethod::Threads),
        BootstrapKind::Rushmem => match own(config, build_id)? {
            Some((way @ LaunchMethod::Rushmem(_), _)) => asked(way),
            _ => Err(missing("RUSHMEM_SERVER is not set: start the PEs with `rushmem run`")),
        },
        BootstrapKind::Id => match own(config, build_id)? {
            Some((way @ LaunchMethod::Id { .. }, _)) => asked(way),
            _ => Err(missing("RUSHMEM_ID is not set: make one with `rushmem id`, and give it to every PE")),
        },
        BootstrapKind::Pmi1 | BootstrapKind::Pmi2 => match pmi(variables, Some(kind))? {
            Some((way, _)) => asked(way),
            None => Err(missing("PMI_FD is not set: the launcher does not speak it")),
        },
        BootstrapKind::Pmix => match pmix(variables)? {
            Some((way, _)) => asked(way),
            None => Err(missing("PMIX_RANK is not set: the launcher does not speak it")),
        },
        BootstrapKind::Torchrun => match torchrun(variables)? {
            Some((way, _)) => asked(way),
            None => Err(missing("RANK is not set: torchrun has not started this process")),
        },
    }
}

/// Decides by what is there: our own variables come first, as somebody has set them on purpose; of the others there
/// may be one.
fn auto(config: &Config, build_id: &str, variables: Variables) -> Result<Decision, Error> {
    if let Some((way, why)) = own(config, build_id)? {
        return Ok(Decision { way, why, warning: None });
    }
    let mut found: Vec<(LaunchMethod, String)> =
        [pmi(variables, None)?, pmix(variables)?, torchrun(variables)?].into_iter().flatten().collect();
    match found.len() {
        0 => {
            let why = "no launcher has set variables".into();
            Ok(Decision { way: LaunchMethod::Threads, why, warning: silent(variables) })
        }
        1 => {
            let (way, why) = found.remove(0);
            if config.pes.get() != 1 {
                let why = format!(
                    "{why}, and pes = {} asks for PEs as threads; leave that out, or set RUSHMEM_BOOTSTRAP=threads to \
                     make each process a job of its own",
                    config.pes
                );
                return Err(Error::Launch { why });
            }
            Ok(Decision { way, why, warning: None })
        }
        _ => {
            let all: Vec<_> = found.iter().map(|(_, why)| why.as_str()).collect();
            let why = format!("{}; set RUSHMEM_BOOTSTRAP to the one that is meant", all.join(", and "));
            Err(Error::Launch { why })
        }
    }
}

/// What our own variables say.
fn own(config: &Config, build_id: &str) -> Result<Option<(LaunchMethod, String)>, Error> {
    let fail = |why: String| Err(Error::Launch { why });
    let set = |name: &'static str, set: bool| if set { Some(name) } else { None };
    let all = [
        ("RUSHMEM_PE", config.pe.is_some()),
        ("RUSHMEM_N_PES", config.n_pes.is_some()),
        ("RUSHMEM_SERVER", config.server.is_some()),
        ("RUSHMEM_TOKEN", config.token.is_some()),
    ];
    // A token alone is what a user exports for a launcher of several nodes.
    let started = all[..3].iter().any(|(_, is_set)| *is_set) || config.id.is_some();
    if !started {
        return Ok(None);
    }
    if config.pes.get() != 1 {
        return fail(format!(
            "its variables make this process one PE, and pes = {} asks for several as threads of it",
            config.pes
        ));
    }
    match (config.pe, config.n_pes, &config.server, &config.id, &config.token) {
        (_, _, Some(_), Some(_), _) => fail("RUSHMEM_SERVER and RUSHMEM_ID are both set; unset one".into()),
        (Some(pe), Some(n_pes), None, Some(id), _) => {
            let way = LaunchMethod::Id { id: (*id).into(), pe, n_pes: n_pes.get() };
            Ok(Some((way, "RUSHMEM_ID is set".into())))
        }
        (Some(pe), Some(n_pes), Some(server), None, Some(token)) => {
            let member = Member {
                server: server.clone(),
                token: Token::from_hex(token.reveal())?,
                pe,
                n_pes: n_pes.get(),
                build_id: build_id.into(),
                timeout: config.bootstrap_timeout,
                retry: config.nodes.is_some_and(|nodes| nodes.get() > 1),
            };
            Ok(Some((LaunchMethod::Rushmem(Box::new(member)), "`rushmem run` has set RUSHMEM_SERVER".into())))
        }
        (_, _, None, Some(_), _) => {
            let missing: Vec<_> = all[..2].iter().filter_map(|(name, is_set)| set(name, !*is_set)).collect();
            fail(format!("RUSHMEM_ID is set, and {} is not: give each PE its number", missing.join(", ")))
        }
        _ => {
            let names = |wanted| all.iter().filter_map(move |(name, is_set)| set(name, *is_set == wanted));
            fail(format!(
                "of the variables that `rushmem run` sets, {} are there and {} missing (a job without launcher needs \
                 RUSHMEM_ID instead)",
                names(true).collect::<Vec<_>>().join(", "),
                names(false).collect::<Vec<_>>().join(", ")
            ))
        }
    }
}

/// What a launcher says that speaks PMI over a descriptor; in version 2 if `kind` says so, or if it is Slurm.
fn pmi(variables: Variables, kind: Option<BootstrapKind>) -> Result<Option<(LaunchMethod, String)>, Error> {
    const NAMES: [&str; 3] = ["PMI_FD", "PMI_RANK", "PMI_SIZE"];
    let Some(values) = complete(variables, &NAMES, &NAMES)? else { return Ok(None) };
    let version = match kind {
        Some(BootstrapKind::Pmi1) => Version::One,
        Some(BootstrapKind::Pmi2) => Version::Two,
        _ if variables("SLURM_JOB_ID").is_some() => Version::Two,
        _ => Version::One,
    };
    let fd = number("PMI_FD", &values[0])?;
    let (pe, n_pes) = (number("PMI_RANK", &values[1])?, number("PMI_SIZE", &values[2])?);
    check_place(("PMI_RANK", pe), ("PMI_SIZE", n_pes))?;
    let why = format!("PMI_FD is set: a launcher speaks PMI-{}", if version == Version::One { 1 } else { 2 });
    let job = variables("PMI_JOBID");
    Ok(Some((LaunchMethod::Pmi(Pmi { version, fd, pe, n_pes, job }), why)))
}

fn pmix(variables: Variables) -> Result<Option<(LaunchMethod, String)>, Error> {
    const NAMES: [&str; 2] = ["PMIX_RANK", "PMIX_NAMESPACE"];
    let found = complete(variables, &NAMES, &NAMES)?;
    Ok(found.map(|_| (LaunchMethod::Pmix, "PMIX_RANK is set: a launcher speaks PMIx".into())))
}

fn torchrun(variables: Variables) -> Result<Option<(LaunchMethod, String)>, Error> {
    // Addresses alone are what a user exports for all jobs.
    let Some(values) = complete(variables, &TORCHRUN[..2], &TORCHRUN)? else { return Ok(None) };
    let at = |i: usize| number(TORCHRUN[i], &values[i]);
    let (pe, n_pes, local_pe, local_pes) = (at(0)?, at(1)?, at(2)?, at(3)?);
    check_place(("RANK", pe), ("WORLD_SIZE", n_pes))?;
    check_place(("LOCAL_RANK", local_pe), ("LOCAL_WORLD_SIZE", local_pes))?;
    let port = number("MASTER_PORT", &values[5])?;
    let id = variables("TORCHELASTIC_RUN_ID").unwrap_or_default();
    let restart = variables("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
    let (addr, run) = (values[4].clone(), format!("{id} {restart}"));
    let way = LaunchMethod::Torchrun(Torchrun { pe, n_pes, local_pe, local_pes, addr, port, run });
    Ok(Some((way, "RANK is set: torchrun has started this process".into())))
}

/// The values of all of `names`, if one of `signs` is there. Some without the others are an error.
fn complete(variables: Variables, signs: &[&str], names: &[&str]) -> Result<Option<Vec<String>>, Error> {
    let Some(sign) = signs.iter().find(|name| variables(name).is_some()) else { return Ok(None) };
    let missing: Vec<_> = names.iter().filter(|name| variables(name).is_none()).copied().collect();
    if missing.is_empty() {
        return Ok(Some(names.iter().filter_map(|name| variables(name)).collect()));
    }
    let why = format!(
        "{sign} is set, and {} is not; set it, or RUSHMEM_BOOTSTRAP=threads if this process is a job of its own",
        missing.join(", ")
    );
    Err(Error::Launch { why })
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| Error::Launch { why: format!("{name}={text} is no such number") })
}

fn check_place((pe_name, pe): (&str, u32), (size_name, size): (&str, u32)) -> Result<(), Error> {
    match pe < size {
        true => Ok(()),
        false => {
            let why = format!("{pe_name}={pe} and {size_name}={size} contradict each other");
            Err(Error::Launch { why })
        }
    }
}

/// Launchers that we know and cannot join. Only their first process says so.
fn silent(variables: Variables) -> Option<String> {
    SILENT.iter().find_map(|(launcher, rank, size, advice)| {
        let rank: u64 = variables(rank)?.parse().ok()?;
        let size: u64 = variables(size)?.parse().ok()?;
        (size > 1 && rank == 0).then(|| {
            format!(
                "{size} processes started by {launcher} each run as a job of its own, as it gives them nothing to meet \
                 by: {advice}, or start the PEs with `rushmem run -n {size}`"
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "abababababababababababababababababababababababababababababababab";
    const TORCH: [(&str, &str); 6] = [
        ("RANK", "3"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "node0"),
        ("MASTER_PORT", "29500"),
    ];
    const PMI: [(&str, &str); 3] = [("PMI_FD", "9"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")];
    const PMIX: [(&str, &str); 2] = [("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "job1")];

    /// What `f` makes of the settings among these variables, and of all of them.
    fn with<R>(variables: &[(&str, &str)], f: impl FnOnce(&Config, Variables) -> R) -> R {
        let config =
            Config::load_from(variables.iter().map(|(name, value)| (name.into(), value.into()))).unwrap();
        f(&config, &|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    fn decided(variables: &[(&str, &str)]) -> Result<Decision, Error> {
        with(variables, |config, look| decide(config, "b", look))
    }

    fn refused(variables: &[(&str, &str)]) -> String {
        decided(variables).unwrap_err().to_string()
    }

    #[test]
    fn one_process_of_a_node_is_the_first() {
        let first = |variables: &[(&str, &str)]| with(variables, is_first_here);
        assert!(first(&[]));
        assert!(first(&[("SLURM_LOCALID", "0")]));
        // Within a script that Slurm has started, another launcher.
        assert!(!first(&[("SLURM_LOCALID", "0"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")]));
        for name in LOCAL_RANKS {
            assert!(!first(&[(name, "2")]), "{name}");
            // What `rushmem run` says counts.
            assert!(first(&[(name, "2"), ("RUSHMEM_LOCAL_PE", "0")]), "{name}");
        }
    }

    #[test]
    fn without_a_launcher_pes_are_threads() {
        let found = decided(&[("RUSHMEM_PES", "3"), ("MASTER_ADDR", "node0")]).unwrap();
        assert!(matches!(found.way, LaunchMethod::Threads) && found.warning.is_none(), "{found:?}");
        assert!(matches!(decided(&[("RUSHMEM_TOKEN", TOKEN)]).unwrap().way, LaunchMethod::Threads));
    }

    #[test]
    fn a_launched_process_knows_its_place() {
        let all = [
            ("RUSHMEM_PE", "2"),
            ("RUSHMEM_N_PES", "4"),
            ("RUSHMEM_SERVER", "127.0.0.1:9"),
            ("RUSHMEM_TOKEN", TOKEN),
        ];
        let LaunchMethod::Rushmem(it) = decided(&[&all[..], &PMI].concat()).unwrap().way else {
            panic!("not ours")
        };
        assert_eq!((it.pe, it.n_pes, it.server.as_str(), it.retry), (2, 4, "127.0.0.1:9", false));
        assert_eq!(it.token, Token::from_hex(TOKEN).unwrap());
        let message = refused(&all[..2]);
        assert!(message.contains("RUSHMEM_SERVER, RUSHMEM_TOKEN missing"), "{message}");
        let message = refused(&[&all[..], &[("RUSHMEM_PES", "2")]].concat());
        assert!(message.contains("pes = 2"), "{message}");
    }

    #[test]
    fn an_id_needs_a_place() {
        let id = UniqueId::at("127.0.0.1:9".parse().unwrap()).unwrap();
        let text = id.to_hex();
        let all = [("RUSHMEM_ID", text.as_str()), ("RUSHMEM_PE", "1"), ("RUSHMEM_N_PES", "2")];
        let found = decided(&all).unwrap();
        assert!(matches!(found.way, LaunchMethod::Id { pe: 1, n_pes: 2, id: it } if it == id), "{found:?}");
        let message = refused(&all[..2]);
        assert!(message.contains("RUSHMEM_ID is set, and RUSHMEM_N_PES is not"), "{message}");
        let message = refused(&[&all[..], &[("RUSHMEM_SERVER", "h:1")]].concat());
        assert!(message.contains("RUSHMEM_SERVER and RUSHMEM_ID are both set"), "{message}");
    }

    #[test]
    fn launchers_are_known_by_their_variables() {
        let found = decided(&PMI).unwrap();
        let wanted = Pmi { version: Version::One, fd: 9, pe: 1, n_pes: 2, job: None };
        assert!(matches!(&found.way, LaunchMethod::Pmi(pmi) if *pmi == wanted), "{found:?}");
        assert_eq!(found.why, "PMI_FD is set: a launcher speaks PMI-1");
        let two = |extra| decided(&[&PMI[..], &[extra]].concat()).unwrap().way;
        for extra in [("SLURM_JOB_ID", "7"), ("RUSHMEM_BOOTSTRAP", "pmi2")] {
            assert!(matches!(two(extra), LaunchMethod::Pmi(Pmi { version: Version::Two, .. })), "{extra:?}");
        }
        assert!(matches!(decided(&PMIX).unwrap().way, LaunchMethod::Pmix));
        let LaunchMethod::Torchrun(torch) = decided(&TORCH).unwrap().way else { panic!("not torchrun") };
        assert_eq!((torch.pe, torch.n_pes, torch.local_pe, torch.local_pes), (3, 4, 1, 2));
        assert_eq!((torch.addr.as_str(), torch.port), ("node0", 29500));
    }

    #[test]
    fn half_of_a_launchers_variables_are_an_error_that_names_the_rest() {
        let message = refused(&TORCH[..4]);
        assert!(message.contains("RANK is set, and MASTER_ADDR, MASTER_PORT is not"), "{message}");
        assert!(refused(&PMI[1..]).contains("PMI_RANK is set, and PMI_FD is not"));
        assert!(refused(&PMIX[1..]).contains("PMIX_NAMESPACE is set, and PMIX_RANK is not"));
        assert!(refused(&[PMI[0], ("PMI_RANK", "x"), PMI[2]]).contains("PMI_RANK=x"));
        assert!(refused(&[PMI[0], ("PMI_RANK", "2"), PMI[2]]).contains("contradict"));
        let message = refused(&[&PMI[..], &[("RUSHMEM_PES", "2")]].concat());
        assert!(message.contains("pes = 2"), "{message}");
    }

    #[test]
    fn two_launchers_are_an_error_unless_a_setting_says_which() {
        let both = [&PMIX[..], &TORCH].concat();
        let message = refused(&both);
        assert!(message.contains("PMIX_RANK") && message.contains("RANK is set"), "{message}");
        assert!(message.contains("set RUSHMEM_BOOTSTRAP"), "{message}");
        let with = |kind| decided(&[&both[..], &[("RUSHMEM_BOOTSTRAP", kind)]].concat());
        assert!(matches!(with("pmix").unwrap().way, LaunchMethod::Pmix));
        let torch = with("torchrun").unwrap();
        assert!(matches!(torch.way, LaunchMethod::Torchrun(_)) && torch.why == "RUSHMEM_BOOTSTRAP=torchrun");
        assert!(matches!(with("threads").unwrap().way, LaunchMethod::Threads));
        for (kind, name) in
            [("rushmem", "RUSHMEM_SERVER"), ("id", "RUSHMEM_ID"), ("pmi1", "PMI_FD"), ("pmi2", "PMI_FD")]
        {
            let message = with(kind).unwrap_err().to_string();
            assert!(
                message.contains(&format!("RUSHMEM_BOOTSTRAP={kind}, but {name} is not set")),
                "{message}"
            );
        }
    }

    #[test]
    fn a_launcher_that_cannot_be_joined_is_noticed_once() {
        let warning =
            |rank| decided(&[("SLURM_PROCID", rank), ("SLURM_STEP_NUM_TASKS", "4")]).unwrap().warning;
        assert!(warning("0").unwrap().contains("srun --mpi=pmi2"));
        assert_eq!(warning("1"), None);
    }
}
