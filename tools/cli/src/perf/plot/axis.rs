//! Logarithmic axes of plots, with ticks at round values.

/// Maximum number of intervals between the ticks of an axis of message sizes.
const MAX_STEPS: u32 = 6;
/// Maximum number of ticks at 1, 2 and 5 times powers of ten. An axis that would have more has ticks at powers of ten
/// only.
const MAX_TICKS: usize = 10;

/// A logarithmic axis between two round values.
pub(super) struct Axis {
    /// Decimal logarithm of the smallest value on the axis.
    low: f64,
    high: f64,
    pub(super) ticks: Vec<Tick>,
}

/// A labelled value of an axis.
pub(super) struct Tick {
    /// Position on the axis, from 0 to 1.
    pub(super) part: f64,
    pub(super) label: String,
}

impl Axis {
    /// Creates an axis with ticks at powers of two. `values` must be positive.
    pub(super) fn powers_of_two(values: impl Iterator<Item = u64>, label: fn(u64) -> String) -> Self {
        let ceiling = |value: u64| u64::BITS - (value - 1).leading_zeros();
        let bounds = |(low, high): (u32, u32), value: u64| (low.min(value.ilog2()), high.max(ceiling(value)));
        let (low, high) = values.fold((u32::MAX, 0), bounds);
        let (low, high) = if low < high { (low, high) } else { (high, high + 1) };
        let step = (high - low).div_ceil(MAX_STEPS);
        let tick = |power: u32| Some((log_of_power(power), label(1u64.checked_shl(power)?)));
        let ticks = (low..=high).step_by(step as usize).filter_map(tick).collect();
        Self::new(log_of_power(low), log_of_power(high), ticks)
    }

    /// Creates an axis with ticks at 1, 2 and 5 times powers of ten. `values` must be positive.
    pub(super) fn decades(values: impl Iterator<Item = f64>) -> Self {
        let bounds = |(low, high): (f64, f64), log: f64| (low.min(log), high.max(log));
        let (low, high) = values.map(f64::log10).fold((f64::INFINITY, f64::NEG_INFINITY), bounds);
        let first = Round::at_most(low);
        let last = Round::at_least(high).max(Round(first.0 + 1));
        let all = || (first.0..=last.0).map(Round);
        let decades = || all().filter(|round| round.mantissa() == 1);
        let ticks: Vec<Round> = match all().count() {
            0..=MAX_TICKS => all().collect(),
            _ => decades().step_by(decades().count().div_ceil(MAX_TICKS)).collect(),
        };
        Self::new(
            first.log(),
            last.log(),
            ticks.into_iter().map(|round| (round.log(), round.label())).collect(),
        )
    }

    fn new(low: f64, high: f64, ticks: Vec<(f64, String)>) -> Self {
        let tick = |(log, label): (f64, String)| Tick { part: (log - low) / (high - low), label };
        Self { low, high, ticks: ticks.into_iter().map(tick).collect() }
    }

    /// Returns the position of a positive value, from 0 to 1.
    pub(super) fn part(&self, value: f64) -> f64 {
        (value.log10() - self.low) / (self.high - self.low)
    }
}

fn log_of_power(power: u32) -> f64 {
    f64::from(power) * 2f64.log10()
}

/// A round value: element `i` of the sequence ..., 0.5, 1, 2, 5, 10, ..., in which 1 is element 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Round(i32);

impl Round {
    /// Returns the largest round value with a logarithm of at most `log`.
    fn at_most(log: f64) -> Self {
        let decade = log.floor() as i32 * 3;
        // Tolerate rounding errors in the logarithms.
        (decade..decade + 3).rev().map(Round).find(|round| round.log() <= log + 1e-9).unwrap_or(Round(decade))
    }

    /// Returns the smallest round value with a logarithm of at least `log`.
    fn at_least(log: f64) -> Self {
        let below = Self::at_most(log);
        if below.log() >= log - 1e-9 { below } else { Round(below.0 + 1) }
    }

    fn mantissa(self) -> u32 {
        [1, 2, 5][self.0.rem_euclid(3) as usize]
    }

    fn exponent(self) -> i32 {
        self.0.div_euclid(3)
    }

    fn log(self) -> f64 {
        f64::from(self.exponent()) + f64::from(self.mantissa()).log10()
    }

    fn label(self) -> String {
        let mantissa = self.mantissa();
        match self.exponent() {
            exponent @ -6..=-1 => {
                let digits = exponent.unsigned_abs() as usize;
                format!("0.{mantissa:0>digits$}")
            }
            exponent @ 0..=6 => format!("{}", u64::from(mantissa) * 10u64.pow(exponent as u32)),
            exponent => format!("{mantissa}e{exponent}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn values_have_ticks_at_1_2_and_5() {
        assert_eq!(labels(&Axis::decades([0.7601, 14.2].into_iter())), ["0.5", "1", "2", "5", "10", "20"]);
        assert_eq!(labels(&Axis::decades([2.0].into_iter())), ["2", "5"]);
        assert_eq!(labels(&Axis::decades([0.001, 0.002].into_iter())), ["0.001", "0.002"]);
    }

    #[test]
    fn wide_ranges_have_ticks_at_powers_of_ten() {
        assert_eq!(labels(&Axis::decades([0.03, 700.0].into_iter())), ["0.1", "1", "10", "100", "1000"]);
        let extreme = Axis::decades([f64::MIN_POSITIVE, f64::MAX].into_iter());
        assert!(extreme.ticks.len() <= MAX_TICKS && extreme.part(f64::MAX) <= 1.0);
    }

    #[test]
    fn sizes_have_ticks_at_powers_of_two() {
        let axis = |values: &[u64]| Axis::powers_of_two(values.iter().copied(), |value| value.to_string());
        assert_eq!(labels(&axis(&[1, 2, 4, 8])), ["1", "2", "4", "8"]);
        assert_eq!(labels(&axis(&[24, 100])), ["16", "32", "64", "128"]);
        assert_eq!(labels(&axis(&[8])), ["8", "16"]);
        assert_eq!(labels(&axis(&[8, 256 << 20])).len(), 6);
        assert!(axis(&[1, u64::MAX]).part(u64::MAX as f64) <= 1.0);
    }
}
