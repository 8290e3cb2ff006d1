//! An ssh server on a simulated node, with its own keys and port.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::hosts::tool;
use crate::nodes::Nodes;

/// TCP port of the server.
const PORT: u16 = 7022;

/// Debian does not put the server on the PATH of every user.
const SERVER: &str = "/usr/sbin/sshd";

/// Time limit for the server to start.
const START_TIME: Duration = Duration::from_secs(20);

/// The ssh server of `node1`. Dropping it kills the server, but not its sessions.
pub struct Sshd {
    server: Child,
    folder: PathBuf,
}

impl Sshd {
    /// Starts the server on `node1`, and waits until it listens.
    ///
    /// # Errors
    /// Returns the reason if this machine has no such server, or it does not start.
    pub fn new(nodes: &Nodes) -> Result<Sshd, String> {
        if !Path::new(SERVER).exists() {
            return Err("there is no ssh server".into());
        }
        let folder = nodes.folder.path().join("sshd");
        fs::create_dir(&folder).map_err(|error| error.to_string())?;
        for key in ["host", "user", "stranger"] {
            let file = folder.join(key).display().to_string();
            tool("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &file])?;
        }
        let at = folder.display();
        let keys = fs::read_to_string(folder.join("host.pub")).map_err(|error| error.to_string())?;
        for (name, text) in [
            (
                "server",
                format!(
                    "Port {PORT}\nHostKey {at}/host\nAuthorizedKeysFile {at}/user.pub\nStrictModes no\nUsePAM no\n\
                     PermitRootLogin yes\nPidFile none\nPasswordAuthentication no\n"
                ),
            ),
            (
                "client",
                format!(
                    "Port {PORT}\nIdentityFile {at}/user\nIdentitiesOnly yes\nUserKnownHostsFile {at}/known\n\
                     GlobalKnownHostsFile none\nStrictHostKeyChecking yes\n"
                ),
            ),
            ("known", format!("[node1]:{PORT} {keys}")),
        ] {
            fs::write(folder.join(name), text).map_err(|error| error.to_string())?;
        }
        // The server insists on this empty folder.
        let script = format!("mkdir -p /run/sshd && exec {SERVER} -D -e -f {at}/server");
        let server = nodes.script(1, &script).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let sshd = Sshd { server: server.map_err(|error| error.to_string())?, folder };
        let end = Instant::now() + START_TIME;
        while !nodes
            .script(0, &format!("{} node1 true", sshd.client()))
            .output()
            .is_ok_and(|o| o.status.success())
        {
            if Instant::now() >= end {
                return Err("the ssh server does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(sshd)
    }

    /// Returns the command with which `node0` reaches the server.
    pub fn client(&self) -> String {
        format!("ssh -F {}/client", self.folder.display())
    }

    /// Returns a key that the server does not know.
    pub fn strange_key(&self) -> PathBuf {
        self.folder.join("stranger")
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // Ignore errors: the server may have exited.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
