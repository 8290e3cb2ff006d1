//! The launch plan, derived from command line and settings: the program, the PEs of this node, and their variables.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use rushmem::bootstrap::Token;
use rushmem::config::{self, Config, Gpus, Switch};

use super::others::Others;
use super::output::Printer;
use super::share::NodeShare;
use super::{Args, find};
use crate::error::Error;

pub(super) struct Plan {
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    /// Settings for all PEs, as environment variables.
    pub(super) variables: BTreeMap<&'static str, String>,
    /// Whether the PEs are threads or processes.
    pub(super) mode: LaunchMode,
    pub(super) label: bool,
    /// Whether the communication sanitizer watches the PEs.
    pub(super) is_sanitized: bool,
    /// Whether the user has set the setting `progress`.
    pub(super) progress_is_set: bool,
    pub(super) timeout: Option<Duration>,
    /// File for the timeline of the job, if the user wants one.
    pub(super) trace: Option<PathBuf>,
    /// How long to wait for the launchers of other nodes.
    pub(super) bootstrap_timeout: Duration,
    /// Time without a sign of life after which a PE of a job with live membership is lost.
    pub(super) heartbeat: Option<Duration>,
    /// How many lost processes may be restarted.
    pub(super) respawn: u32,
    /// How many PEs, the last ones, are vacant after the start.
    pub(super) vacant_pes: u32,
    /// Number of GPUs that the PEs of a node use, if not all.
    pub(super) gpus: Option<u32>,
    /// The other nodes, if this launcher starts them.
    pub(super) others: Option<Others>,
}

pub(super) enum LaunchMode {
    /// PEs are threads of one process.
    Threads,
    /// Each PE is a process.
    Processes(NodeShare),
}

impl Plan {
    pub(super) fn new(args: Args, mut config: Config) -> Result<Plan, Error> {
        let variables = variables(&args, &mut config)?;
        let threads = has_threads(&args);
        if threads && (args.timeout.is_some() || args.no_label) {
            return Err(Error::Usage(
                "--timeout and --no-label need PEs that are processes; add --processes, or leave them out"
                    .into(),
            ));
        }
        let (mode, others) = if threads { (LaunchMode::Threads, None) } else { processes(&args, &config)? };
        if !threads && config.pes.get() != 1 {
            return Err(Error::Usage(format!(
                "the setting pes = {} needs PEs that are threads; remove the setting, or add --threads",
                config.pes
            )));
        }
        let beside = std::env::current_exe().ok().and_then(|path| path.parent().map(PathBuf::from));
        let mut command = args.command.into_iter();
        let program = command.next().ok_or_else(|| Error::Internal("no program after parsing".into()))?;
        let program = match mode {
            // Each host searches for the program, and this one runs no PE.
            LaunchMode::Processes(NodeShare { count: 0, .. }) => program.into(),
            _ => {
                let choice = find::find(&program, std::env::var_os("PATH"), beside.as_deref())?;
                if let Some(ambiguity) = choice.ambiguity() {
                    eprintln!("rushmem: {ambiguity}");
                }
                choice.program
            }
        };
        Ok(Plan {
            program,
            args: command.collect(),
            progress_is_set: !config.is_default("progress"),
            variables,
            mode,
            label: !args.no_label,
            is_sanitized: config.sanitize == Switch::On,
            timeout: args.timeout,
            trace: Some(config.trace).filter(|file| !file.is_empty()).map(PathBuf::from),
            bootstrap_timeout: config.bootstrap_timeout,
            heartbeat: config.heartbeat.0,
            respawn: args.respawn,
            vacant_pes: config.vacant_pes,
            gpus: count(&config.gpus),
            others,
        })
    }

    /// Returns the variable that makes PE `pe` draw a progress bar, if it is the one whose bar is shown.
    pub(super) fn progress(&self, pe: u32, printer: &Printer) -> Option<(&'static str, &'static str)> {
        let draws = pe == 0 && printer.shows_progress() && !self.progress_is_set;
        draws.then_some(("RUSHMEM_PROGRESS", "always"))
    }
}

/// Returns over how many GPUs PEs would be spread evenly if each had as many as the one with the most. `None` stands for all GPUs
/// of a node.
fn count(gpus: &Gpus) -> Option<u32> {
    let Gpus::List(list) = gpus else { return None };
    let most = list.iter().map(|gpu| list.iter().filter(|other| *other == gpu).count()).max();
    Some((list.len() / most.unwrap_or(1)) as u32)
}

/// Returns the PEs of this node, and the other nodes if this launcher starts them.
fn processes(args: &Args, config: &Config) -> Result<(LaunchMode, Option<Others>), Error> {
    let own = share(args, config)?;
    if args.hosts.is_none() && args.hostfile.is_none() {
        if args.ssh.is_some() {
            return Err(Error::Usage("--ssh needs --hosts or --hostfile".into()));
        }
        return Ok((LaunchMode::Processes(own), None));
    }
    let (own, others) = Others::new(args, config, &own)?;
    Ok((LaunchMode::Processes(own), Some(others)))
}

/// Returns whether the PEs are threads of one process.
fn has_threads(args: &Args) -> bool {
    args.threads || (args.sanitize && !args.processes)
}

/// Applies the settings on the command line to `config`, and returns them as environment variables.
fn variables(args: &Args, config: &mut Config) -> Result<BTreeMap<&'static str, String>, Error> {
    let mut settings: Vec<(&str, &str, &str)> = Vec::new();
    let pes = args.pes.to_string();
    if has_threads(args) {
        settings.push(("pes", &pes, "-n"));
    }
    if args.sanitize {
        settings.extend([("device", "native", "--sanitize"), ("sanitize", "on", "--sanitize")]);
    }
    match args.gpus.as_deref() {
        None => {}
        Some("none") => {
            settings.extend([("device", "native", "--gpus none"), ("gpus", "auto", "--gpus none")])
        }
        Some("auto") => settings.push(("gpus", "auto", "--gpus auto")),
        Some(list) => settings.extend([("device", "gpu", "--gpus"), ("gpus", list, "--gpus")]),
    }
    settings.extend(args.nic.as_deref().map(|nic| ("nic", nic, "--nic")));
    for pair in &args.set {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Error::Usage(format!(
                "--set {pair}: write it as KEY=VALUE, such as --set heap_bytes=256MiB"
            )));
        };
        settings.push((key.trim(), value.trim(), "--set"));
    }
    let mut variables = BTreeMap::new();
    for (key, value, place) in settings {
        let name = config::variable_for(key, value, place)?;
        config.set(key, value)?;
        variables.insert(name, value.to_string());
    }
    config.check()?;
    Ok(variables)
}

fn share(args: &Args, config: &Config) -> Result<NodeShare, Error> {
    let (n_pes, nodes, node) = (args.pes, args.nodes, args.node.unwrap_or(0));
    if node >= nodes {
        return Err(Error::Usage(format!(
            "--node {node}: nodes are numbered from 0, and --nodes says {nodes}"
        )));
    }
    if n_pes < nodes {
        return Err(Error::Usage(format!("{n_pes} PEs cannot be spread over {nodes} nodes; raise -n")));
    }
    let bound = |node: u32| (u64::from(n_pes) * u64::from(node) / u64::from(nodes)) as u32;
    let (first, next) = (bound(node), bound(node + 1));
    let rendezvous = if nodes > 1 { args.rendezvous.clone() } else { None };
    let token = match (&args.token_file, &config.token) {
        (Some(path), _) => {
            let unreadable =
                |error| Error::Environment(format!("cannot read --token-file {}: {error}", path.display()));
            Token::from_hex(&std::fs::read_to_string(path).map_err(unreadable)?)?
        }
        (None, Some(token)) if nodes > 1 => Token::from_hex(token.reveal())?,
        (None, None) if nodes > 1 => {
            return Err(Error::Usage(
                "a job with several nodes needs the same token on each node; put 64 hexadecimal digits \
                 (openssl rand -hex 32) into RUSHMEM_TOKEN or a --token-file"
                    .into(),
            ));
        }
        (None, _) => Token::generate()?,
    };
    Ok(NodeShare { n_pes, first, count: next - first, node, nodes, rendezvous, token })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::run::share::launch_variables;

    #[derive(Parser)]
    struct TestCli {
        #[command(flatten)]
        args: Args,
    }

    fn plan(line: &str) -> Result<Plan, String> {
        let line = TestCli::try_parse_from(std::iter::once("run").chain(line.split(' ')));
        let args = line.map_err(|error| error.to_string())?.args;
        Plan::new(args, Config::default()).map_err(|error| error.to_string())
    }

    fn share_of(line: &str) -> NodeShare {
        match plan(line).unwrap().mode {
            LaunchMode::Processes(share) => share,
            LaunchMode::Threads => panic!("threads"),
        }
    }

    #[test]
    fn nodes_split_all_pes_in_order() {
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), "ab".repeat(32)).unwrap();
        for (n, nodes) in [(4, 2), (5, 2), (7, 3), (3, 3), (1, 1)] {
            let mut next = 0;
            for node in 0..nodes {
                let token = token.path().display();
                let share = share_of(&format!(
                    "-n {n} --nodes {nodes} --node {node} --rendezvous h:1 --token-file {token} sh"
                ));
                assert_eq!(share.first, next);
                assert!(share.count >= 1);
                next += share.count;
            }
            assert_eq!(next, n);
        }
    }

    #[test]
    fn rejects_invalid_command_lines() {
        for (line, words) in [
            ("-n 0 sh", "0 is not in 1.."),
            ("-n 2", "required"),
            ("-n 2 --bogus sh", "--bogus"),
            ("-n 2 --nodes 2 sh", "--node <K>"),
            ("-n 4 --nodes 2 --node 2 --rendezvous h:1 sh", "nodes are numbered from 0"),
            ("-n 1 --nodes 2 --node 0 --rendezvous h:1 sh", "cannot be spread"),
            ("-n 4 --nodes 2 --node 0 --rendezvous h:1 sh", "RUSHMEM_TOKEN"),
            ("-n 2 --set heap_bytes sh", "KEY=VALUE"),
            ("-n 2 --set heap_bites=1g sh", "`heap_bytes`"),
            ("-n 2 --set sq_depth=3 sh", "power of two"),
            ("-n 2 --set pe=1 sh", "set by the launcher"),
            ("-n 2 --set pes=2 sh", "--threads"),
            ("-n 2 --gpus x sh", "ordinals"),
            ("-n 2 --nic hard sh", "auto, soft"),
            ("-n 2 --gpus none --set heap=device sh", "heap"),
            ("-n 2 --timeout 5 sh", "unit"),
            ("-n 2 --threads --timeout 5s sh", "--timeout"),
            ("-n 2 --sanitize --set peer_path=nic sh", "peer_path = p2p"),
            ("-n 2 --json sh", "--sanitize"),
            ("-n 2 --processes sh", "--sanitize"),
            ("-n 2 --sanitize --no-label sh", "add --processes"),
            ("-n 4 --sanitize --processes --nodes 2 --node 0 --rendezvous h:1 sh", "--sanitize"),
            ("-n 2 no-such-program-anywhere", "looked in"),
            ("-n 9 --hosts localhost:8 sh", "9 PEs do not fit"),
            ("-n 2 --hosts localhost,127.0.0.1 sh", "`127.0.0.1` is this machine, which is listed twice"),
            ("-n 2 --hosts localhost:x sh", "`localhost:x`"),
            ("-n 2 --hosts localhost:2 --nodes 2 --node 0 --rendezvous h:1 sh", "--hosts"),
            ("-n 2 --hosts localhost:2 --threads sh", "--hosts"),
            ("-n 2 --hosts localhost:2 --ssh= sh", "--ssh is empty"),
            ("-n 2 --ssh rsh sh", "--ssh needs --hosts"),
            ("-n 2 --hostfile /no/such sh", "/no/such"),
        ] {
            let message = plan(line).err().unwrap_or_else(|| panic!("{line} was accepted"));
            assert!(message.contains(words), "{line}: {message}");
        }
    }

    #[test]
    fn hosts_get_pes_in_order() {
        let plan = plan("-n 6 --hosts no-such-host:3,localhost:2,user@localhost:8 sh").unwrap();
        let LaunchMode::Processes(own) = plan.mode else { panic!("threads") };
        assert_eq!((own.first, own.count, own.node, own.nodes), (3, 2, 1, 3));
        let others = plan.others.unwrap().nodes;
        let others: Vec<_> =
            others.iter().map(|(host, it)| (host.as_str(), it.first, it.count, it.node)).collect();
        assert_eq!(others, [("no-such-host", 0, 3, 0), ("user@localhost", 5, 1, 2)]);
    }

    #[test]
    fn settings_become_variables() {
        let plan = plan("-n 3 --threads --gpus 0,1 --nic soft --set heap_bytes=1g sh -c true").unwrap();
        let variables: Vec<_> =
            plan.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            variables,
            [
                "RUSHMEM_DEVICE=gpu",
                "RUSHMEM_GPUS=0,1",
                "RUSHMEM_HEAP_BYTES=1g",
                "RUSHMEM_NIC=soft",
                "RUSHMEM_PES=3"
            ]
        );
        assert_eq!(plan.args, ["-c", "true"]);
        assert!(matches!(plan.mode, LaunchMode::Threads));
    }

    #[test]
    fn sanitizer_observes_threads_or_processes() {
        let threads = plan("-n 3 --sanitize sh").unwrap();
        assert!(matches!(threads.mode, LaunchMode::Threads) && threads.is_sanitized);
        assert_eq!(threads.variables["RUSHMEM_PES"], "3");
        assert_eq!(share_of("-n 3 --sanitize --processes --timeout 5s sh").count, 3);
        let processes = plan("-n 3 --sanitize --processes sh").unwrap();
        assert_eq!(processes.variables["RUSHMEM_SANITIZE"], "on");
        assert!(processes.is_sanitized && !processes.variables.contains_key("RUSHMEM_PES"));
        assert!(!plan("-n 3 sh").unwrap().is_sanitized);
    }

    #[test]
    fn sets_every_launcher_variable() {
        let names: Vec<_> =
            share_of("-n 2 sh").variables_of(1, "h:1").into_iter().map(|(name, _)| name).collect();
        // An ID is only for PEs without a launcher.
        let all = launch_variables().filter(|name| *name != "RUSHMEM_ID");
        assert_eq!(names, all.collect::<Vec<_>>());
    }

    #[test]
    fn counts_gpus_by_the_one_with_most_pes() {
        let list = |gpus: &[u32]| count(&Gpus::List(gpus.to_vec()));
        assert_eq!([list(&[0]), list(&[3, 1]), list(&[0, 0, 1])], [Some(1), Some(2), Some(1)]);
        assert_eq!(count(&Gpus::Auto), None);
    }
}
