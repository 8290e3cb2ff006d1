//! Names and file paths in calls: string constants of this process, or interned copies of those sent by other
//! processes.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// String that lives for the rest of the process, such as a file name.
pub(crate) type Text = &'static str;

/// Deserializes a string sent by another process and interns it. The copy is never freed: a program has few names and
/// files.
///
/// # Errors
/// - The error of the deserializer.
pub(crate) fn intern<'de, D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
    from.deserialize_str(Copied)
}

struct Copied;

impl Visitor<'_> for Copied {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(interned(text))
    }
}

/// Interns a string: returns a copy that lives for the rest of the process and is shared by equal strings.
pub fn interned(text: &str) -> &'static str {
    static KNOWN: Mutex<Option<HashSet<Text>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    match known.get(text) {
        Some(copy) => copy,
        None => {
            let copy = String::leak(text.into());
            known.insert(copy);
            copy
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::access::{Call, Site};

    #[test]
    fn equal_texts_of_other_processes_are_one_copy() {
        let call = Call { name: "put \"8\"", site: Site { file: "src/main.rs", line: 3 } };
        let text = serde_json::to_string(&call).unwrap();
        let [first, second] = [0, 1].map(|_| serde_json::from_str::<Call>(&text).unwrap());
        assert_eq!(first, call);
        assert!(std::ptr::eq(first.name, second.name) && std::ptr::eq(first.site.file, second.site.file));
    }
}
