//! Readable names for the mangled symbols in PTX.

/// Demangles a symbol to its Rust path without hashes, such as `core::option::unwrap_failed`. Returns `None` if it is
/// not mangled, as for kernels.
///
/// PTX names cannot contain dots, so LLVM writes `_$_` instead.
pub(super) fn rust_path(symbol: &str) -> Option<String> {
    let name = symbol.replace("_$_", ".");
    rustc_demangle::try_demangle(&name).ok().map(|path| format!("{path:#}"))
}

pub(super) fn readable(symbol: &str) -> String {
    rust_path(symbol).unwrap_or_else(|| symbol.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_manglings_and_copies_of_functions() {
        for (symbol, path) in [
            ("_RNvNtCs2DxGA1hvVcO_4core6option13unwrap_failed", "core::option::unwrap_failed"),
            (
                "_RINvNtCs2DxGA1hvVcO_4core9panicking13assert_failedyyEB4_",
                "core::panicking::assert_failed::<u64, u64>",
            ),
            ("_ZN4core9panicking9panic_fmt17h0123456789abcdefE", "core::panicking::panic_fmt"),
            (
                "_RNvNtNtCsbwdfAcxKuFZ_14rushmem_device4coll4fold4fold_$_specialized_$_1",
                "rushmem_device::coll::fold::fold.specialized.1",
            ),
        ] {
            assert_eq!(rust_path(symbol).as_deref(), Some(path));
            assert_eq!(readable(symbol), path);
        }
    }

    #[test]
    fn leaves_names_of_kernels_alone() {
        for kernel in ["panics", "no_panic_reduce", "_Reduce", "core9panicking5panic"] {
            assert_eq!(rust_path(kernel), None);
            assert_eq!(readable(kernel), kernel);
        }
    }
}
