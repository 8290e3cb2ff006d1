//! Simulates two hosts by two network namespaces joined by a veth pair.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::launch::{clean, text};

/// Runs a command-line tool and returns its standard output.
///
/// # Errors
/// Returns a message if the tool cannot be started or fails.
pub fn tool(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{program} {}: {}", args.join(" "), text(&output.stderr).trim())),
    }
}

fn ip(args: &str) -> Result<String, String> {
    tool("ip", &args.split(' ').collect::<Vec<_>>())
}

/// Two network namespaces with the addresses 10.83.0.1 and 10.83.0.2. The interface of each is called `cable`. Dropping
/// this value removes both namespaces.
pub struct Hosts([String; 2]);

impl Hosts {
    /// Creates the network namespaces and the veth pair between them.
    ///
    /// # Errors
    /// Returns the failure of `ip`, which needs root.
    pub fn new() -> Result<Hosts, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (id, i) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let hosts = Hosts([format!("rushmem{id}a{i}"), format!("rushmem{id}b{i}")]);
        let [a, b] = &hosts.0;
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        ip(&format!("-n {a} link add cable type veth peer name cable netns {b}"))?;
        for (name, address) in [(a, 1), (b, 2)] {
            ip(&format!("-n {name} addr add 10.83.0.{address}/24 dev cable"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set cable up"))?;
        }
        Ok(hosts)
    }

    /// Returns a command that runs `program` on host `i`.
    pub fn command(&self, i: usize, program: &Path) -> Command {
        let mut command = clean(Path::new("ip"));
        command.args(["netns", "exec", &self.0[i]]).arg(program);
        command
    }

    /// Returns the words of a command prefix that runs a command on host `i` under the name `node0` or `node1`. The
    /// file `names` has the addresses of both, in the format of `/etc/hosts`.
    pub fn node(&self, i: usize, names: &Path) -> Vec<String> {
        // Unlike `ip netns exec`, this keeps /sys mounted, which Slurm needs.
        let script = "hostname \"$0\" && mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";
        let net = format!("--net=/run/netns/{}", self.0[i]);
        let (name, names) = (format!("node{i}"), names.display().to_string());
        let words = ["nsenter", &net, "unshare", "--uts", "--mount", "sh", "-c", script, &name, &names];
        words.map(str::to_owned).to_vec()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.0 {
            // Ignore errors: a namespace that could not be created cannot be deleted either, and that failure has been
            // reported.
            let _ = ip(&format!("netns del {name}"));
        }
    }
}
