//! The GPU architecture and PTX version to compile for.

use std::borrow::Cow;
use std::fmt;

/// A GPU architecture and a PTX version to compile for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Architecture in the `.target` directive, such as `sm_75`. Drivers also translate the PTX for newer GPUs.
    pub arch: String,
    /// PTX version, major and minor, in the `.version` directive. Drivers older than that cannot load the PTX.
    pub isa: (u32, u32),
}

/// Turing, with the PTX version of CUDA 12.7, which drivers of release 565 or newer can load.
pub const DEFAULT_TARGET: (&str, (u32, u32)) = ("sm_75", (8, 6));

/// The first PTX version with `fence.release`, which precedes doorbells on Hopper and newer GPUs.
pub(crate) const OLDEST_ISA: (u32, u32) = (8, 6);

/// Separates an instruction for all GPUs from its replacement for Hopper and newer. To PTX, the separator starts a
/// comment. `rushmem-cuda` splits lines at the same separator when it loads a module.
const HOPPER: &str = " // sm_90: ";

/// Waits for the grids before this one in the stream. Older GPUs start a grid when these have completed.
const AWAIT_GRIDS: &str = "griddepcontrol.wait;";

impl Default for Target {
    fn default() -> Self {
        let (arch, isa) = DEFAULT_TARGET;
        Self { arch: arch.into(), isa }
    }
}

impl Target {
    /// Returns the rustc options that select the architecture and the PTX version.
    pub(crate) fn flags(&self) -> [String; 2] {
        let (major, minor) = self.isa;
        [format!("-Ctarget-cpu={}", self.arch), format!("-Ctarget-feature=+ptx{major}{minor}")]
    }

    /// Returns whether the architecture is Hopper or newer.
    pub(crate) fn is_hopper(&self) -> bool {
        is_hopper(&self.arch)
    }

    /// Replaces instructions that require Hopper: one-way fences by stronger ones that all GPUs have, and
    /// [`AWAIT_GRIDS`] by nothing. The original is kept in a comment after [`HOPPER`]. PTX for Hopper is not changed.
    pub(crate) fn apply<'a>(&self, ptx: &'a str) -> Cow<'a, str> {
        if self.is_hopper() {
            return Cow::Borrowed(ptx);
        }
        let mut out = String::with_capacity(ptx.len() + 4096);
        for line in ptx.lines() {
            let code = line.trim();
            if code == format!(".target {}", self.arch) {
                out += &format!("{line}{HOPPER}.target sm_90");
            } else if let Some(scope) = one_way_fence(code) {
                out += &format!("\tfence.acq_rel.{scope}{HOPPER}{code}");
            } else if code == AWAIT_GRIDS {
                out += &format!("\t{HOPPER}{code}");
            } else {
                out += line;
            }
            out.push('\n');
        }
        Cow::Owned(out)
    }
}

/// Returns the scope of a one-way fence: `gpu;` for `fence.release.gpu;` or `fence.acquire.gpu;`.
fn one_way_fence(code: &str) -> Option<&str> {
    code.strip_prefix("fence.release.").or_else(|| code.strip_prefix("fence.acquire."))
}

/// Returns whether `arch`, such as `sm_90`, is Hopper or newer.
pub(crate) fn is_hopper(arch: &str) -> bool {
    let digits = arch.trim_start_matches("sm_").trim_end_matches(|c: char| !c.is_ascii_digit());
    digits.parse::<u32>().is_ok_and(|number| number >= 90)
}

/// Returns `ptx` with the fences that the runtime would choose for GPUs of architecture `arch`, such as `sm_90`.
pub(crate) fn for_arch<'a>(ptx: &'a str, arch: &str) -> Cow<'a, str> {
    if !is_hopper(arch) || !ptx.contains(HOPPER) {
        return Cow::Borrowed(ptx);
    }
    let lines = ptx.lines().map(|line| line.split_once(HOPPER).map_or(line, |(_, hopper)| hopper));
    Cow::Owned(lines.flat_map(|line| [line, "\n"]).collect())
}

/// Returns `ptx` without the instructions that the runtime would choose for Hopper and newer.
pub(crate) fn for_older(ptx: &str) -> String {
    let lines = ptx.lines().map(|line| line.split_once(HOPPER).map_or(line, |(older, _)| older));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Formats the target as in the [`Header`](crate::Header) of a PTX file.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, PTX {}.{}", self.arch, self.isa.0, self.isa.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOPPER_PTX: &str =
        ".version 8.6\n.target sm_90\n.entry k()\n{\nfence.release.gpu;\nfence.acquire.sys;\n\tret;\n}\n";

    #[test]
    fn older_gpus_get_stronger_fences() {
        let made = HOPPER_PTX.replace("sm_90", "sm_75").replace("fence.", "\tfence.");
        let all = Target::default().apply(&made).into_owned();
        assert_eq!(
            all,
            ".version 8.6\n.target sm_75 // sm_90: .target sm_90\n.entry k()\n{\n\tfence.acq_rel.gpu; // sm_90: \
             fence.release.gpu;\n\tfence.acq_rel.sys; // sm_90: fence.acquire.sys;\n\tret;\n}\n"
        );
        for arch in ["sm_75", "sm_80", "sm_89"] {
            assert_eq!(for_arch(&all, arch), all);
        }
        for arch in ["sm_90", "sm_90a", "sm_100", "sm_120f"] {
            assert_eq!(for_arch(&all, arch), HOPPER_PTX);
        }
    }

    #[test]
    fn older_gpus_do_not_wait_for_earlier_grids() {
        let made = ".target sm_75\n.entry k()\n{\n\tgriddepcontrol.wait;\n\tret;\n}\n";
        let all = Target::default().apply(made).into_owned();
        let waits = |text: &str| text.lines().any(|line| line.trim() == AWAIT_GRIDS);
        assert!(waits(&for_arch(&all, "sm_90")) && !waits(&all), "{all}");
        // No newer GPU adds it to text that is meant for older ones.
        let older = for_older(&all);
        assert_eq!(for_arch(&older, "sm_90"), older);
    }

    #[test]
    fn ptx_for_hopper_stays_the_same() {
        let target = Target { arch: "sm_90".into(), ..Target::default() };
        assert_eq!(target.apply(HOPPER_PTX), HOPPER_PTX);
        assert_eq!(for_arch(HOPPER_PTX, "sm_100"), HOPPER_PTX);
    }
}
