//! Errors that several PEs print. The launcher folds them, so that it prints one cause once.

use std::collections::BTreeMap;

use rushmem::bootstrap::{BEFORE_JOINING, Pes};

/// Begin of the log line of a PE that learns of a lost PE.
const WARNING: &str = "WARN rushmem::pe::start: ";

/// Maximum number of different errors that are remembered.
const ERRORS: usize = 64;

/// The errors so far that were not printed, and those that were printed once.
#[derive(Default)]
pub(super) struct FoldedErrors {
    /// PEs that only know of another lost PE, by that PE and the text.
    losses: BTreeMap<(u32, String), Vec<u32>>,
    /// The first PE that printed an error, and the other PEs with the same error.
    same: BTreeMap<String, (u32, Vec<u32>)>,
}

impl FoldedErrors {
    /// Takes a line of the standard error of `pe`. Returns whether the line needs not be printed: the PE only knows of
    /// another lost PE, or another PE has printed the same error.
    pub(super) fn take(&mut self, pe: u32, line: &[u8]) -> bool {
        let text = String::from_utf8_lossy(line);
        let text = text.trim();
        let error = text.strip_prefix("Error: ").or_else(|| text.strip_prefix("error: "));
        let warning = || text.split_once(WARNING).map(|(_, warning)| warning);
        let Some(told) = error.or_else(warning) else { return false };
        let lost = || told.strip_prefix("PE ")?.split_once(" was lost: ")?.0.parse().ok();
        if let Some(lost) = lost().filter(|lost| *lost != pe) {
            self.losses.entry((lost, told.to_owned())).or_default().push(pe);
            return true;
        }
        let Some(error) = error else { return false };
        let error = error.strip_prefix(&format!("PE {pe}: ")).unwrap_or(error);
        if let Some((first, others)) = self.same.get_mut(error) {
            let is_repeated = *first == pe;
            if !is_repeated {
                others.push(pe);
            }
            return !is_repeated;
        }
        if self.same.len() < ERRORS {
            self.same.insert(error.to_owned(), (pe, Vec::new()));
        }
        false
    }

    /// Returns one sentence for each folded error. The launcher has told the failure of PE `told`, so the reports of its
    /// loss only say whether it had joined the job.
    pub(super) fn sentences(self, told: Option<u32>) -> Vec<String> {
        let mut sentences = BTreeMap::<String, Vec<u32>>::new();
        for ((lost, text), pes) in self.losses {
            let what = if told == Some(lost) {
                let when = if text.ends_with(BEFORE_JOINING) { BEFORE_JOINING } else { "" };
                format!(" reported that PE {lost} was lost{when}")
            } else {
                format!(": {text}")
            };
            sentences.entry(what).or_default().extend(pes);
        }
        for (first, pes) in self.same.into_values().filter(|(_, pes)| !pes.is_empty()) {
            sentences.entry(format!(" had the same error as PE {first}")).or_default().extend(pes);
        }
        let sentence = |(what, mut pes): (String, Vec<u32>)| {
            pes.sort_unstable();
            pes.dedup();
            format!("{}{what}", Pes(pes))
        };
        sentences.into_iter().map(sentence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_a_lost_pe_are_one_sentence() {
        let sentences = |told| {
            let mut errors = FoldedErrors::default();
            for pe in [3, 0, 1, 6] {
                assert!(errors.take(pe, b" WARN rushmem::pe::start: PE 5 was lost: aborted: out of cheese"));
                assert!(errors.take(pe, b"Error: PE 5 was lost: aborted: out of cheese"));
            }
            assert!(errors.take(4, b"error: PE 5 was lost: exited with code 1\r"));
            assert!(errors.take(7, b"error: PE 5 was lost: exited with code 1, before it joined the job"));
            errors.sentences(told)
        };
        assert_eq!(
            sentences(Some(5)),
            [
                "PEs 0-1, 3-4, 6 reported that PE 5 was lost",
                "PE 7 reported that PE 5 was lost before it joined the job"
            ]
        );
        let each = [
            "PEs 0-1, 3, 6: PE 5 was lost: aborted: out of cheese",
            "PE 4: PE 5 was lost: exited with code 1",
            "PE 7: PE 5 was lost: exited with code 1, before it joined the job",
        ];
        assert_eq!(sentences(Some(4)), each);
        assert_eq!(sentences(None), each);
    }

    #[test]
    fn the_first_of_equal_errors_is_printed() {
        let mut errors = FoldedErrors::default();
        assert!(!errors.take(2, b"Error: PE 2: out of cheese"));
        for pe in [0, 1, 3] {
            assert!(errors.take(pe, format!("Error: PE {pe}: out of cheese").as_bytes()));
        }
        // A PE may print an error repeatedly.
        assert!(!errors.take(2, b"Error: PE 2: out of cheese"));
        assert!(!errors.take(1, b"Error: PE 1: out of bread"));
        assert_eq!(errors.sentences(Some(2)), ["PEs 0-1, 3 had the same error as PE 2"]);
    }

    #[test]
    fn other_lines_are_printed() {
        let mut errors = FoldedErrors::default();
        for line in ["out of cheese", "PE 5 was lost: so what", "I read error: PE 5 was lost: so what", ""] {
            assert!(!errors.take(1, line.as_bytes()) && !errors.take(2, line.as_bytes()), "{line}");
        }
        assert!(!errors.take(5, b"Error: PE 5 was lost: exited with code 1"));
        assert!(errors.sentences(None).is_empty());
    }
}
