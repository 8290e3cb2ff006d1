//! Measures how the clocks of a job's machines differ, for the timeline.

use rushmem_base::boot_id;
use rushmem_observe::trace::PeTrace;
use rushmem_trace::{ClockMeetings, now_ns};

use crate::Result;
use crate::bootstrap::Bootstrap;

/// Number of exchanges by which PEs compare their clocks. The most precise one counts.
const MEETINGS: usize = 12;

/// A PE's contribution to the decision whether clocks must be compared.
pub(super) struct ClockPart(Vec<u8>);

impl ClockPart {
    /// Returns the contribution of this PE: a byte that says whether it has a timeline, followed by the boot ID of its
    /// machine.
    pub(super) fn new(trace: &PeTrace) -> Self {
        let mut part = vec![trace.recorder().is_some().into()];
        part.extend(boot_id().unwrap_or_default().into_bytes());
        Self(part)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether clocks must be compared: all PEs have a timeline, and they are on several machines.
    fn need_comparison(parts: &[&[u8]]) -> bool {
        parts.iter().all(|part| part.first() == Some(&1)) && parts.iter().any(|part| *part != parts[0])
    }
}

/// Measures the offset of this PE's clock from PE 0's, if the contributions `parts` of all PEs require it. Collective.
///
/// # Errors
/// - The errors of the exchange.
pub(super) fn compare(bootstrap: &dyn Bootstrap, trace: &PeTrace, parts: &[&[u8]]) -> Result<()> {
    let Some(recorder) = trace.recorder().filter(|_| ClockPart::need_comparison(parts)) else {
        return Ok(());
    };
    let mut meetings = ClockMeetings::default();
    for _ in 0..MEETINGS {
        let mine = meetings.arrive(now_ns());
        let all = bootstrap.allgather("the comparison of clocks", &mine)?;
        meetings.leave(all.first().map_or(&[], Vec::as_slice), now_ns());
    }
    // The times of PE 0 that a replacement gets are those of the start of the job.
    let is_other = parts.get(bootstrap.pe() as usize) != parts.first() && !bootstrap.replaces();
    if let Some(offset) = meetings.offset().filter(|_| is_other) {
        tracing::debug!(ns = offset.ns, error_ns = offset.error_ns, "the clock of PE 0 differs by");
        recorder.set_clock(offset);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bootstrap::Threads;
    use crate::config::Config;
    use rushmem_observe::trace::JobTrace;

    #[test]
    fn pe_on_another_machine_measures_its_clock_offset() {
        let mut config = Config::default();
        config.set("trace", "never written").unwrap();
        let jobs = [0, 1, 2].map(|_| JobTrace::new(&config, true, &[]).unwrap().unwrap());
        let parts: [&[u8]; 3] = [b"\x01a", b"\x01b", b"\x01a"];
        std::thread::scope(|scope| {
            for (pe, job) in Threads::job(3, Duration::from_secs(60)).into_iter().zip(&jobs) {
                scope.spawn(move || {
                    compare(&pe, &PeTrace::new(Some(job), pe.pe()), &parts).unwrap();
                    pe.finish().unwrap();
                });
            }
        });
        // Both use the same clock, so the measured offset is within its error.
        let errors = jobs.map(|job| job.recorder.trace().clock_error_ns);
        assert!(errors[0] == 0 && errors[1] > 0 && errors[2] == 0, "{errors:?}");
    }

    #[test]
    fn clocks_are_compared_only_across_machines_with_timelines() {
        let need = |parts: &[&[u8]]| ClockPart::need_comparison(parts);
        assert!(need(&[b"\x01a", b"\x01b"]));
        assert!(!need(&[b"\x01a", b"\x01a"]));
        assert!(!need(&[b"\x01a", b"\x00b"]));
        assert!(!need(&[b"", b"\x01b"]));
    }
}
