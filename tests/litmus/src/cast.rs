//! Assigns the roles of a litmus test to PEs.

use crate::path::Path;
use crate::program::{Needs, Test};

/// An assignment of a test's consecutive roles to consecutive PEs, wrapping around at a number of PEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    first: u32,
    circle: u32,
}

impl Cast {
    /// Assigns all roles to PE 0.
    const FOLDED: Self = Self { first: 0, circle: 1 };

    /// Assigns roles to the PEs starting with `first`, wrapping around at `n_pes`.
    const fn from(first: u32, n_pes: u32) -> Self {
        Self { first, circle: n_pes }
    }

    /// Returns the PE to which a role is assigned.
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

    /// Returns the suffix that distinguishes this assignment in the title of a path.
    pub(crate) fn label(self, n_pes: u32) -> String {
        match self {
            Self::FOLDED if n_pes > 1 => ", to itself".into(),
            Self { first: 0, .. } => String::new(),
            Self { first, .. } => format!(", from PE {first} on"),
        }
    }

    /// Returns the assignments with which a test runs on a path, in a job that the suite starts itself.
    pub fn on_path(test: &Test, path: &Path) -> Vec<Self> {
        let apart = Self::from(0, path.pes);
        let mut casts = if path.pes > 1 { vec![apart] } else { Vec::new() };
        // Tests for a single PE also run in larger jobs.
        if path.folded || test.needs == Needs::OnePe {
            casts.push(Self::FOLDED);
        }
        casts.retain(|cast| cast.suits(test));
        casts
    }

    /// Returns the assignments with which a test runs in a launched job of `n_pes` PEs.
    ///
    /// Every PE has a role in one of them, provided there is at most one more PE than there are roles.
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
