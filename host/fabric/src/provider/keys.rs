//! The keys of one region of memory at one NIC: for data and for words.

use rushmem_error::NicError;
use rushmem_machine::Region;

use super::{Key, KeyOrder, Pd};

/// The keys of registered memory. Writes through the data key may be relaxed. Words always use a strict key, which
/// keeps a signal from passing its data.
pub struct Keys {
    relaxed: Option<Box<dyn Key>>,
    strict: Box<dyn Key>,
}

impl Keys {
    /// Registers all of `memory`, with a second key for data if `relaxed`.
    ///
    /// # Errors
    /// The errors of the NIC.
    pub fn register(pd: &dyn Pd, memory: &Region, relaxed: bool) -> Result<Self, NicError> {
        let strict = pd.register(memory, KeyOrder::Strict)?;
        let relaxed = if relaxed { Some(pd.register(memory, KeyOrder::Relaxed)?) } else { None };
        Ok(Self { relaxed, strict })
    }

    /// Returns the key for the data of puts and gets.
    pub fn data(&self) -> &dyn Key {
        self.relaxed.as_deref().unwrap_or(&*self.strict)
    }

    /// Returns the key for words: single values, atomics and signals.
    pub fn strict(&self) -> &dyn Key {
        &*self.strict
    }
}
