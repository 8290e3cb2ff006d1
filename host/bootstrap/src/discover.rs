//! Decides how this process was started, from the settings and the environment variables. Opens no connection.
//!
//! `connect` calls [`decide`] once and acts on the decision.

use crate::auth::Token;
use crate::client::Member;
use crate::error::Error;
use crate::id::UniqueId;
use crate::launcher::pmi::{Pmi, Version};
use crate::launcher::torchrun::Torchrun;
use rushmem_config::{BootstrapKind, Config};

/// A way to start the PEs of a job and to connect them.
#[derive(Clone, Debug)]
pub(crate) enum LaunchMethod {
    /// The PEs are threads of this process.
    Threads,
    /// `rushmem run` started the processes.
    Rushmem(Box<Member>),
    /// The user gave each process a unique ID and a PE number.
    Id { id: UniqueId, pe: u32, n_pes: u32 },
    /// A launcher that speaks PMI-1 or PMI-2 started the processes.
    Pmi(Pmi),
    /// A launcher that speaks PMIx started the processes.
    Pmix,
    /// PyTorch's `torchrun` started the processes.
    Torchrun(Torchrun),
}

/// How this process joins its job, and why: the result of [`decide`].
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) method: LaunchMethod,
    pub(crate) why: String,
}

/// Looks up an environment variable by name.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Launchers that offer their processes no way to exchange data: name, variable with the rank, variable with the number
/// of ranks, and advice for the user.
const UNSUPPORTED: &[(&str, &str, &str)] = &[
    ("mpirun (MVAPICH)", "MV2_COMM_WORLD_SIZE", "use `mpiexec` of its Hydra"),
    ("srun", "SLURM_STEP_NUM_TASKS", "use `srun --mpi=pmi2` or `srun --mpi=pmix`"),
];

/// The environment variables that torchrun sets for each process.
const TORCHRUN: [&str; 6] =
    ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];

/// Variables with the local rank of a process, as set by torchrun, Open MPI, Hydra, MVAPICH and Slurm.
const LOCAL_RANKS: [&str; 5] = [
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
];

/// Variables with the number of processes on this node and in the job, as set by Open MPI, Hydra and MVAPICH.
const SIZES: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"),
    ("MPI_LOCALNRANKS", "PMI_SIZE"),
    ("MV2_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_SIZE"),
];

/// Returns whether the launcher says that all processes of the job are on this node.
pub(crate) fn is_on_one_node(variables: Variables) -> bool {
    let all_here =
        |(here, all): &(&str, &str)| variables(here).is_some_and(|here| variables(all) == Some(here));
    SIZES.iter().any(all_here) || variables("SLURM_STEP_NUM_NODES").is_some_and(|nodes| nodes == "1")
}

/// Returns whether this process has local rank 0, or no launcher gave it a local rank.
pub(crate) fn is_first_on_node(config: &Config, variables: Variables) -> bool {
    if let Some(local_pe) = config.local_pe {
        return local_pe == 0;
    }
    let number = |name: &&str| variables(name)?.parse().ok();
    LOCAL_RANKS.iter().filter_map(number).all(|local: u32| local == 0)
}

/// Variables with the number of processes under a launcher that speaks PMIx: Open MPI and Slurm.
const PMIX_SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"];

/// Returns the number of PEs of the job, or `None` if neither a setting nor a launcher's variable contains it.
///
/// # Errors
///
/// - The errors of [`decide`].
pub(crate) fn n_pes(config: &Config, variables: Variables) -> Result<Option<u32>, Error> {
    Ok(match decide(config, "", variables)?.method {
        LaunchMethod::Threads => Some(config.pes.get()),
        LaunchMethod::Rushmem(member) => Some(member.n_pes),
        LaunchMethod::Id { n_pes, .. } => Some(n_pes),
        LaunchMethod::Pmi(pmi) => Some(pmi.n_pes),
        LaunchMethod::Torchrun(torchrun) => Some(torchrun.n_pes),
        LaunchMethod::Pmix => PMIX_SIZES.iter().find_map(|name| variables(name)?.parse().ok()),
    })
}

/// Decides how the PEs connect, from the settings and the environment variables of this process.
///
/// # Errors
///
/// - [`Error::Launch`]: the variables are incomplete, contradict each other or belong to several launchers.
/// - [`Error::NotStarted`]: the setting `bootstrap` names a launcher that did not start this process.
/// - [`Error::Token`]: the token is invalid.
pub(crate) fn decide(config: &Config, build_id: &str, variables: Variables) -> Result<Decision, Error> {
    let kind = config.bootstrap;
    let requested = |method| {
        let why = format!("RUSHMEM_BOOTSTRAP={kind}");
        Ok(Decision { method, why })
    };
    let missing = |why: &str| Error::NotStarted { kind, why: why.into() };
    match kind {
        BootstrapKind::Auto => auto(config, build_id, variables),
        BootstrapKind::Threads => requested(LaunchMethod::Threads),
        BootstrapKind::Rushmem => match from_settings(config, build_id)? {
            Some((method @ LaunchMethod::Rushmem(_), _)) => requested(method),
            _ => Err(missing("RUSHMEM_SERVER is not set: start the PEs with `rushmem run`")),
        },
        BootstrapKind::Id => match from_settings(config, build_id)? {
            Some((method @ LaunchMethod::Id { .. }, _)) => requested(method),
            _ => {
                Err(missing("RUSHMEM_ID is not set: create an id with `rushmem id`, and give it to every PE"))
            }
        },
        BootstrapKind::Pmi1 | BootstrapKind::Pmi2 => match pmi(variables, Some(kind))? {
            Some((method, _)) => requested(method),
            None => Err(missing("PMI_FD is not set: the launcher does not speak PMI")),
        },
        BootstrapKind::Pmix => match pmix(variables)? {
            Some((method, _)) => requested(method),
            None => Err(missing("PMIX_RANK is not set: the launcher does not speak PMIx")),
        },
        BootstrapKind::Torchrun => match torchrun(variables)? {
            Some((method, _)) => requested(method),
            None => Err(missing("RANK is not set: torchrun did not start this process")),
        },
    }
}

/// Decides by the variables that are set. Rushmem's own variables take precedence, since somebody set them
/// deliberately. Of the other launchers, only one may have set variables.
fn auto(config: &Config, build_id: &str, variables: Variables) -> Result<Decision, Error> {
    if let Some((method, why)) = from_settings(config, build_id)? {
        return Ok(Decision { method, why });
    }
    let mut found: Vec<(LaunchMethod, String)> =
        [pmi(variables, None)?, pmix(variables)?, torchrun(variables)?].into_iter().flatten().collect();
    match found.len() {
        0 => match unsupported_launcher(variables) {
            Some(why) => Err(Error::Launch { why }),
            None => {
                let why = "no launcher has set variables".into();
                Ok(Decision { method: LaunchMethod::Threads, why })
            }
        },
        1 => {
            let (method, why) = found.remove(0);
            if config.pes.get() != 1 {
                let why = format!(
                    "{why}, and pes = {} asks for PEs as threads; unset pes, or set RUSHMEM_BOOTSTRAP=threads to make \
                     each process a job of its own",
                    config.pes
                );
                return Err(Error::Launch { why });
            }
            Ok(Decision { method, why })
        }
        _ => {
            let all: Vec<_> = found.iter().map(|(_, why)| why.as_str()).collect();
            let why = format!("{}; set RUSHMEM_BOOTSTRAP to the right one", all.join(", and "));
            Err(Error::Launch { why })
        }
    }
}

/// Returns the launch method selected by Rushmem's own variables, if any of them is set.
fn from_settings(config: &Config, build_id: &str) -> Result<Option<(LaunchMethod, String)>, Error> {
    let fail = |why: String| Err(Error::Launch { why });
    let set = |name: &'static str, set: bool| if set { Some(name) } else { None };
    let variables = [
        ("RUSHMEM_PE", config.pe.is_some()),
        ("RUSHMEM_N_PES", config.n_pes.is_some()),
        ("RUSHMEM_SERVER", config.server.is_some()),
        ("RUSHMEM_TOKEN", config.token.is_some()),
    ];
    // The token does not count: users export it alone for launchers that run several nodes.
    let started = variables[..3].iter().any(|(_, is_set)| *is_set) || config.id.is_some();
    if !started {
        return Ok(None);
    }
    if config.pes.get() != 1 {
        return fail(format!(
            "the variables of Rushmem make this process one PE, and pes = {} asks for PEs as threads; unset pes",
            config.pes
        ));
    }
    match (config.pe, config.n_pes, &config.server, &config.id, &config.token) {
        (_, _, Some(_), Some(_), _) => fail("RUSHMEM_SERVER and RUSHMEM_ID are both set; unset one".into()),
        (Some(pe), Some(n_pes), None, Some(id), _) => {
            let method = LaunchMethod::Id { id: (*id).into(), pe, n_pes: n_pes.get() };
            Ok(Some((method, "RUSHMEM_ID is set".into())))
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
            Ok(Some((LaunchMethod::Rushmem(Box::new(member)), "`rushmem run` set RUSHMEM_SERVER".into())))
        }
        (_, _, None, Some(_), _) => {
            let missing: Vec<_> =
                variables[..2].iter().filter_map(|(name, is_set)| set(name, !*is_set)).collect();
            let are = if missing.len() == 1 { "is" } else { "are" };
            fail(format!("RUSHMEM_ID is set, but {} {are} not: give each PE its number", missing.join(", ")))
        }
        _ => {
            let names =
                |wanted| variables.iter().filter_map(move |(name, is_set)| set(name, *is_set == wanted));
            fail(format!(
                "of the variables of `rushmem run`, {} are set and {} missing; start the PEs with `rushmem run`, or \
                 set RUSHMEM_ID for a job without launcher",
                names(true).collect::<Vec<_>>().join(", "),
                names(false).collect::<Vec<_>>().join(", ")
            ))
        }
    }
}

/// Reads the variables of a launcher that speaks PMI. The version is 2 if `kind` says so, or if the launcher is Slurm.
fn pmi(variables: Variables, kind: Option<BootstrapKind>) -> Result<Option<(LaunchMethod, String)>, Error> {
    const NAMES: [&str; 3] = ["PMI_FD", "PMI_RANK", "PMI_SIZE"];
    let Some(values) = all_values(variables, &NAMES, &NAMES)? else { return Ok(None) };
    let version = match kind {
        Some(BootstrapKind::Pmi1) => Version::One,
        Some(BootstrapKind::Pmi2) => Version::Two,
        _ if variables("SLURM_JOB_ID").is_some() => Version::Two,
        _ => Version::One,
    };
    let fd = number("PMI_FD", &values[0])?;
    let (pe, n_pes) = (number("PMI_RANK", &values[1])?, number("PMI_SIZE", &values[2])?);
    check_position(("PMI_RANK", pe), ("PMI_SIZE", n_pes))?;
    let why = format!("PMI_FD is set: a launcher speaks PMI-{}", if version == Version::One { 1 } else { 2 });
    let job = variables("PMI_JOBID");
    Ok(Some((LaunchMethod::Pmi(Pmi { version, fd, pe, n_pes, job }), why)))
}

fn pmix(variables: Variables) -> Result<Option<(LaunchMethod, String)>, Error> {
    const NAMES: [&str; 2] = ["PMIX_RANK", "PMIX_NAMESPACE"];
    let found = all_values(variables, &NAMES, &NAMES)?;
    Ok(found.map(|_| (LaunchMethod::Pmix, "PMIX_RANK is set: a launcher speaks PMIx".into())))
}

fn torchrun(variables: Variables) -> Result<Option<(LaunchMethod, String)>, Error> {
    // The address variables do not count: users may export them alone, for all their jobs.
    let Some(values) = all_values(variables, &TORCHRUN[..2], &TORCHRUN)? else { return Ok(None) };
    let at = |i: usize| number(TORCHRUN[i], &values[i]);
    let (pe, n_pes, local_pe, local_pes) = (at(0)?, at(1)?, at(2)?, at(3)?);
    check_position(("RANK", pe), ("WORLD_SIZE", n_pes))?;
    check_position(("LOCAL_RANK", local_pe), ("LOCAL_WORLD_SIZE", local_pes))?;
    let port = number("MASTER_PORT", &values[5])?;
    let id = variables("TORCHELASTIC_RUN_ID").unwrap_or_default();
    let restart = variables("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
    let (addr, run) = (values[4].clone(), format!("{id} {restart}"));
    let method = LaunchMethod::Torchrun(Torchrun { pe, n_pes, local_pe, local_pes, addr, port, run });
    Ok(Some((method, "RANK is set: torchrun started this process".into())))
}

/// Returns the values of all variables in `names`, or `None` if no variable in `signs` is set. Fails if a launcher left
/// its mark (one of `signs`) but one of `names` is missing.
fn all_values(variables: Variables, signs: &[&str], names: &[&str]) -> Result<Option<Vec<String>>, Error> {
    let Some(sign) = signs.iter().find(|name| variables(name).is_some()) else { return Ok(None) };
    let missing: Vec<_> = names.iter().filter(|name| variables(name).is_none()).copied().collect();
    if missing.is_empty() {
        return Ok(Some(names.iter().filter_map(|name| variables(name)).collect()));
    }
    let (are, them) = if missing.len() == 1 { ("is", "it") } else { ("are", "them") };
    let why = format!(
        "{sign} is set, but {} {are} not; set {them}, or RUSHMEM_BOOTSTRAP=threads if this process is a job of its own",
        missing.join(", ")
    );
    Err(Error::Launch { why })
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| Error::Launch { why: format!("{name}={text} is not a valid number") })
}

fn check_position((pe_name, pe): (&str, u32), (size_name, size): (&str, u32)) -> Result<(), Error> {
    match pe < size {
        true => Ok(()),
        false => {
            let why = format!("{pe_name}={pe} and {size_name}={size} contradict each other");
            Err(Error::Launch { why })
        }
    }
}

/// Returns why this process cannot join a job, if it was started by a launcher without means of exchange.
fn unsupported_launcher(variables: Variables) -> Option<String> {
    UNSUPPORTED.iter().find_map(|(launcher, size, advice)| {
        let size: u64 = variables(size)?.parse().ok()?;
        (size > 1).then(|| {
            format!(
                "{launcher} offers its {size} processes no way to exchange addresses: {advice}, start the PEs with \
                 `rushmem run -n {size}`, or set RUSHMEM_BOOTSTRAP=threads to make each process a job of its own"
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

    /// Calls `f` with the settings among these variables, and with a lookup of all of them.
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
    fn local_rank_0_is_first_on_its_node() {
        let first = |variables: &[(&str, &str)]| with(variables, is_first_on_node);
        assert!(first(&[]));
        assert!(first(&[("SLURM_LOCALID", "0")]));
        // Another launcher runs inside a Slurm script.
        assert!(!first(&[("SLURM_LOCALID", "0"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")]));
        for name in LOCAL_RANKS {
            assert!(!first(&[(name, "2")]), "{name}");
            // The variable of `rushmem run` takes precedence.
            assert!(first(&[(name, "2"), ("RUSHMEM_LOCAL_PE", "0")]), "{name}");
        }
    }

    #[test]
    fn reads_the_number_of_pes_from_launchers() {
        let told = |variables: &[(&str, &str)]| with(variables, |config, look| n_pes(config, look).unwrap());
        assert_eq!((told(&[]), told(&[("RUSHMEM_PES", "3")])), (Some(1), Some(3)));
        assert_eq!((told(&PMI), told(&TORCH), told(&PMIX)), (Some(2), Some(4), None));
        for name in PMIX_SIZES {
            assert_eq!(told(&[PMIX[0], PMIX[1], (name, "5")]), Some(5), "{name}");
        }
    }

    #[test]
    fn without_a_launcher_pes_are_threads() {
        let found = decided(&[("RUSHMEM_PES", "3"), ("MASTER_ADDR", "node0")]).unwrap();
        assert!(matches!(found.method, LaunchMethod::Threads), "{found:?}");
        assert!(matches!(decided(&[("RUSHMEM_TOKEN", TOKEN)]).unwrap().method, LaunchMethod::Threads));
    }

    #[test]
    fn reads_the_variables_of_rushmem_run() {
        let all = [
            ("RUSHMEM_PE", "2"),
            ("RUSHMEM_N_PES", "4"),
            ("RUSHMEM_SERVER", "127.0.0.1:9"),
            ("RUSHMEM_TOKEN", TOKEN),
        ];
        let LaunchMethod::Rushmem(it) = decided(&[&all[..], &PMI].concat()).unwrap().method else {
            panic!("not `rushmem run`")
        };
        assert_eq!((it.pe, it.n_pes, it.server.as_str(), it.retry), (2, 4, "127.0.0.1:9", false));
        assert_eq!(it.token, Token::from_hex(TOKEN).unwrap());
        let message = refused(&all[..2]);
        assert!(message.contains("RUSHMEM_SERVER, RUSHMEM_TOKEN missing"), "{message}");
        let message = refused(&[&all[..], &[("RUSHMEM_PES", "2")]].concat());
        assert!(message.contains("pes = 2"), "{message}");
    }

    #[test]
    fn id_requires_a_pe_number() {
        let id = UniqueId::at("127.0.0.1:9".parse().unwrap()).unwrap();
        let text = id.to_hex();
        let all = [("RUSHMEM_ID", text.as_str()), ("RUSHMEM_PE", "1"), ("RUSHMEM_N_PES", "2")];
        let found = decided(&all).unwrap();
        assert!(
            matches!(found.method, LaunchMethod::Id { pe: 1, n_pes: 2, id: it } if it == id),
            "{found:?}"
        );
        let message = refused(&all[..2]);
        assert!(message.contains("RUSHMEM_ID is set, but RUSHMEM_N_PES is not"), "{message}");
        let message = refused(&[&all[..], &[("RUSHMEM_SERVER", "h:1")]].concat());
        assert!(message.contains("RUSHMEM_SERVER and RUSHMEM_ID are both set"), "{message}");
    }

    #[test]
    fn recognizes_launchers_by_their_variables() {
        let found = decided(&PMI).unwrap();
        let wanted = Pmi { version: Version::One, fd: 9, pe: 1, n_pes: 2, job: None };
        assert!(matches!(&found.method, LaunchMethod::Pmi(pmi) if *pmi == wanted), "{found:?}");
        assert_eq!(found.why, "PMI_FD is set: a launcher speaks PMI-1");
        let two = |extra| decided(&[&PMI[..], &[extra]].concat()).unwrap().method;
        for extra in [("SLURM_JOB_ID", "7"), ("RUSHMEM_BOOTSTRAP", "pmi2")] {
            assert!(matches!(two(extra), LaunchMethod::Pmi(Pmi { version: Version::Two, .. })), "{extra:?}");
        }
        assert!(matches!(decided(&PMIX).unwrap().method, LaunchMethod::Pmix));
        let LaunchMethod::Torchrun(torch) = decided(&TORCH).unwrap().method else { panic!("not torchrun") };
        assert_eq!((torch.pe, torch.n_pes, torch.local_pe, torch.local_pes), (3, 4, 1, 2));
        assert_eq!((torch.addr.as_str(), torch.port), ("node0", 29500));
    }

    #[test]
    fn names_the_missing_variables_of_a_launcher() {
        let message = refused(&TORCH[..4]);
        assert!(message.contains("RANK is set, but MASTER_ADDR, MASTER_PORT are not"), "{message}");
        assert!(refused(&PMI[1..]).contains("PMI_RANK is set, but PMI_FD is not"));
        assert!(refused(&PMIX[1..]).contains("PMIX_NAMESPACE is set, but PMIX_RANK is not"));
        assert!(refused(&[PMI[0], ("PMI_RANK", "x"), PMI[2]]).contains("PMI_RANK=x"));
        assert!(refused(&[PMI[0], ("PMI_RANK", "2"), PMI[2]]).contains("contradict"));
        let message = refused(&[&PMI[..], &[("RUSHMEM_PES", "2")]].concat());
        assert!(message.contains("pes = 2"), "{message}");
    }

    #[test]
    fn rejects_two_launchers_without_a_setting() {
        let both = [&PMIX[..], &TORCH].concat();
        let message = refused(&both);
        assert!(message.contains("PMIX_RANK") && message.contains("RANK is set"), "{message}");
        assert!(message.contains("set RUSHMEM_BOOTSTRAP"), "{message}");
        let with = |kind| decided(&[&both[..], &[("RUSHMEM_BOOTSTRAP", kind)]].concat());
        assert!(matches!(with("pmix").unwrap().method, LaunchMethod::Pmix));
        let torch = with("torchrun").unwrap();
        assert!(
            matches!(torch.method, LaunchMethod::Torchrun(_)) && torch.why == "RUSHMEM_BOOTSTRAP=torchrun"
        );
        assert!(matches!(with("threads").unwrap().method, LaunchMethod::Threads));
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
    fn launchers_tell_whether_all_processes_are_on_one_node() {
        let on_one = |variables: &[(&str, &str)]| with(variables, |_, look| is_on_one_node(look));
        assert!(on_one(&[("MPI_LOCALNRANKS", "2"), ("PMI_SIZE", "2")]));
        assert!(on_one(&[("SLURM_STEP_NUM_NODES", "1")]));
        for several in [
            &[("OMPI_COMM_WORLD_LOCAL_SIZE", "2"), ("OMPI_COMM_WORLD_SIZE", "4")][..],
            &[("PMI_SIZE", "2")],
            &[("SLURM_STEP_NUM_NODES", "2")],
        ] {
            assert!(!on_one(several), "{several:?}");
        }
    }

    #[test]
    fn a_launcher_without_exchange_is_an_error_unless_threads_are_requested() {
        let (one, several) = (("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_STEP_NUM_TASKS", "4"));
        assert!(refused(&[several]).contains("srun --mpi=pmi2"));
        for variables in [vec![one], vec![several, ("RUSHMEM_BOOTSTRAP", "threads")]] {
            assert!(matches!(decided(&variables).unwrap().method, LaunchMethod::Threads));
        }
    }
}
