//! Finds RDMA devices in sysfs, without any RDMA library.

use std::path::{Path, PathBuf};

/// Returns the root of sysfs: `SYSFS_PATH` if set, as in libibverbs, or else `/sys`.
pub fn root() -> PathBuf {
    std::env::var_os("SYSFS_PATH")
        .filter(|path| !path.is_empty())
        .map_or_else(|| "/sys".into(), PathBuf::from)
}

/// Returns the name of each RDMA device on this system, and whether it is a ConnectX.
pub fn devices(root: &Path) -> Vec<(String, bool)> {
    let folder = root.join("class/infiniband");
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let read = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        // A PCI modalias starts with the vendor ID, and NVIDIA's NICs kept that of Mellanox.
        let alias = std::fs::read_to_string(entry.path().join("device/modalias")).unwrap_or_default();
        (name, alias.starts_with("pci:v000015B3"))
    };
    let mut found: Vec<_> = entries.flatten().map(read).collect();
    found.sort();
    found
}

/// Returns the ports of all RDMA devices with their states, such as `mlx5_0:1 (ACTIVE)`.
#[cfg(any(test, feature = "rdma"))]
pub fn ports(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for (device, _) in devices(root) {
        let folder = root.join("class/infiniband").join(&device).join("ports");
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let port = entry.file_name().to_string_lossy().into_owned();
            // The number of the state comes before its name.
            let state = std::fs::read_to_string(entry.path().join("state")).unwrap_or_default();
            let state = state.split_once(':').map_or("state unknown", |(_, name)| name).trim().to_owned();
            found.push(format!("{device}:{port} ({state})"));
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_connectx_nics_by_their_vendor() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(devices(root.path()), []);
        for (name, alias) in
            [("mlx5_1", "pci:v000015B3d00001021sv0"), ("rxe0", ""), ("efa_0", "pci:v00001D0F")]
        {
            let device = root.path().join("class/infiniband").join(name).join("device");
            std::fs::create_dir_all(&device).unwrap();
            std::fs::write(device.join("modalias"), alias).unwrap();
        }
        for (port, state) in
            [("mlx5_1/ports/1", "4: ACTIVE\n"), ("mlx5_1/ports/2", "1: DOWN\n"), ("rxe0/ports/1", "")]
        {
            let folder = root.path().join("class/infiniband").join(port);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("state"), state).unwrap();
        }
        assert_eq!(ports(root.path()), ["mlx5_1:1 (ACTIVE)", "mlx5_1:2 (DOWN)", "rxe0:1 (state unknown)"]);
        let wanted = [("efa_0", false), ("mlx5_1", true), ("rxe0", false)];
        assert_eq!(devices(root.path()), wanted.map(|(name, connectx)| (name.to_owned(), connectx)));
    }
}
