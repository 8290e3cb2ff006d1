//! `rushmem run`.

mod find;
mod job;
mod output;
mod pe;
mod plan;
mod sys;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rushmem::config::{Config, parse_duration};

use crate::error::Error;

use self::plan::{Plan, Shape};

/// Start a program as the PEs of one job
///
/// The program is looked up as a path, on PATH, and beside this command. Each line that a PE writes is labelled with
/// its number. When a PE dies, it is named, the others are ended, and its exit code is returned (128 + the signal's
/// number if a signal killed it). SIGINT, SIGTERM and SIGHUP are passed on to all PEs; the second one kills them.
/// Standard input goes to PE 0, unless it is a terminal.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of PEs in the job
    #[arg(short = 'n', long = "pes", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pes: u32,

    /// Make the PEs threads of one process, instead of one process each
    #[arg(long, conflicts_with_all = ["nodes", "node", "rendezvous", "token_file", "timeout", "no_label"])]
    threads: bool,

    /// GPUs that the PEs of this node take in turn: `auto`, ordinals such as `0,1`, or `none`
    #[arg(long, value_name = "LIST")]
    gpus: Option<String>,

    /// NICs that carry the traffic: `auto`, `soft`, or RDMA devices such as `mlx5_0` or `mlx5_0:1,mlx5_1:1`
    #[arg(long, value_name = "LIST")]
    nic: Option<String>,

    /// Number of nodes; start this command once on each of them
    ///
    /// Node K starts its share of the N PEs, in order. All nodes need the same token, 64 hexadecimal digits, in
    /// RUSHMEM_TOKEN or a file.
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..),
          requires_all = ["node", "rendezvous"])]
    nodes: u32,

    /// Number of this node, from 0
    #[arg(long, value_name = "K")]
    node: Option<u32>,

    /// Address on node 0 where the PEs of all nodes meet
    #[arg(long, value_name = "HOST:PORT")]
    rendezvous: Option<String>,

    /// File that holds the token of a job with several nodes
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,

    /// End the job after this time, such as `90s` or `10m`, with exit code 124
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,

    /// Change a setting for all PEs; `rushmem info` lists them
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Do not label lines with the number of the PE that wrote them
    #[arg(long)]
    no_label: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

pub(crate) fn execute(args: Args, config: Config) -> Result<ExitCode, Error> {
    let plan = Plan::new(args, config)?;
    match plan.shape {
        Shape::Threads => Err(pe::become_program(&plan)),
        Shape::Processes(_) => job::supervise(&plan).map(ExitCode::from),
    }
}
