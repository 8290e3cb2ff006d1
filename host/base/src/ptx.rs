//! Defines [`Ptx`], an application's GPU kernels as its build script has compiled them.

/// The PTX of a kernel module or kernel crate, built by `rushmem-ptx` and embedded by the macro `rushmem::ptx!`.
#[derive(Clone, Copy, Debug)]
pub struct Ptx {
    /// Name of the kernel module or kernel crate.
    pub name: &'static str,
    /// PTX text for the oldest supported GPU architecture, with replacement instructions for Hopper and newer in
    /// comments. Empty if the build omitted the PTX.
    pub image: &'static str,
    /// The reason why the build omitted the PTX, and what to do about it. Empty if there is PTX.
    pub omitted: &'static str,
    /// Machine code (a cubin) of the same kernels. Empty unless the application was built with `RUSHMEM_PTX_CUBIN`.
    /// GPUs of other architectures use the PTX.
    pub code: &'static [u8],
}

/// Entry of the index that `rushmem-ptx` generates: name, PTX, machine code, and why the PTX is missing.
type Entry = (&'static str, &'static str, &'static [u8], &'static str);

impl Ptx {
    /// Finds the PTX of the kernel module or crate `name`. Called by the macro `rushmem::ptx!` at compile time.
    ///
    /// # Panics
    /// Panics if the index has no such name, which is a compiler error at compile time.
    #[doc(hidden)]
    pub const fn find(index: &[Entry], name: &'static str) -> Self {
        let mut rest = index;
        while let [(entry, image, code, omitted), more @ ..] = rest {
            if is_same(entry.as_bytes(), name.as_bytes()) {
                return Self { name, image, omitted, code };
            }
            rest = more;
        }
        panic!(
            "build.rs builds no kernels of this name; ptx! needs the name of the module, or of the kernel crate with \
             `_` for `-`"
        )
    }
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    match (a, b) {
        ([], []) => true,
        ([first, a @ ..], [second, b @ ..]) => *first == *second && is_same(a, b),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &[Entry] = &[("one", "ptx", b"code", ""), ("one_more", "", b"", "left out")];

    #[test]
    fn finds_kernels_by_name() {
        let (one, more) = (Ptx::find(INDEX, "one"), Ptx::find(INDEX, "one_more"));
        assert_eq!((one.name, one.image, one.code, one.omitted), ("one", "ptx", &b"code"[..], ""));
        assert_eq!((more.name, more.image, more.omitted), ("one_more", "", "left out"));
    }

    #[test]
    #[should_panic = "build.rs builds no kernels of this name"]
    fn rejects_unknown_names() {
        Ptx::find(INDEX, "on");
    }
}
