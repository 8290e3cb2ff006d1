//! Kernels of an application, as its build has compiled them.

/// The PTX of a kernel crate, built by `rushmem-ptx`. The macro [`ptx!`](crate::ptx!) creates it.
#[derive(Clone, Copy, Debug)]
pub struct Ptx {
    /// The name of the kernel crate.
    pub name: &'static str,
    /// PTX text for the oldest GPUs; empty if the build left it out. Comments in it have instructions for Hopper and newer.
    pub image: &'static str,
    /// The reason why the build left the PTX out, with the remedy; empty if there is PTX.
    pub omitted: &'static str,
    /// Machine code of the same kernels; empty unless built with `RUSHMEM_PTX_CUBIN`. GPUs of other architectures use
    /// the PTX.
    pub code: &'static [u8],
}

/// The entry of a kernel crate in the index that `rushmem-ptx` writes: name, PTX, machine code, and reason for missing
/// PTX.
type Entry = (&'static str, &'static str, &'static [u8], &'static str);

impl Ptx {
    /// Returns the PTX of the kernel crate `name`. The macro [`ptx!`](crate::ptx!) calls this at compile time.
    ///
    /// # Panics
    /// If the index has no such crate. This is an error of the compiler then.
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
            "build.rs builds no kernel crate of this name; ptx! needs its name in Cargo.toml with `_` for `-`"
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

/// Includes the [`Ptx`] of a kernel crate, which the application's `build.rs` has built.
///
/// The argument is the crate's name with `_` for `-`, a string literal: `Job::new()?.kernels(rushmem::ptx!("ring_kernels"))`.
#[macro_export]
macro_rules! ptx {
    ($name:literal) => {{
        // A static is in the program once, even if the compiler inlines the function with this macro many times.
        static PTX: $crate::Ptx = $crate::Ptx::find(
            include!(env!(
                "KERNEL_PTX_INDEX",
                "rushmem::ptx! needs a build.rs that calls rushmem_ptx::build(\"kernels\"), with the folder of the kernel \
                 crate, and rushmem-ptx in [build-dependencies]"
            )),
            $name,
        );
        PTX
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &[Entry] = &[("one", "ptx", b"code", ""), ("one_more", "", b"", "left out")];

    #[test]
    fn finds_kernel_crates_by_name() {
        let (one, more) = (Ptx::find(INDEX, "one"), Ptx::find(INDEX, "one_more"));
        assert_eq!((one.name, one.image, one.code, one.omitted), ("one", "ptx", &b"code"[..], ""));
        assert_eq!((more.name, more.image, more.omitted), ("one_more", "", "left out"));
    }

    #[test]
    #[should_panic = "build.rs builds no kernel crate of this name"]
    fn rejects_unknown_kernel_crates() {
        Ptx::find(INDEX, "on");
    }
}
