/// Environment variables in which launchers pass the number of processes on this node, in order of precedence.
const LOCAL_SIZES: [&str; 6] = [
    "RUSHMEM_LOCAL_PES",
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "SLURM_NTASKS_PER_NODE",
];

/// Returns the number of processes that the launcher started on this node, or 1 without a launcher.
pub fn local_processes() -> u32 {
    first_size(|name| std::env::var(name).ok())
}

fn first_size(variable: impl Fn(&str) -> Option<String>) -> u32 {
    LOCAL_SIZES.iter().find_map(|name| variable(name)?.parse().ok()).unwrap_or(1)
}

/// Returns the boot ID: random, and constant until this machine is rebooted. `None` if the system does not provide it.
pub fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().into())
}

/// Returns the host name, or `an-unnamed-host` if it cannot be read.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "an-unnamed-host".into() } else { name.trim().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_number_of_local_processes_of_each_launcher() {
        let size = |variables: &[(&str, &str)]| {
            first_size(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        assert_eq!(size(&[]), 1);
        for name in LOCAL_SIZES {
            assert_eq!(size(&[(name, "7")]), 7, "{name}");
        }
        assert_eq!(size(&[("OMPI_COMM_WORLD_LOCAL_SIZE", "4"), ("SLURM_NTASKS_PER_NODE", "1")]), 4);
    }
}
