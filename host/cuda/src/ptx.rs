//! Selects the PTX or machine code of kernels that suits one GPU.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::error::{Capability, Error};

/// PTX text and machine code of a module's kernels, to be loaded to a GPU.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// Name of the module, for error messages.
    pub name: &'a str,
    /// PTX text with Hopper replacements in comments, as `rushmem-ptx` writes it.
    pub ptx: &'a str,
    /// Machine code of the same kernels, for a single architecture. May be empty.
    pub code: &'a [u8],
    /// Architecture for which PTX is chosen instead of the GPU's own. If set, the machine code is not used.
    pub arch: Option<Capability>,
}

/// Text in a line of PTX between an instruction for all GPUs and its replacement for Hopper and newer.
const HOPPER_MARK: &str = " // sm_90: ";

const HOPPER: Capability = (9, 0);

impl<'a> Image<'a> {
    /// Returns the PTX for a GPU of this capability. For Hopper and newer, the marked lines are replaced: these GPUs
    /// have one-way fences, which are cheaper.
    ///
    /// # Errors
    /// - [`Error::OldGpu`] if the PTX is for newer GPUs only
    pub(crate) fn text(&self, gpu: Capability) -> Result<Cow<'a, str>, Error> {
        let gpu = self.arch.unwrap_or(gpu);
        let wanted = target(self.ptx);
        if wanted.is_some_and(|wanted| wanted > gpu) {
            let wanted = wanted.unwrap_or_default();
            return Err(Error::OldGpu { module: self.name.to_owned(), wanted, found: gpu });
        }
        if gpu < HOPPER || !self.ptx.contains(HOPPER_MARK) {
            return Ok(Cow::Borrowed(self.ptx));
        }
        let newest = |line: &'a str| line.split_once(HOPPER_MARK).map_or(line, |(_, hopper)| hopper);
        Ok(Cow::Owned(self.ptx.lines().flat_map(|line| [newest(line), "\n"]).collect()))
    }

    /// Returns the machine code, or nothing if another architecture is forced.
    pub(crate) fn code(&self) -> &'a [u8] {
        if self.arch.is_some() { &[] } else { self.code }
    }
}

/// Returns the capability that the PTX targets: `(7, 5)` for `.target sm_75`.
fn target(ptx: &str) -> Option<Capability> {
    let line = ptx.lines().find_map(|line| line.strip_prefix(".target sm_"))?;
    let digits = line.split(|c: char| !c.is_ascii_digit()).next()?;
    let number: u32 = digits.parse().ok()?;
    Some((number / 10, number % 10))
}

/// A kernel in a PTX text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtxKernel {
    /// Number of parameters.
    pub parameters: usize,
    /// Whether the kernel starts by waiting for the earlier work of its stream.
    pub awaits_stream: bool,
}

/// Returns the kernels in a PTX text, by name.
pub fn ptx_kernels(ptx: &str) -> HashMap<String, PtxKernel> {
    ptx.split(".visible .entry ")
        .skip(1)
        .filter_map(|text| {
            let (name, rest) = text.split_once('(')?;
            let (parameters, body) = rest.split_once(')')?;
            // Only a wait before the first label, branch or closing brace is one of all threads.
            let ends_prologue = |line: &str| line.starts_with(['$', '@', '}']) || line.starts_with("bra");
            let mut prologue = body.lines().map(str::trim).take_while(|line| !ends_prologue(line));
            let awaits_stream = prologue.any(|line| line == "griddepcontrol.wait;");
            Some((
                name.trim().to_owned(),
                PtxKernel { parameters: parameters.matches(".param").count(), awaits_stream },
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = ".version 8.6\n.target sm_75 // sm_90: .target sm_90\n\tfence.acq_rel.gpu; // sm_90: fence.release.gpu;\n";

    fn image(arch: Option<Capability>) -> Image<'static> {
        Image { name: "k", ptx: ALL, code: b"code", arch }
    }

    #[test]
    fn only_hopper_and_newer_get_one_way_fences() {
        for old in [(7, 5), (8, 0), (8, 9)] {
            assert_eq!(image(None).text(old).unwrap(), ALL);
        }
        for new in [(9, 0), (10, 0), (12, 0)] {
            assert_eq!(image(None).text(new).unwrap(), ".version 8.6\n.target sm_90\nfence.release.gpu;\n");
        }
    }

    #[test]
    fn forced_architecture_overrides_the_gpu() {
        assert_eq!(image(Some((8, 0))).text((9, 0)).unwrap(), ALL);
        assert_eq!((image(None).code(), image(Some((8, 0))).code()), (&b"code"[..], &b""[..]));
    }

    #[test]
    fn rejects_older_gpus() {
        let error = image(None).text((7, 0)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the kernels of k are for GPUs of sm_75 and newer, but this GPU is sm_70. Use a newer GPU, build the \
             kernels for older ones (rushmem_ptx::Builder::arch), or set RUSHMEM_DEVICE=native"
        );
        let newest = Image { ptx: ".target sm_100a\n", ..image(None) };
        assert!(newest.text((9, 0)).is_err() && newest.text((10, 0)).is_ok());
    }

    #[test]
    fn finds_kernels_and_what_launches_need_to_know() {
        let ptx = ".visible .func f(.param .b32 x)\n.visible .entry a()\n{\n\t // sm_90: griddepcontrol.wait;\n}\n\
                   .visible .entry b (\n\t.param .align 8 .b8 b_param_0[88],\n\t.param .u32 b_param_1\n)\n{\n\
                   griddepcontrol.wait;\n}\n.visible .entry c()\n{\n}\n.func g()\n{\ngriddepcontrol.wait;\n}\n.visible .entry d()\n{\n@%p1 bra $L1;\n\
                   griddepcontrol.wait;\n$L1:\n}\n";
        let found = ptx_kernels(ptx);
        let kernel = |parameters, awaits_stream| PtxKernel { parameters, awaits_stream };
        assert_eq!((found.len(), found["a"], found["b"]), (4, kernel(0, false), kernel(2, true)));
        assert_eq!((found["c"], found["d"]), (kernel(0, false), kernel(0, false)));
    }
}
