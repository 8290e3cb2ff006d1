//! Folds errors that several PEs print, so each cause is printed only once.

use std::collections::BTreeMap;

use rushmem::bootstrap::{BEFORE_JOINING, Pes};

/// Start of the log line of a PE that learns about a lost PE.
const WARNING: &str = "WARN rushmem::pe::start: ";

/// Starts of log lines, which are not continuation lines of an error. The log pads its levels with spaces.
const LOG: [&[u8]; 2] = [b" WARN ", b" INFO "];

/// Maximum number of different errors that are remembered.
const MAX_ERRORS: usize = 64;

/// Errors of PEs that were suppressed so far, and errors that were printed once.
#[derive(Default)]
pub(super) struct FoldedErrors {
    /// PEs that merely report the loss of another PE, by the lost PE and the text of the report.
    losses: BTreeMap<(u32, String), Vec<u32>>,
    /// By error: the first PE that printed it, and the other PEs with the same error.
    same: BTreeMap<String, (u32, Vec<u32>)>,
    /// The last line of each PE, if it was suppressed and continuation lines may follow.
    last: BTreeMap<u32, Folded>,
}

/// A line of a PE's standard error that was not printed.
enum Folded {
    /// The PE merely reports a lost PE, which prints the error itself.
    Loss,
    /// The first line of an error that another PE has already printed.
    Same { error: String, line: Vec<u8> },
}

impl FoldedErrors {
    /// Handles a line of the standard error of `pe`. Returns the lines to print now.
    ///
    /// There are none if the PE merely reports another lost PE, or if another PE has printed the same error. A
    /// continuation line of such an error starts with a space. It may differ between PEs, so it is printed, together
    /// with the first line.
    pub(super) fn take(&mut self, pe: u32, line: &[u8]) -> Vec<Vec<u8>> {
        let before = self.last.remove(&pe);
        if line.starts_with(b" ") && !LOG.iter().any(|level| line.starts_with(level)) {
            return match before {
                Some(Folded::Loss) => {
                    self.last.insert(pe, Folded::Loss);
                    Vec::new()
                }
                Some(Folded::Same { error, line: first }) => {
                    if let Some((_, others)) = self.same.get_mut(&error) {
                        others.retain(|other| *other != pe);
                    }
                    vec![first, line.to_vec()]
                }
                None => vec![line.to_vec()],
            };
        }
        match self.fold(pe, line) {
            Some(folded) => {
                self.last.insert(pe, folded);
                Vec::new()
            }
            None => vec![line.to_vec()],
        }
    }

    fn fold(&mut self, pe: u32, line: &[u8]) -> Option<Folded> {
        let text = String::from_utf8_lossy(line);
        let text = text.trim();
        let error = text.strip_prefix("Error: ").or_else(|| text.strip_prefix("error: "));
        let warning = || text.split_once(WARNING).map(|(_, warning)| warning);
        let told = error.or_else(warning)?;
        let lost = || told.strip_prefix("PE ")?.split_once(" was lost: ")?.0.parse().ok();
        if let Some(lost) = lost().filter(|lost| *lost != pe) {
            self.losses.entry((lost, told.to_owned())).or_default().push(pe);
            return Some(Folded::Loss);
        }
        let error = error?;
        let error = error.strip_prefix(&format!("PE {pe}: ")).unwrap_or(error);
        if let Some((first, others)) = self.same.get_mut(error) {
            if *first == pe {
                return None;
            }
            others.push(pe);
            return Some(Folded::Same { error: error.to_owned(), line: line.to_vec() });
        }
        if self.same.len() < MAX_ERRORS {
            self.same.insert(error.to_owned(), (pe, Vec::new()));
        }
        None
    }

    /// Returns a sentence for each suppressed error. The launcher has reported the failure of PE `told`, so for reports
    /// of its loss, the sentence only says whether it had joined the job.
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
        for (first, pes) in self.same.into_values() {
            // The launcher has reported the error of this one.
            let pes: Vec<u32> = pes.into_iter().filter(|pe| told != Some(*pe)).collect();
            if !pes.is_empty() {
                sentences.entry(format!(" had the same error as PE {first}")).or_default().extend(pes);
            }
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
    fn reports_of_a_lost_pe_become_one_sentence() {
        let sentences = |told| {
            let mut errors = FoldedErrors::default();
            for pe in [3, 0, 1, 6] {
                assert!(
                    errors
                        .take(pe, b" WARN rushmem::pe::start: PE 5 was lost: aborted: out of cheese")
                        .is_empty()
                );
                assert!(errors.take(pe, b"Error: PE 5 was lost: aborted: out of cheese").is_empty());
            }
            assert!(errors.take(4, b"error: PE 5 was lost: exited with code 1\r").is_empty());
            assert!(
                errors
                    .take(7, b"error: PE 5 was lost: exited with code 1, before it joined the job")
                    .is_empty()
            );
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
    fn first_of_equal_errors_is_printed() {
        let mut errors = FoldedErrors::default();
        assert!(!errors.take(2, b"Error: PE 2: out of cheese").is_empty());
        for pe in [0, 1, 3] {
            assert!(errors.take(pe, format!("Error: PE {pe}: out of cheese").as_bytes()).is_empty());
        }
        // The same PE may print an error repeatedly.
        assert!(!errors.take(2, b"Error: PE 2: out of cheese").is_empty());
        assert!(!errors.take(1, b"Error: PE 1: out of bread").is_empty());
        assert_eq!(errors.sentences(Some(2)), ["PEs 0-1, 3 had the same error as PE 2"]);
        // The launcher reports the error of PE 1, which PE 0 has printed as well.
        let mut errors = FoldedErrors::default();
        errors.take(0, b"Error: out of cheese");
        errors.take(1, b"Error: out of cheese");
        assert!(errors.sentences(Some(1)).is_empty());
    }

    #[test]
    fn multi_line_error_keeps_its_first_line() {
        let mut errors = FoldedErrors::default();
        let first = b"Error: PE 0: kernel deadlock".to_vec();
        assert_eq!(errors.take(0, &first), std::slice::from_ref(&first));
        assert_eq!(errors.take(0, b"  block 0: lane 3"), [b"  block 0: lane 3"]);
        let second = b"Error: PE 1: kernel deadlock".to_vec();
        assert!(errors.take(1, &second).is_empty());
        assert_eq!(errors.take(1, b"  block 0: lane 5"), [second, b"  block 0: lane 5".to_vec()]);
        assert_eq!(errors.take(1, b"  block 1: lane 7"), [b"  block 1: lane 7"]);
        // A lost PE prints the lines of its error itself.
        assert!(errors.take(2, b"Error: PE 0 was lost: aborted: kernel deadlock").is_empty());
        assert!(errors.take(2, b"  block 0: lane 3").is_empty());
        assert_eq!(errors.sentences(Some(0)), ["PE 2 reported that PE 0 was lost"]);
    }

    #[test]
    fn other_lines_are_printed() {
        let mut errors = FoldedErrors::default();
        for line in ["out of cheese", "PE 5 was lost: so what", "I read error: PE 5 was lost: so what", ""] {
            assert_eq!(
                (errors.take(1, line.as_bytes()), errors.take(2, line.as_bytes())),
                (vec![line.into()], vec![line.into()])
            );
        }
        assert!(!errors.take(5, b"Error: PE 5 was lost: exited with code 1").is_empty());
        assert!(errors.sentences(None).is_empty());
    }
}
