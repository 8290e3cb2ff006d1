//! The command `rushmem run`, which starts a program as the PEs of a job.

mod event;
mod find;
mod folded;
mod hosts;
mod job;
mod limits;
mod listeners;
mod nodes;
mod others;
mod output;
mod pe;
mod plan;
mod sanitize;
mod share;
mod spawn;
mod sys;
mod timeline;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rushmem::config::{Config, parse_duration};

use crate::error::Error;

pub(crate) use self::nodes::agent;
use self::plan::{LaunchMode, Plan};

/// Start a program as the PEs of one job
///
/// The program is a path, or a name that is searched in the directory of this command and on PATH; if several programs
/// have the name, says which one is used. Labels each output line with its PE. When a PE fails, reports that,
/// terminates the other PEs and returns the exit code of the failed PE, which is 128 plus the signal number if a signal
/// killed it. If the PEs have formed epochs, only reports the failed PE, and the exit code is that of the others.
/// Forwards SIGINT, SIGTERM and SIGHUP to all PEs; a second signal kills them. SIGUSR1 makes the job print which PE
/// waits for which. SIGUSR2 starts a process for a lost or vacant PE. Standard input goes to PE 0, unless it is a
/// terminal or PE 0 is on another host.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of PEs in the job
    #[arg(short = 'n', long = "pes", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pes: u32,

    /// Run the PEs as threads of one process, instead of one process each
    #[arg(long, conflicts_with_all = ["nodes", "node", "rendezvous", "token_file", "hosts", "hostfile", "timeout",
          "no_label"])]
    threads: bool,

    /// Find races and deadlocks: run the PEs as threads of one process, and report what the communication sanitizer
    /// finds
    ///
    /// Kernels run natively. The exit code is 5 if there are findings. A release build needs the feature
    /// `rushmem/sanitize`.
    #[arg(long, conflicts_with_all = ["nodes", "node", "rendezvous", "token_file", "hosts", "hostfile", "gpus"])]
    sanitize: bool,

    /// Run the PEs of --sanitize as one process each
    #[arg(long, requires = "sanitize", conflicts_with = "threads")]
    processes: bool,

    /// Print the findings of --sanitize as JSON on standard output
    #[arg(long, requires = "sanitize")]
    json: bool,

    /// GPUs for the PEs of this node, in turn: `auto`, ordinals such as `0,1`, or `none` [default: auto]
    #[arg(long, value_name = "LIST")]
    gpus: Option<String>,

    /// NICs to use: `auto`, `soft`, RDMA devices such as `mlx5_0` or `mlx5_0:1,mlx5_1:1`, or all but some, such as
    /// `^mlx5_2` [default: auto]
    #[arg(long, value_name = "LIST")]
    nic: Option<String>,

    /// Hosts that run the PEs, in order, and how many each: `node1:8,node2:8`; one if a host has no number
    ///
    /// Starts the PEs of other hosts by ssh, which must need no password. `rushmem` and the program must be on each host
    /// at the same path or on PATH. Passes the settings and the working directory on.
    #[arg(long, value_name = "LIST", conflicts_with_all = ["hostfile", "nodes", "node", "rendezvous", "token_file"])]
    hosts: Option<String>,

    /// File that lists such hosts, one per line: `node1 slots=8` or `node1:8`; `#` starts a comment
    #[arg(long, value_name = "PATH", conflicts_with_all = ["nodes", "node", "rendezvous", "token_file"])]
    hostfile: Option<PathBuf>,

    /// Program that runs a command on a host of --hosts or --hostfile, and its options, separated by spaces [default:
    /// ssh]
    #[arg(long, value_name = "COMMAND")]
    ssh: Option<String>,

    /// Number of nodes; start this command once on each node
    ///
    /// Node K starts its share of the N PEs, in order. All nodes need the same token of 64 hexadecimal digits, in
    /// RUSHMEM_TOKEN or in the file of --token-file.
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..),
          requires_all = ["node", "rendezvous"])]
    nodes: u32,

    /// Number of this node, from 0
    #[arg(long, value_name = "K")]
    node: Option<u32>,

    /// Address of the job's server, on node 0
    #[arg(long, value_name = "HOST:PORT")]
    rendezvous: Option<String>,

    /// File that holds the token of a job with several nodes
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,

    /// End the job after this time, such as `90s` or `10m`, with exit code 124 [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,

    /// Restart lost processes, up to N times in the job, for programs with live membership
    ///
    /// Such a program takes the process in by `Pe::grow`.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with_all = ["threads", "sanitize"])]
    respawn: u32,

    /// Set a setting for all PEs; `rushmem info` lists the keys
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Omit the PE number before each output line; standard output into a file or pipe keeps every byte
    #[arg(long)]
    no_label: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

pub(crate) fn execute(args: Args, config: Config) -> Result<ExitCode, Error> {
    let (sanitize, json) = (args.sanitize, args.json);
    let plan = Plan::new(args, config)?;
    if sanitize {
        return sanitize::run(plan, json);
    }
    match plan.mode {
        LaunchMode::Threads => Err(pe::exec_program(&plan)),
        LaunchMode::Processes(ref share) => job::supervise(&plan, share).map(ExitCode::from),
    }
}
