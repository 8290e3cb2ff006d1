//! Two nodes with their own programs, for tests of launchers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use tempfile::TempDir;

use crate::hosts::Hosts;
use crate::launch::{clean, launcher};
use crate::skip;

/// Two simulated nodes named `node0` and `node1`, with `rushmem` and `ring` installed.
pub struct Nodes {
    /// The network namespaces.
    pub hosts: Hosts,
    /// The programs of both nodes. It is on their PATH.
    pub folder: TempDir,
}

impl Nodes {
    /// Creates the network namespaces of both nodes. `ring` runs the program `pe`. Returns `None` if this machine cannot
    /// simulate nodes.
    ///
    /// # Panics
    /// If files cannot be written.
    pub fn new(test: &str, pe: &str) -> Option<Nodes> {
        let Some(launcher) = launcher(pe) else {
            skip(test, "the launcher is not built: cargo build -p rushmem-cli");
            return None;
        };
        let hosts = match Hosts::new() {
            Ok(hosts) => hosts,
            Err(reason) => {
                skip(test, &format!("network namespaces need root and iproute2: {reason}"));
                return None;
            }
        };
        let nodes = Nodes { hosts, folder: tempfile::tempdir().unwrap() };
        fs::write(nodes.names(), "127.0.0.1 localhost\n10.83.0.1 node0\n10.83.0.2 node1\n").unwrap();
        // Copy the launcher and its library: it prefers programs in its own folder, and a symbolic link would resolve to
        // the build folder.
        for name in ["rushmem", "rushmem-preload"] {
            fs::copy(launcher.with_file_name(name), nodes.folder.path().join(name)).unwrap();
        }
        nodes.install("ring", &format!("exec {pe} ring"));
        // A replacement for ssh, which Open MPI calls with a host and a command.
        let agent: String = (0..2)
            .map(|i| {
                let words = nodes.hosts.node(i, &nodes.names());
                let quoted: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
                format!("if [ $host = node{i} ]; then exec {} sh -c \"$*\"; fi\n", quoted.join(" "))
            })
            .collect();
        nodes.install("agent", &format!("host=$1; shift\n{agent}exit 1"));
        Some(nodes)
    }

    /// Returns the file with the names of both nodes.
    pub fn names(&self) -> PathBuf {
        self.folder.path().join("hosts")
    }

    /// Installs a shell script as a program of both nodes.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn install(&self, name: &str, script: &str) {
        let path = self.folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns a command that runs a shell script on node `i`.
    pub fn script(&self, i: usize, script: &str) -> Command {
        let words = self.hosts.node(i, &self.names());
        let mut command = clean(Path::new(&words[0]));
        command.args(&words[1..]).args(["sh", "-e", "-c", script]);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.folder.path().display()));
        command.env("OMPI_MCA_plm_rsh_agent", self.folder.path().join("agent"));
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command
    }

    /// Runs one script on each node concurrently.
    ///
    /// # Panics
    /// If a script cannot be started.
    pub fn run(&self, scripts: [&str; 2]) -> Vec<Output> {
        let start = |(i, script): (usize, &str)| self.script(i, script).spawn().unwrap();
        let started: Vec<Child> = scripts.into_iter().enumerate().map(start).collect();
        started.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
    }
}
