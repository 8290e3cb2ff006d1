//! Tells how this process was started, and connects it to its job accordingly.

use super::auth::Token;
use super::client::{Member, Tcp};
use super::error::Error;
use super::threads::Threads;
use crate::config::Config;

/// The PEs of a job that live in this process.
pub enum Job {
    /// This process is one PE, started by a launcher.
    Process(Tcp),
    /// This process is the whole job; one connection for each of its threads.
    Threads(Vec<Threads>),
}

/// What was found.
pub struct Found {
    /// The job.
    pub job: Job,
    /// One line for the user, if this looks like a job of another launcher, which we do not join yet: each of its
    /// processes is a job of its own. Only its first process has it, so that it is said once.
    pub warning: Option<String>,
}

/// Launchers that we know and do not join: name, and the variables of a process's number and of their count.
const FOREIGN: &[(&str, &str, &str)] = &[
    ("mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("mpirun (MVAPICH)", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("mpiexec (PMI)", "PMI_RANK", "PMI_SIZE"),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("torchrun", "RANK", "WORLD_SIZE"),
];

/// Joins the job that a launcher started this process for, or makes one of `config.pes` threads.
///
/// `build_id` is what this process was built from; all PEs of a job must have the same.
///
/// # Errors
///
/// [`Error::Launch`] if the launcher's variables are incomplete; else as [`Tcp::join`].
pub fn from_env(config: &Config, build_id: String) -> Result<Found, Error> {
    match member(config, build_id)? {
        Some(member) => Ok(Found { job: Job::Process(Tcp::join(member)?), warning: None }),
        None => {
            let job = Job::Threads(Threads::job(config.pes.get(), config.bootstrap_timeout));
            let warning = foreign(|name| std::env::var(name).ok());
            if let Some(warning) = &warning {
                tracing::warn!("{warning}");
            }
            Ok(Found { job, warning })
        }
    }
}

/// This process's place in a job, if a launcher gave it one.
fn member(config: &Config, build_id: String) -> Result<Option<Member>, Error> {
    let present = [
        ("RUSHMEM_PE", config.pe.is_some()),
        ("RUSHMEM_N_PES", config.n_pes.is_some()),
        ("RUSHMEM_BOOTSTRAP", config.bootstrap.is_some()),
        ("RUSHMEM_TOKEN", config.token.is_some()),
    ];
    let names = |wanted: bool| {
        let names = present.iter().filter(|(_, present)| *present == wanted).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    let (Some(pe), Some(n_pes), Some(server), Some(token)) =
        (config.pe, config.n_pes, &config.bootstrap, &config.token)
    else {
        // A token alone is what a user exports for a launcher of several nodes.
        if present.iter().all(|(name, present)| !present || *name == "RUSHMEM_TOKEN") {
            return Ok(None);
        }
        let why = format!(
            "of the variables that its launcher sets, {} are there and {} missing",
            names(true),
            names(false)
        );
        return Err(Error::Launch { why });
    };
    if config.pes.get() != 1 {
        let why = format!("pes = {} asks for several PEs as threads of it", config.pes);
        return Err(Error::Launch { why });
    }
    Ok(Some(Member {
        server: server.clone(),
        token: Token::from_hex(token.reveal())?,
        pe,
        n_pes: n_pes.get(),
        build_id,
        timeout: config.bootstrap_timeout,
        retry: config.nodes.is_some_and(|nodes| nodes.get() > 1),
    }))
}

fn foreign(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    FOREIGN.iter().find_map(|(launcher, rank, size)| {
        let rank: u64 = variable(rank)?.parse().ok()?;
        let size: u64 = variable(size)?.parse().ok()?;
        (size > 1 && rank == 0).then(|| {
            format!(
                "{size} processes started by {launcher} each run as a job of its own: rushmem does not join \
                 {launcher} yet; start the PEs with `rushmem run -n {size}`"
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(variables: &[(&str, &str)]) -> Config {
        Config::load_from(variables.iter().map(|(name, value)| (name.into(), value.into()))).unwrap()
    }

    #[test]
    fn without_a_launcher_pes_are_threads() {
        let found = from_env(&config(&[("RUSHMEM_PES", "3")]), "b".into()).unwrap();
        let Job::Threads(pes) = found.job else { panic!("not threads") };
        assert_eq!(pes.len(), 3);
    }

    #[test]
    fn a_launched_process_knows_its_place() {
        let token = "ab".repeat(32);
        let all = [
            ("RUSHMEM_PE", "2"),
            ("RUSHMEM_N_PES", "4"),
            ("RUSHMEM_BOOTSTRAP", "127.0.0.1:9"),
            ("RUSHMEM_TOKEN", &token),
        ];
        let member_of = |variables: &[(&str, &str)]| member(&config(variables), "b".into());
        let it = member_of(&all).unwrap().unwrap();
        assert_eq!((it.pe, it.n_pes, it.server.as_str(), it.retry), (2, 4, "127.0.0.1:9", false));
        assert_eq!(it.token, Token::from_hex(&token).unwrap());

        assert!(member_of(&all[3..]).unwrap().is_none());
        let message = member_of(&all[..2]).unwrap_err().to_string();
        assert!(message.contains("RUSHMEM_BOOTSTRAP, RUSHMEM_TOKEN missing"), "{message}");
        let message = member_of(&[&all[..], &[("RUSHMEM_PES", "2")]].concat()).unwrap_err().to_string();
        assert!(message.contains("pes = 2"), "{message}");
    }

    #[test]
    fn another_launcher_is_noticed_once() {
        let with = |rank: &'static str| {
            move |name: &str| match name {
                "PMI_RANK" => Some(rank.to_string()),
                "PMI_SIZE" => Some("4".to_string()),
                _ => None,
            }
        };
        assert!(foreign(with("0")).unwrap().contains("rushmem run -n 4"));
        assert_eq!(foreign(with("1")), None);
        assert_eq!(foreign(|_| None), None);
    }
}
