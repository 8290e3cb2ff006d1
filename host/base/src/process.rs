//! Parsers for `/proc/<pid>/stat` and `/proc/<pid>/status`.

/// Returns field `i` of a `/proc/<pid>/stat` line, counting from 0 after the PID and the process name.
///
/// The name may contain spaces and parentheses.
pub fn stat_field(stat: &str, i: usize) -> Option<&str> {
    stat.rsplit_once(") ")?.1.split(' ').nth(i)
}

/// Returns whether a signal set in `/proc/<pid>/status`, such as `SigCgt`, contains `signal`, or `None` if the file has
/// no such set.
pub fn has_signal(status: &str, set: &str, signal: i32) -> Option<bool> {
    let mask = u64::from_str_radix(status_entry(status, set)?, 16).ok()?;
    Some(mask >> (signal - 1) & 1 != 0)
}

/// Returns an amount of memory from `/proc/<pid>/status`, such as `VmRSS`, in bytes, or `None` if the file has no such
/// entry.
pub fn status_bytes(status: &str, name: &str) -> Option<u64> {
    let kib: u64 = status_entry(status, name)?.strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

fn status_entry<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_fields_after_the_name() {
        let stat = "7 (a) b) S 1 42 3\n";
        assert_eq!([0, 1, 2].map(|i| stat_field(stat, i)), [Some("S"), Some("1"), Some("42")]);
        assert_eq!((stat_field(stat, 9), stat_field("7", 0)), (None, None));
    }

    #[test]
    fn parses_amounts_of_memory_in_kib() {
        let status = "VmRSSx:\t1 kB\nVmRSS:\t    3468 kB\nRssAnon:\t7\n";
        assert_eq!(status_bytes(status, "VmRSS"), Some(3468 << 10));
        assert_eq!((status_bytes(status, "RssAnon"), status_bytes(status, "VmHWM")), (None, None));
    }

    #[test]
    fn parses_sets_of_signals() {
        let status = "Name:\ta\nSigIgn:\t0000000000000200\nSigCgt:\tx\n";
        assert_eq!(
            [9, 10, 11].map(|signal| has_signal(status, "SigIgn", signal)),
            [Some(false), Some(true), Some(false)]
        );
        assert_eq!((has_signal(status, "SigCgt", 10), has_signal(status, "SigBlk", 10)), (None, None));
    }
}
