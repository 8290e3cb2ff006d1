//! Estimates the offset between the clock of a PE's machine and the clock of PE 0.
//!
//! All PEs take part in several exchanges of messages. Nobody leaves an exchange before all have arrived, so each one
//! bounds the offset: this PE leaves after PE 0 has arrived, and PE 0 leaves after this PE has arrived. The tightest
//! bounds of all exchanges are used.

/// Size of the message that a PE contributes to each exchange, in bytes.
const BYTES: usize = 16;

/// Offset of a PE's clock from the clock of PE 0, with its uncertainty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    /// Nanoseconds to add to this PE's time to get PE 0's time.
    pub ns: i64,
    /// Upper bound on the error of the offset, in nanoseconds.
    pub error_ns: u64,
}

/// Times at which a PE arrived at a collective exchange and left it, by its own clock.
#[derive(Clone, Copy, Debug)]
struct Meeting {
    come: u64,
    leave: u64,
}

/// Estimates the offset of a PE's clock from the times of collective exchanges that include PE 0.
#[derive(Clone, Debug, Default)]
pub struct ClockMeetings {
    /// This PE's times of the last exchange. When PE 0 left it is known only from the next message.
    mine: Option<Meeting>,
    /// When PE 0 arrived at the last exchange, by its own clock.
    reference_come: u64,
    come: u64,
    lower: Option<i64>,
    upper: Option<i64>,
}

impl ClockMeetings {
    /// Records that this PE starts an exchange at time `now`. Returns the message to contribute.
    pub fn arrive(&mut self, now: u64) -> [u8; BYTES] {
        self.come = now;
        let leave = self.mine.map_or(0, |meeting| meeting.leave);
        let mut message = [0; BYTES];
        message[..8].copy_from_slice(&now.to_le_bytes());
        message[8..].copy_from_slice(&leave.to_le_bytes());
        message
    }

    /// Records that this PE leaves an exchange at time `now`, having received PE 0's message `reference`. Returns
    /// whether the message is well-formed.
    pub fn leave(&mut self, reference: &[u8], now: u64) -> bool {
        let Ok(message) = <[u8; BYTES]>::try_from(reference) else { return false };
        let word =
            |at: usize| message[at..].iter().take(8).rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        let (come, last_leave) = (word(0), word(8));
        // Only now is it known when PE 0 left the previous meeting.
        if let Some(mine) = self.mine.take() {
            self.add(Meeting { come: self.reference_come, leave: last_leave }, mine);
        }
        self.mine = Some(Meeting { come: self.come, leave: now });
        self.reference_come = come;
        true
    }

    fn add(&mut self, reference: Meeting, mine: Meeting) {
        let difference = |a: u64, b: u64| a.wrapping_sub(b) as i64;
        let lower = difference(reference.come, mine.leave);
        let upper = difference(reference.leave, mine.come);
        self.lower = Some(self.lower.map_or(lower, |before| before.max(lower)));
        self.upper = Some(self.upper.map_or(upper, |before| before.min(upper)));
    }

    /// Returns the estimated offset, once there have been two exchanges.
    pub fn offset(&self) -> Option<ClockOffset> {
        let (lower, upper) = (self.lower?, self.upper?);
        // The bounds cross if a clock was set in between. The error then covers both.
        let width = lower.abs_diff(upper);
        Some(ClockOffset {
            ns: lower.min(upper).saturating_add_unsigned(width / 2),
            error_ns: width.div_ceil(2),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }
    }

    #[test]
    fn offset_error_stays_within_the_bound() {
        let mut random = Random(7);
        for offset in [0, 1_000, -3_000_000_000, 86_400_000_000_000, -5] {
            // The clock of PE 1 is behind if the offset is positive.
            let start = 1_700_000_000_000_000_000_u64;
            let clock = |pe: usize, time: u64| if pe == 0 { time } else { time.wrapping_add_signed(-offset) };
            let mut pes = [ClockMeetings::default(), ClockMeetings::default()];
            let mut time = start;
            for _ in 0..12 {
                let comes = [time + random.below(80_000), time + random.below(80_000)];
                let messages = [0, 1].map(|pe| pes[pe].arrive(clock(pe, comes[pe])));
                let all_here = comes[0].max(comes[1]) + 10_000 + random.below(30_000);
                for (pe, meetings) in pes.iter_mut().enumerate() {
                    let leave = all_here + 5_000 + random.below(40_000);
                    assert!(meetings.leave(&messages[0], clock(pe, leave)));
                    time = time.max(leave);
                }
            }
            let found = pes[1].offset().unwrap();
            assert!(found.ns.abs_diff(offset) <= found.error_ns, "{offset}: {found:?}");
            assert!(found.error_ns < 60_000, "{offset}: {found:?}");
        }
    }

    #[test]
    fn one_meeting_or_a_malformed_message_gives_no_offset() {
        let mut meetings = ClockMeetings::default();
        let message = meetings.arrive(5);
        assert!(meetings.leave(&message, 9) && meetings.offset().is_none());
        meetings.arrive(10);
        assert!(!meetings.leave(&message[1..], 11) && meetings.offset().is_none());
    }

    #[test]
    fn crossed_bounds_have_a_positive_error() {
        let meetings = ClockMeetings { lower: Some(50), upper: Some(-51), ..ClockMeetings::default() };
        assert_eq!(meetings.offset(), Some(ClockOffset { ns: -1, error_ns: 51 }));
    }
}
