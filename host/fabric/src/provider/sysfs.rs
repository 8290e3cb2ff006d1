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
        let wanted = [("efa_0", false), ("mlx5_1", true), ("rxe0", false)];
        assert_eq!(devices(root.path()), wanted.map(|(name, connectx)| (name.to_owned(), connectx)));
    }
}
