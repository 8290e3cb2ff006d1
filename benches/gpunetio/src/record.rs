//! Saves and loads WQEs as text, so WQEs that NVIDIA's code posted on a GPU can be compared on machines without one.
//!
//! A line is the name of a [`Case`], a tab, and the 128 hexadecimal digits of one entry. Lines that start with `#` are
//! comments.

use crate::case::{CASES, Case};
use crate::compare::{Entry, hex};
use crate::{Error, Result};

/// Formats the WQEs of each case as text, preceded by `head`.
pub fn write<'a>(head: &str, cases: impl IntoIterator<Item = (&'a Case, &'a [Entry])>) -> String {
    let mut text: String = head.lines().map(|line| format!("# {line}\n")).collect();
    for (case, entries) in cases {
        for entry in entries {
            text += &format!("{case}\t{}\n", hex(entry));
        }
    }
    text
}

/// Parses WQEs that were saved as text, and groups them by case.
///
/// # Errors
/// - [`Error::Record`]: a line is malformed.
pub fn read(text: &str) -> Result<Vec<(Case, Vec<Entry>)>> {
    let mut found: Vec<(Case, Vec<Entry>)> = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let wrong = |what: &str| Error::Record { line: i + 1, what: what.into() };
        let (name, digits) = line.split_once('\t').ok_or_else(|| wrong("there is no tab"))?;
        let case = CASES.iter().find(|case| case.to_string() == name).ok_or_else(|| wrong("no such case"))?;
        let entry = parse(digits).ok_or_else(|| wrong("not the digits of 64 bytes"))?;
        match found.last_mut() {
            Some((last, entries)) if last == case => entries.push(entry),
            _ => found.push((*case, vec![entry])),
        }
    }
    Ok(found)
}

fn parse(digits: &str) -> Option<Entry> {
    let byte = |i: usize| u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok();
    let bytes: Vec<u8> = (0..digits.len() / 2).map(byte).collect::<Option<_>>()?;
    bytes.try_into().ok()
}
