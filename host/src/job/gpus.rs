//! Determines how many GPUs a job may use, and which PE uses which.

use crate::config::{Config, DeviceKind};
use crate::cuda::Cuda;
use crate::modules::RUNTIME;
use crate::{Error, Ptx, Result};

/// Returns the number of GPUs that the job may use, or 0 if kernels run natively. `rushmem info` applies the same
/// rules.
///
/// # Errors
/// - [`Error::Unavailable`] or [`Error::Cuda`] if `RUSHMEM_DEVICE=gpu` is set, but there is no GPU or no PTX.
pub(super) fn count_gpus(config: &Config, ptx: &[Ptx]) -> Result<u32> {
    let wanted = config.device == DeviceKind::Gpu;
    if config.device == DeviceKind::Native {
        return Ok(0);
    }
    if !wanted && ptx.is_empty() {
        return Ok(0);
    }
    if let Some(none) = ptx.iter().chain([&RUNTIME.operations]).find(|ptx| ptx.image.is_empty()) {
        let why = format!("there is no PTX of {}: {}", none.name, none.omitted);
        if wanted {
            return Err(Error::Unavailable { what: "a GPU for kernels".into(), why });
        }
        if Cuda::load().and_then(|cuda| cuda.device_count()).is_ok_and(|found| found > 0) {
            tracing::warn!("kernels run natively, although there is a GPU: {why}");
        }
        return Ok(0);
    }
    match Cuda::load().and_then(|cuda| cuda.device_count()) {
        Ok(0) if wanted => {
            let why = "the driver reports no device; check nvidia-smi and CUDA_VISIBLE_DEVICES".into();
            Err(Error::Unavailable { what: "a GPU".into(), why })
        }
        Ok(found) => Ok(found),
        Err(error) if wanted => Err(error.into()),
        Err(error) => {
            tracing::info!("kernels run natively: {error}");
            Ok(0)
        }
    }
}

/// Returns the GPU of each of the `on_node` PEs of this node, which has `found` GPUs. Returns an empty list if the node
/// has none.
///
/// # Errors
/// - [`Error::Unavailable`] if the setting `gpus` names a missing GPU, or no GPU at all.
pub(crate) fn share_gpus(config: &Config, found: u32, on_node: u32) -> Result<Vec<u32>> {
    if found == 0 {
        return Ok(Vec::new());
    }
    let gpu_of = |pe: u32| match config.gpus.of(pe, found) {
        Some(gpu) if gpu < found => Ok(gpu),
        Some(gpu) => {
            let why = format!("this node has {found}, numbered from 0; change RUSHMEM_GPUS");
            Err(Error::Unavailable { what: format!("GPU {gpu}"), why })
        }
        None => Err(Error::Unavailable { what: "a GPU".into(), why: "RUSHMEM_GPUS names no GPU".into() }),
    };
    (0..on_node).map(gpu_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assigns_gpus_by_the_setting() {
        let with = |gpus: &str| {
            let mut config = Config::default();
            config.set("gpus", gpus).unwrap();
            config
        };
        // `auto` assigns the GPUs round-robin, so PEs share GPUs if there are more PEs than GPUs.
        assert_eq!(share_gpus(&with("auto"), 4, 4).unwrap(), [0, 1, 2, 3]);
        assert_eq!(share_gpus(&with("auto"), 2, 4).unwrap(), [0, 1, 0, 1]);
        assert_eq!(share_gpus(&with("3,1"), 4, 3).unwrap(), [3, 1, 3]);
        assert!(share_gpus(&with("auto"), 0, 2).unwrap().is_empty());
        let error = share_gpus(&with("0,4"), 4, 2).unwrap_err().to_string();
        assert!(error.starts_with("GPU 4 is not available: this node has 4"), "{error}");
    }

    #[test]
    fn refuses_device_gpu_without_ptx() {
        let mut config = Config::default();
        assert_eq!(count_gpus(&config, &[]).unwrap(), 0);
        config.set("device", "gpu").unwrap();
        let none = Ptx { name: "mine", image: "", omitted: "it was left out", code: &[] };
        let error = count_gpus(&config, &[none]).unwrap_err().to_string();
        assert!(error.contains("there is no PTX of mine: it was left out"), "{error}");
        config.set("device", "native").unwrap();
        assert_eq!(count_gpus(&config, &[none]).unwrap(), 0);
    }
}
