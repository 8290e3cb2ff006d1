//! The command `rushmem id`, which prints a new unique ID of a job.

use std::net::ToSocketAddrs;
use std::process::ExitCode;

use rushmem::bootstrap::UniqueId;
use rushmem_base::{free_port, loopback};

use crate::error::Error;

/// Print a new unique id for a job that is started by hand
///
/// Start each PE with the id in RUSHMEM_ID, its number in RUSHMEM_PE and the number of PEs in RUSHMEM_N_PES. An id is
/// valid for one run of the job. Keep it secret: every process that has the id can join the job.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address on which PE 0 listens, for PEs on several machines [default: a free port of the loopback interface]
    #[arg(long, value_name = "HOST:PORT")]
    at: Option<String>,
}

pub(crate) fn execute(args: &Args) -> Result<ExitCode, Error> {
    let addr = match &args.at {
        None => {
            let ip = loopback();
            let none = |error| Error::Environment(format!("cannot find a free port on {ip}: {error}"));
            free_port(ip).map_err(none)?
        }
        Some(at) => {
            let bad = |why: String| {
                Error::Usage(format!(
                    "--at {at}: {why}; write it as HOST:PORT, with an address of PE 0's machine"
                ))
            };
            let mut addrs = at.to_socket_addrs().map_err(|error| bad(error.to_string()))?;
            addrs.next().ok_or_else(|| bad("no such address".into()))?
        }
    };
    println!("{}", UniqueId::at(addr)?.to_hex());
    Ok(ExitCode::SUCCESS)
}
