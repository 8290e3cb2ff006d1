//! The hosts of a job other than this machine.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rushmem::bootstrap::node_ips;
use rushmem::config::Config;

use super::share::NodeShare;
use super::{Args, hosts};
use crate::error::Error;

/// The hosts of a job other than this machine, and how they are reached.
pub(super) struct Others {
    /// The hosts and their PEs.
    pub(super) nodes: Vec<(String, NodeShare)>,
    /// The words of the command that runs a command on a host.
    pub(super) ssh: Vec<String>,
    /// Addresses of this machine at which the hosts may reach the job's server, the likeliest first.
    pub(super) ips: Vec<IpAddr>,
    /// Port of the job's server, or 0 for any.
    pub(super) port: u16,
    /// The program, as on the command line.
    pub(super) program: OsString,
}

impl Others {
    /// Distributes the PEs over the hosts of the command line. Returns the part of this machine, and the others.
    ///
    /// # Errors
    /// - [`Error::Usage`]: a list of hosts is invalid or too short.
    /// - [`Error::Environment`], [`Error::Bootstrap`]: the list or the network interfaces cannot be read.
    pub(super) fn new(args: &Args, config: &Config, own: &NodeShare) -> Result<(NodeShare, Others), Error> {
        let hosts = match (&args.hosts, &args.hostfile) {
            (Some(list), _) => hosts::from_list(list)?,
            (None, Some(file)) => hosts::from_file(file)?,
            (None, None) => return Err(Error::Internal("the job has no list of hosts".into())),
        };
        let shares = hosts::distribute(hosts, args.pes)?;
        let nodes = shares.len() as u32;
        // A launcher whose machine is not in the list has a number after those of the nodes.
        let mut here = NodeShare { first: 0, count: 0, node: nodes, nodes, ..own.clone() };
        let (mut first, mut others) = (0, Vec::new());
        for (node, (host, count)) in (0..).zip(shares) {
            let share = NodeShare { first, count, node, nodes, ..own.clone() };
            first += count;
            match hosts::is_this_machine(&host) {
                true if here.count > 0 => {
                    return Err(Error::Usage(format!("`{host}` is this machine, which is listed twice")));
                }
                true => here = share,
                false => others.push((host, share)),
            }
        }
        let ssh: Vec<String> =
            args.ssh.as_deref().unwrap_or("ssh").split_whitespace().map(str::to_owned).collect();
        if ssh.is_empty() {
            return Err(Error::Usage("--ssh is empty; leave it out, or name a program".into()));
        }
        let towards: Vec<IpAddr> = others.iter().flat_map(|(host, _)| hosts::addresses(host)).collect();
        let ips = node_ips(config, &towards)?;
        let program = args.command.first().cloned().unwrap_or_default();
        Ok((here, Others { nodes: others, ssh, ips, port: config.bootstrap_port, program }))
    }

    /// Returns the address on which the job's server listens: all of this machine's if it may be reached at several.
    pub(super) fn listen(&self) -> SocketAddr {
        let ip = match *self.ips {
            [ip] => ip,
            _ if self.ips.iter().any(IpAddr::is_ipv6) => Ipv6Addr::UNSPECIFIED.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        };
        SocketAddr::new(ip, self.port)
    }

    /// Returns the addresses of the job's server, which listens on `port`.
    pub(super) fn servers(&self, port: u16) -> Vec<String> {
        self.ips.iter().map(|&ip| SocketAddr::new(ip, port).to_string()).collect()
    }
}
