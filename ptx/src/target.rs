//! Which GPUs the PTX is for.

use std::fmt;

/// A GPU architecture and the version of PTX to write for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As `.target` names it: `sm_90`. Newer GPUs run it too; the driver translates.
    pub arch: String,
    /// `.version`, major and minor. It bounds from below the driver that can load the PTX.
    pub isa: (u32, u32),
}

/// Hopper, with the PTX of CUDA 12.7: every driver from release 565 on loads it.
pub const DEFAULT_TARGET: (&str, (u32, u32)) = ("sm_90", (8, 6));

/// Below this version `ptxas` refuses `fence.release`, which precedes doorbells.
pub(crate) const OLDEST_ISA: (u32, u32) = (8, 6);

impl Default for Target {
    fn default() -> Self {
        let (arch, isa) = DEFAULT_TARGET;
        Self { arch: arch.into(), isa }
    }
}

impl Target {
    /// The compiler's options for this target.
    pub(crate) fn flags(&self) -> [String; 2] {
        let (major, minor) = self.isa;
        [format!("-Ctarget-cpu={}", self.arch), format!("-Ctarget-feature=+ptx{major}{minor}")]
    }
}

/// As in the header of committed PTX.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, PTX {}.{}", self.arch, self.isa.0, self.isa.1)
    }
}
