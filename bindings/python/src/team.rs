//! The class `Team`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyType;
use rushmem::{Error, Pe, Result, TeamConfig};

use crate::error::misuse;
use crate::session::Session;
use crate::wait::{brief, interruptible};

/// A team of PEs, for barriers and collective calls. `Runtime.world` is the team of all PEs.
///
/// >>> with rt.world.split_strided(0, 1, 1) as first:
/// ...     rt.barrier(team=first)
#[pyclass(frozen, module = "rushmem")]
pub(crate) struct Team {
    session: Arc<Session>,
    team: rushmem_device::Team,
    /// PEs of the members, in team order.
    pes: Vec<u32>,
    rank: u32,
}

impl Team {
    pub(crate) fn world(session: &Arc<Session>, rank: u32, n_pes: u32) -> Self {
        let team = rushmem_device::Team::WORLD;
        Self { session: Arc::clone(session), team, pes: (0..n_pes).collect(), rank }
    }

    /// Describes a team of which `pe` is a member.
    pub(crate) fn new(session: &Arc<Session>, pe: &Pe, team: rushmem_device::Team) -> Result<Self> {
        let gone = || Error::misuse("team", "the new team has been destroyed");
        let pes = pe.team_pes(team).ok_or_else(gone)?;
        let rank = pe.team_my_pe(team).ok_or_else(gone)?;
        Ok(Self { session: Arc::clone(session), team, pes, rank })
    }

    pub(crate) fn handle(&self) -> rushmem_device::Team {
        self.team
    }

    pub(crate) fn members(&self) -> usize {
        self.pes.len()
    }
}

#[pymethods]
impl Team {
    /// Number of this PE in the team.
    ///
    /// >>> rt.world.rank == rt.rank
    /// True
    #[getter]
    fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of members.
    ///
    /// >>> rt.world.size
    /// 1
    #[getter]
    fn size(&self) -> usize {
        self.pes.len()
    }

    /// PEs of the members, in team order.
    ///
    /// >>> rt.world.pes
    /// [0]
    #[getter]
    fn pes(&self) -> Vec<u32> {
        self.pes.clone()
    }

    /// Creates a team of the members `start`, `start + stride` and so on, `size` members in all. Collective over this
    /// team.
    ///
    /// Returns `None` on PEs that are not in the new team.
    ///
    /// >>> even = rt.world.split_strided(0, 2, (rt.world_size + 1) // 2)
    /// >>> if even is not None:
    /// ...     rt.barrier(even)
    fn split_strided(&self, py: Python<'_>, start: u32, stride: i32, size: u32) -> PyResult<Option<Self>> {
        let (session, parent) = (Arc::clone(&self.session), self.team);
        interruptible(py, move || {
            session.with(|started| {
                let pe = started.pe();
                let team = pe.team_split_strided(parent, start, stride, size, TeamConfig::new())?;
                team.is_valid().then(|| Self::new(&session, pe, team)).transpose()
            })
        })
    }

    /// Destroys the team. Collective over its members.
    ///
    /// >>> team = rt.world.split_strided(0, 1, 1)
    /// >>> team.destroy()
    fn destroy(&self, py: Python<'_>) -> PyResult<()> {
        if self.team == rushmem_device::Team::WORLD {
            return Err(misuse(py, "destroy", "the team of all PEs cannot be destroyed"));
        }
        let (session, team) = (Arc::clone(&self.session), self.team);
        interruptible(py, move || session.with(|started| started.pe().team_destroy(team)))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Destroys the team. If the block raised an exception, does nothing, because other members may never make the call.
    fn __exit__(
        &self,
        py: Python<'_>,
        class: Option<Bound<'_, PyType>>,
        _value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let session = Arc::clone(&self.session);
        let is_over = brief(py, || Ok(session.is_finished()))?;
        if class.is_some() || is_over { Ok(()) } else { self.destroy(py) }
    }

    fn __repr__(&self) -> String {
        format!("<rushmem team of {} PEs, rank {}>", self.pes.len(), self.rank)
    }
}
