//! Signs of life of the PEs of a job, for the heartbeats of its server. It has no clock and no I/O.

use std::time::{Duration, Instant};

/// What the server has to do about a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// Ask for a sign of life.
    Ping,
    /// The PE has been silent for too long.
    Loss,
}

#[derive(Clone, Default)]
struct Signs {
    /// Time of the first check since the last message.
    silent_since: Option<Instant>,
    /// Whether a ping is unanswered. At most one is, so pings to a stopped process do not pile up.
    is_asked: bool,
}

/// Since when each PE has been silent.
pub(crate) struct Pulse(Vec<Signs>);

impl Pulse {
    pub(crate) fn new(n_pes: u32) -> Pulse {
        Pulse(vec![Signs::default(); n_pes as usize])
    }

    /// Records that a PE has a new connection.
    pub(crate) fn joined(&mut self, pe: u32) {
        self.0[pe as usize] = Signs::default();
    }

    /// Records a message of a PE.
    pub(crate) fn heard(&mut self, pe: u32) {
        self.0[pe as usize].silent_since = None;
    }

    /// Records that a PE has answered the last ping.
    pub(crate) fn answered(&mut self, pe: u32) {
        self.0[pe as usize].is_asked = false;
    }

    /// Returns what is due `now` for a PE that may be silent for `limit`. If this check `is_late`, the server may not
    /// have read what the PE has sent, so the time before it does not count.
    pub(crate) fn check(&mut self, pe: u32, now: Instant, limit: Duration, is_late: bool) -> Due {
        let signs = &mut self.0[pe as usize];
        signs.silent_since.take_if(|_| is_late);
        let since = *signs.silent_since.get_or_insert(now);
        if now.saturating_duration_since(since) > limit {
            Due::Loss
        } else if std::mem::replace(&mut signs.is_asked, true) {
            Due::Nothing
        } else {
            Due::Ping
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(400);

    /// Checks a PE at each of these times, in milliseconds.
    fn checks(pulse: &mut Pulse, begin: Instant, times: &[u64]) -> Vec<Due> {
        let check = |at: &u64| pulse.check(1, begin + Duration::from_millis(*at), LIMIT, false);
        times.iter().map(check).collect()
    }

    #[test]
    fn silent_pe_gets_one_ping_and_is_lost_after_the_limit() {
        let (mut pulse, begin) = (Pulse::new(2), Instant::now());
        let due = checks(&mut pulse, begin, &[0, 100, 400, 401]);
        assert_eq!(due, [Due::Ping, Due::Nothing, Due::Nothing, Due::Loss]);
        pulse.joined(1);
        assert_eq!(checks(&mut pulse, begin, &[500, 600]), [Due::Ping, Due::Nothing]);
    }

    #[test]
    fn any_message_is_a_sign_of_life_and_only_an_answer_brings_another_ping() {
        let (mut pulse, begin) = (Pulse::new(2), Instant::now());
        assert_eq!(checks(&mut pulse, begin, &[0, 300]), [Due::Ping, Due::Nothing]);
        pulse.heard(1);
        assert_eq!(checks(&mut pulse, begin, &[500, 900]), [Due::Nothing; 2]);
        pulse.heard(1);
        pulse.answered(1);
        assert_eq!(checks(&mut pulse, begin, &[1000, 1401]), [Due::Ping, Due::Loss]);
    }

    #[test]
    fn late_check_forgives_the_time_before_it() {
        let (mut pulse, begin) = (Pulse::new(2), Instant::now());
        assert_eq!(checks(&mut pulse, begin, &[0]), [Due::Ping]);
        assert_eq!(pulse.check(1, begin + 9 * LIMIT, LIMIT, true), Due::Nothing);
        assert_eq!(checks(&mut pulse, begin, &[4000, 4001]), [Due::Nothing, Due::Loss]);
    }
}
