//! A Slurm cluster of one node, for the time of a test.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rushmem_tests::launch::{clean, text};
use tempfile::TempDir;

/// Maximum time until the daemons have found each other.
const LONG: Duration = Duration::from_secs(30);

/// The controller and the daemon of the node. Dropping it ends both.
pub(crate) struct Slurm {
    folder: TempDir,
    daemons: Vec<Child>,
}

impl Slurm {
    /// Starts the daemons without authentication, on the loopback interface only.
    pub(crate) fn start(port: impl Fn() -> u16) -> Result<Slurm, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let path = folder.path().display();
        let said = |program: &str, args: &[&str]| {
            let output =
                Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
            Ok::<_, String>(text(&output.stdout).trim().to_owned())
        };
        let (host, user) = (said("hostname", &["-s"])?, said("id", &["-un"])?);
        let (controller, daemon) = (port(), port());
        let settings = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}\nSlurmdPort={daemon}\n\
             SlurmUser={user}\nSlurmdUser={user}\nAuthType=auth/none\nCredType=cred/none\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
             SelectType=select/linear\nSlurmctldPidFile={path}/slurmctld.pid\nSlurmdPidFile={path}/slurmd.pid\n\
             SlurmdSpoolDir={path}/spool\nStateSaveLocation={path}/state\n\
             NodeName={host} NodeAddr=127.0.0.1 State=UNKNOWN\nPartitionName=all Nodes=ALL Default=YES State=UP\n"
        );
        let write = || {
            std::fs::create_dir(folder.path().join("spool"))?;
            std::fs::create_dir(folder.path().join("state"))?;
            std::fs::write(folder.path().join("slurm.conf"), settings)
        };
        write().map_err(|error| error.to_string())?;
        let mut slurm = Slurm { folder, daemons: Vec::new() };
        for name in ["slurmctld", "slurmd"] {
            slurm.begin(name)?;
        }
        let begin = Instant::now();
        while text(
            &slurm.command("sinfo").args(["-h", "-o", "%T"]).output().map_err(|e| e.to_string())?.stdout,
        )
        .trim()
            != "idle"
        {
            if begin.elapsed() > LONG {
                return Err(format!("its node does not come up: {}", slurm.logs()));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(slurm)
    }

    fn begin(&mut self, name: &str) -> Result<(), String> {
        let log = File::create(self.folder.path().join(name)).map_err(|error| error.to_string())?;
        let mut daemon = self.command(name);
        let spawned = daemon.arg("-D").stdout(Stdio::null()).stderr(log).spawn();
        self.daemons.push(spawned.map_err(|error| format!("{name}: {error}"))?);
        Ok(())
    }

    /// Returns the command of a program of this Slurm.
    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = clean(Path::new(name));
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf"));
        // System daemons are in folders that not every user has in PATH.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin"));
        command
    }

    fn logs(&self) -> String {
        let read = |name| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        ["slurmctld", "slurmd"].map(read).concat()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            // A daemon that has ended already is fine.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
