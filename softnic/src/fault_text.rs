//! Parses injected faults from text such as `drop=0.01 seed=7 black_hole=10.0.0.2`.

use std::str::FromStr;
use std::time::Duration;

use crate::config::Faults;

/// Error of parsing [`Faults`] from text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is not a valid fault: {expected}")]
pub struct FaultError {
    /// The word that could not be parsed.
    pub word: String,
    /// The accepted words or values, as text.
    pub expected: &'static str,
}

const NAMES: &str = "use words name=value with a name of seed, drop, duplicate, reorder, corrupt, delay, delay_us, black_hole, \
                     completion_delay, completion_delay_us, skip_qp, stall, stall_us, split, late, unordered, hidden_order, posted, force_relaxed, \
                     late_us, loose_atomic, port_falls_us, port_returns_us, port_flaps_us, address_leaves_us, device_fails_us, \
                     cqs_fail_us";

/// Parses words of the form `name=value`, separated by blanks or commas. Faults that are not named keep their defaults.
/// Probabilities are from 0 to 1, times are in microseconds, and `black_hole` may be given several times.
///
/// ```
/// let faults: rushmem_softnic::Faults = "seed=7, drop=0.01 delay_us=50".parse().unwrap();
/// assert_eq!((faults.seed, faults.drop), (7, 0.01));
/// assert!("dorp=0.01".parse::<rushmem_softnic::Faults>().is_err());
/// ```
impl FromStr for Faults {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let mut faults = Faults::default();
        for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
            let wrong = |expected| FaultError { word: word.into(), expected };
            let (name, value) = word.split_once('=').ok_or_else(|| wrong(NAMES))?;
            let probability = || match value.parse::<f64>() {
                Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
                _ => Err(wrong("use a probability from 0 to 1")),
            };
            let micros =
                || value.parse().map(Duration::from_micros).map_err(|_| wrong("use whole microseconds"));
            match name {
                "seed" => faults.seed = value.parse().map_err(|_| wrong("use a whole number"))?,
                "drop" => faults.drop = probability()?,
                "duplicate" => faults.duplicate = probability()?,
                "reorder" => faults.reorder = probability()?,
                "corrupt" => faults.corrupt = probability()?,
                "delay" => faults.delay = probability()?,
                "delay_us" => faults.delay_time = micros()?,
                "black_hole" => {
                    faults.black_hole.push(value.parse().map_err(|_| wrong("use an IPv4 address"))?);
                }
                "completion_delay" => faults.completion_delay = probability()?,
                "completion_delay_us" => faults.completion_delay_time = micros()?,
                "skip_qp" => faults.skip_qp = probability()?,
                "stall" => faults.stall = probability()?,
                "stall_us" => faults.stall_time = micros()?,
                "split" => faults.split = probability()?,
                "late" => faults.late = probability()?,
                "unordered" => faults.unordered = probability()?,
                "hidden_order" => faults.hidden_order = probability()?,
                "posted" => faults.posted = probability()?,
                "force_relaxed" => faults.force_relaxed = probability()?,
                "late_us" => faults.late_time = micros()?,
                "loose_atomic" => faults.loose_atomic = probability()?,
                "port_falls_us" => faults.port_falls = Some(micros()?),
                "port_returns_us" => faults.port_returns = Some(micros()?),
                "port_flaps_us" => faults.port_flaps = Some(micros()?),
                "address_leaves_us" => faults.address_leaves = Some(micros()?),
                "device_fails_us" => faults.device_fails = Some(micros()?),
                "cqs_fail_us" => faults.cqs_fail = Some(micros()?),
                _ => return Err(wrong(NAMES)),
            }
        }
        Ok(faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_name() {
        let text = "seed=9 drop=0.1 duplicate=0.2 reorder=0.3 corrupt=0.4 delay=0.5 delay_us=6 black_hole=10.0.0.7 \
                    completion_delay=0.8 completion_delay_us=9 skip_qp=1 stall=0.11 stall_us=12 split=0.13 \
                    late=0.14 late_us=15 loose_atomic=0.16 unordered=0.17 hidden_order=0.19 posted=0.18 force_relaxed=0.25 \
                    port_falls_us=20 port_returns_us=21 port_flaps_us=25 address_leaves_us=22 device_fails_us=23 cqs_fail_us=24";
        let expected = Faults {
            seed: 9,
            drop: 0.1,
            duplicate: 0.2,
            reorder: 0.3,
            corrupt: 0.4,
            delay: 0.5,
            delay_time: Duration::from_micros(6),
            black_hole: vec![[10, 0, 0, 7].into()],
            completion_delay: 0.8,
            completion_delay_time: Duration::from_micros(9),
            skip_qp: 1.0,
            stall: 0.11,
            stall_time: Duration::from_micros(12),
            split: 0.13,
            late: 0.14,
            unordered: 0.17,
            hidden_order: 0.19,
            posted: 0.18,
            force_relaxed: 0.25,
            late_time: Duration::from_micros(15),
            loose_atomic: 0.16,
            port_falls: Some(Duration::from_micros(20)),
            port_returns: Some(Duration::from_micros(21)),
            port_flaps: Some(Duration::from_micros(25)),
            address_leaves: Some(Duration::from_micros(22)),
            device_fails: Some(Duration::from_micros(23)),
            cqs_fail: Some(Duration::from_micros(24)),
        };
        assert_eq!(text.parse(), Ok(expected));
        assert_eq!("".parse(), Ok(Faults::default()));
    }

    #[test]
    fn errors_name_the_invalid_word() {
        for (text, word) in [("drop=2", "drop=2"), ("drop=0.1 loss=1", "loss=1"), ("seed", "seed")] {
            assert_eq!(text.parse::<Faults>().unwrap_err().word, word);
        }
    }
}
