//! Starts a temporary Slurm cluster for a test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::launch::{clean, text};

/// Maximum time for Slurm's daemons to find each other.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Number of processors and GPUs that each of several nodes claims to have.
pub const GPUS: u32 = 8;

/// A node of a Slurm cluster.
pub struct SlurmNode {
    /// Name of the node, which is also its host name.
    pub name: String,
    /// IP address or host name at which the node's daemon is reached.
    pub address: String,
    /// Words of a command prefix that runs a command on the node.
    pub prefix: Vec<String>,
}

/// A running Slurm cluster: the controller on the first node, and a daemon on each node. Dropping this value stops all
/// of them.
pub struct Slurm {
    folder: TempDir,
    daemons: Vec<Child>,
    nodes: Vec<SlurmNode>,
}

impl Slurm {
    /// Starts a Slurm cluster that consists of this machine only, on the loopback interface.
    ///
    /// # Errors
    /// Returns a message if Slurm is not installed or does not start.
    pub fn start(port: impl Fn() -> u16) -> Result<Slurm, String> {
        let output = Command::new("hostname").arg("-s").output().map_err(|error| error.to_string())?;
        let name = text(&output.stdout).trim().to_owned();
        Slurm::on(vec![SlurmNode { name, address: "127.0.0.1".into(), prefix: Vec::new() }], port)
    }

    /// Starts Slurm's daemons on `nodes`, without authentication.
    ///
    /// # Errors
    /// Returns a message if Slurm is not installed or does not start.
    pub fn on(nodes: Vec<SlurmNode>, port: impl Fn() -> u16) -> Result<Slurm, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let path = folder.path().display();
        let output = Command::new("id").arg("-un").output().map_err(|error| format!("id: {error}"))?;
        let (user, first) = (text(&output.stdout).trim().to_owned(), &nodes[0]);
        let mut settings = format!(
            "ClusterName=test\nSlurmctldHost={}({})\nSlurmctldPort={}\nSlurmdPort={}\n\
             SlurmUser={user}\nSlurmdUser={user}\nAuthType=auth/none\nCredType=cred/none\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
             SelectType=select/cons_tres\nGresTypes=gpu\nSlurmdParameters=config_overrides\n\
             SlurmctldPidFile={path}/slurmctld.pid\nSlurmdPidFile={path}/slurmd.%n.pid\n\
             SlurmdSpoolDir={path}/spool.%n\nStateSaveLocation={path}/state\n\
             PartitionName=all Nodes=ALL Default=YES State=UP\n",
            first.name,
            first.address,
            port(),
            port()
        );
        let size = if nodes.len() > 1 { format!("CPUs={GPUS} Gres=gpu:{GPUS} ") } else { String::new() };
        for SlurmNode { name, address, .. } in &nodes {
            settings += &format!("NodeName={name} NodeAddr={address} {size}State=UNKNOWN\n");
        }
        let write = || {
            for node in &nodes {
                std::fs::create_dir(folder.path().join(format!("spool.{}", node.name)))?;
            }
            std::fs::create_dir(folder.path().join("state"))?;
            write_gpus(folder.path())?;
            std::fs::write(folder.path().join("slurm.conf"), settings)
        };
        write().map_err(|error| error.to_string())?;
        let mut slurm = Slurm { folder, daemons: Vec::new(), nodes };
        slurm.begin(0, "slurmctld")?;
        (0..slurm.nodes.len()).try_for_each(|node| slurm.begin(node, "slurmd"))?;
        let begin = Instant::now();
        let idle = "idle\n".repeat(slurm.nodes.len());
        let states = |slurm: &Slurm| slurm.command("sinfo").args(["-h", "-N", "-o", "%T"]).output();
        while text(&states(&slurm).map_err(|error| error.to_string())?.stdout) != idle {
            if begin.elapsed() > STARTUP_TIMEOUT {
                return Err(format!("its nodes do not come up: {}", slurm.logs()));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(slurm)
    }

    fn begin(&mut self, node: usize, name: &str) -> Result<(), String> {
        let log = self.folder.path().join(format!("{name}.{node}"));
        let log = File::create(log).map_err(|error| error.to_string())?;
        let mut daemon = self.command_on(node, name);
        let spawned = daemon.arg("-D").stdout(Stdio::null()).stderr(log).spawn();
        self.daemons.push(spawned.map_err(|error| format!("{name}: {error}"))?);
        Ok(())
    }

    /// Returns the path of the cluster's configuration file, for `SLURM_CONF`.
    pub fn settings(&self) -> PathBuf {
        self.folder.path().join("slurm.conf")
    }

    /// Returns a command that runs the Slurm program `name` on the first node.
    pub fn command(&self, name: &str) -> Command {
        self.command_on(0, name)
    }

    fn command_on(&self, node: usize, name: &str) -> Command {
        let words = [&self.nodes[node].prefix[..], &[name.to_owned()]].concat();
        let mut command = clean(Path::new(&words[0]));
        command.args(&words[1..]).env("SLURM_CONF", self.settings());
        // System daemons are in folders that are not in every user's PATH.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin"));
        command
    }

    fn logs(&self) -> String {
        let read = |name| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        ["slurmctld.0", "slurmd.0", "slurmd.1"].map(read).concat()
    }
}

/// Writes the settings of each node's GPUs.
fn write_gpus(folder: &Path) -> std::io::Result<()> {
    // Slurm wants a file for each GPU. It only complains that these are no devices.
    for gpu in 0..GPUS {
        std::fs::write(folder.join(format!("gpu{gpu}")), "")?;
    }
    let gpus = format!("Name=gpu File={}/gpu[0-{}]\n", folder.display(), GPUS - 1);
    std::fs::write(folder.join("gres.conf"), gpus)
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            // Ignore the error of a daemon that has already exited.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
