//! Starts the PE of this process.

use std::net::SocketAddr;
use std::sync::Arc;

use pyo3::prelude::*;
use rushmem::bootstrap::UniqueId;
use rushmem::config::{Config, DeviceKind};
use rushmem::cuda::Cuda;
use rushmem::{Error, Job, Result};

use crate::error::{exception, misuse};
use crate::runtime::Runtime;
use crate::session::Session;
use crate::wait::interruptible;

/// Settings by key, as text.
type Settings = Vec<(String, String)>;

/// Starts the PE of this process with these settings, and returns the runtime. See `rushmem.init`.
#[pyfunction]
#[pyo3(signature = (settings, id=None, rank=None, world_size=None))]
pub(crate) fn start(
    py: Python<'_>,
    settings: Settings,
    id: Option<&str>,
    rank: Option<u32>,
    world_size: Option<u32>,
) -> PyResult<Runtime> {
    let rendezvous = match (id, rank, world_size) {
        (Some(id), Some(rank), Some(size)) => {
            let id = UniqueId::from_hex(id).map_err(|error| exception(py, error.into()))?;
            Some((id, rank, size))
        }
        (None, None, None) => None,
        _ => {
            return Err(misuse(
                py,
                "init",
                "id, rank and world_size must be given together, or none of them",
            ));
        }
    };
    let started = interruptible(py, move || {
        let session = Session::start(|| {
            let mut config = config(&settings)?;
            if config.device == DeviceKind::Auto && has_gpu() {
                config.set("device", "gpu")?;
            }
            let job = Job::with_config(config);
            match rendezvous {
                Some((id, rank, size)) => job.with_id(id, rank, size).start(),
                None => job.start(),
            }
        })?;
        Ok(Unclaimed(Some(session)))
    })?;
    Runtime::new(started.claim()).map_err(|error| exception(py, error))
}

/// A session that aborts the job when it is dropped without being claimed, because the wait for it was interrupted.
struct Unclaimed(Option<Arc<Session>>);

impl Unclaimed {
    fn claim(mut self) -> Arc<Session> {
        self.0.take().expect("only this and `drop` take the session")
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            // The outcome is the reason itself.
            let _ = session.finish(Err("init was interrupted".into()));
        }
    }
}

/// Creates a unique ID for a job: hexadecimal text, to be passed to `init` on every PE. See `rushmem.unique_id`.
#[pyfunction]
#[pyo3(signature = (settings, at=None))]
pub(crate) fn unique_id(py: Python<'_>, settings: Settings, at: Option<&str>) -> PyResult<String> {
    let id = match at.map(str::parse::<SocketAddr>) {
        Some(Ok(addr)) => UniqueId::at(addr).map_err(Error::from),
        Some(Err(_)) => {
            Err(Error::misuse("unique_id", "`at` is an IP address and a port, such as 10.0.0.1:4711"))
        }
        None => config(&settings).and_then(|config| Ok(UniqueId::with_config(&config)?)),
    };
    id.map(|id| id.to_hex()).map_err(|error| exception(py, error))
}

/// Loads the settings from the environment and the settings file, and overrides them with `settings`.
fn config(settings: &Settings) -> Result<Config> {
    let mut config = Config::load()?;
    for (key, value) in settings {
        config.set(key, value)?;
    }
    config.check()?;
    Ok(config)
}

fn has_gpu() -> bool {
    Cuda::load().and_then(|cuda| cuda.device_count()).is_ok_and(|found| found > 0)
}
