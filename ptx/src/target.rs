//! The GPUs that PTX is compiled for.

use std::fmt;

/// A GPU architecture and a version of PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The operand of `.target`, such as `sm_90`. The driver translates the PTX for newer GPUs.
    pub arch: String,
    /// The operand of `.version`, major and minor. Older drivers cannot load the PTX.
    pub isa: (u32, u32),
}

/// Hopper, with the PTX version of CUDA 12.7. Drivers of release 565 and later load it.
pub const DEFAULT_TARGET: (&str, (u32, u32)) = ("sm_90", (8, 6));

/// The oldest PTX version with `fence.release`, which precedes doorbells.
pub(crate) const OLDEST_ISA: (u32, u32) = (8, 6);

impl Default for Target {
    fn default() -> Self {
        let (arch, isa) = DEFAULT_TARGET;
        Self { arch: arch.into(), isa }
    }
}

impl Target {
    /// Returns the compiler's options for this target.
    pub(crate) fn flags(&self) -> [String; 2] {
        let (major, minor) = self.isa;
        [format!("-Ctarget-cpu={}", self.arch), format!("-Ctarget-feature=+ptx{major}{minor}")]
    }
}

/// Writes the target in the form that [`Header`](crate::Header) has.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, PTX {}.{}", self.arch, self.isa.0, self.isa.1)
    }
}
