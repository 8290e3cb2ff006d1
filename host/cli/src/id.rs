//! `rushmem id`.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::process::ExitCode;

use rushmem::bootstrap::UniqueId;

use crate::error::Error;

/// Make the unique id of a job whose PEs are started by hand
///
/// Start each PE with the id in RUSHMEM_ID, its number in RUSHMEM_PE and the count in RUSHMEM_N_PES; it is for one run
/// of the job. The id holds the job's secret: whoever has it can join.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address on which PE 0 will listen, for PEs on several machines; by default a free port for this machine only
    #[arg(long, value_name = "HOST:PORT")]
    at: Option<String>,
}

pub(crate) fn execute(args: &Args) -> Result<ExitCode, Error> {
    let addr = match &args.at {
        None => free_port().map_err(|error| Error::Environment(format!("there is no free port: {error}")))?,
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

/// One that is free now.
fn free_port() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
