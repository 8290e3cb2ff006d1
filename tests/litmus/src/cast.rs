//! Which PEs the roles of a test are.

use crate::path::Path;
use crate::program::{Needs, Test};

/// The first role is a PE, the next one the PE after it, and so on round a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    first: u32,
    circle: u32,
}

impl Cast {
    /// All roles are PE 0.
    const FOLDED: Self = Self { first: 0, circle: 1 };

    /// From this PE on, of `n_pes`.
    const fn from(first: u32, n_pes: u32) -> Self {
        Self { first, circle: n_pes }
    }

    /// The PE of a role.
    pub const fn pe_of(self, role: u32) -> u32 {
        (self.first + role) % self.circle
    }

    fn suits(self, test: &Test) -> bool {
        match test.needs {
            Needs::Any => true,
            Needs::Apart => test.roles() <= self.circle,
            Needs::OnePe => self == Self::FOLDED,
        }
    }

    /// What to add to a path's title.
    pub(crate) fn label(self, n_pes: u32) -> String {
        match self {
            Self::FOLDED if n_pes > 1 => ", to itself".into(),
            Self { first: 0, .. } => String::new(),
            Self { first, .. } => format!(", from PE {first} on"),
        }
    }

    /// Those of a test on a path of the suite's own jobs.
    pub fn on_path(test: &Test, path: &Path) -> Vec<Self> {
        let apart = Self::from(0, path.pes);
        let mut casts = if path.pes > 1 { vec![apart] } else { Vec::new() };
        // What makes no sense between PEs is done by one in every job.
        if path.folded || test.needs == Needs::OnePe {
            casts.push(Self::FOLDED);
        }
        casts.retain(|cast| cast.suits(test));
        casts
    }

    /// Those of a test in a job of so many PEs that somebody else has started: each PE has a role in one of them, if the PEs
    /// are no more than the roles and one.
    pub fn in_job(test: &Test, n_pes: u32) -> Vec<Self> {
        let mut casts = vec![Self::from(0, n_pes)];
        if n_pes > 1 {
            casts.push(Self::from(n_pes - 1, n_pes));
            if test.needs == Needs::OnePe {
                casts.push(Self::FOLDED);
            }
        }
        casts.retain(|cast| cast.suits(test));
        casts
    }
}
