//! Query of the host memory that is available for allocation.

/// Returns how many bytes the system can allocate without swapping, if known.
pub fn available_memory() -> Option<u64> {
    parse_available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// Returns `MemAvailable` of a text in the format of `/proc/meminfo`, in bytes.
pub fn parse_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use crate::machine::{Machine, Native};
    use rushmem_error::Error;

    #[test]
    fn rejects_allocations_larger_than_the_address_space() {
        let machine = Native::new(Default::default());
        for bytes in [1 << 47, u64::MAX - 1] {
            let error = machine.local(bytes).err().unwrap();
            assert!(matches!(error, Error::HostMemory { bytes: asked } if asked == bytes), "{error}");
        }
    }
}
