//! Measures the CPU time that the processes of a job use.

use std::collections::BTreeMap;
use std::fs;

use rushmem::Pe;
use rushmem_examples::Result;

/// Ticks of `/proc/self/stat` per second (`USER_HZ`), which is always 100 on x86-64.
const TICKS: f64 = 100.0;

pub(crate) fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Returns the CPU time that all processes of the job have used so far, in seconds over all cores. Collective.
pub(crate) fn seconds(pe: &Pe) -> Result<f64> {
    // Several PEs may be threads of one process, which must be counted once.
    let process = format!("{} {}", host(), std::process::id());
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let mine = format!("{process}\n{}", ticks(&stat).unwrap_or(0));
    let mut processes = BTreeMap::new();
    for other in pe.allgather(mine.as_bytes())? {
        let other = String::from_utf8_lossy(&other).into_owned();
        if let Some((process, ticks)) = other.split_once('\n') {
            processes.insert(process.to_owned(), ticks.parse::<u64>().unwrap_or(0));
        }
    }
    Ok(processes.values().sum::<u64>() as f64 / TICKS)
}

/// Returns the user plus system time from a line of `/proc/*/stat`, in ticks.
fn ticks(stat: &str) -> Option<u64> {
    // The program name is in parentheses and may itself contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_are_parsed_after_any_program_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 30 12 0 0 20 0 1 0 5 1000 10";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks(""), None);
    }
}
