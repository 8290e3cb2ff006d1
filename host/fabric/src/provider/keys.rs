//! The memory keys of one region registered with a NIC: one for bulk data, and a strictly ordered one for signals and
//! atomics.

use rushmem_error::NicError;
use rushmem_machine::Region;

use super::{Key, KeyOrder, Pd};

/// The memory keys of one registered region.
///
/// Writes through the data key may be reordered on the PCIe bus. Signals, atomics and single values always use a strict
/// key, which keeps a signal from overtaking its data.
pub struct Keys {
    relaxed: Option<Box<dyn Key>>,
    strict: Box<dyn Key>,
}

impl Keys {
    /// Registers all of `memory`, with a second key for data if `relaxed`.
    ///
    /// # Errors
    /// Fails if the NIC refuses the registration.
    pub fn register(pd: &dyn Pd, memory: &Region, relaxed: bool) -> Result<Self, NicError> {
        let strict = pd.register(memory, KeyOrder::Strict)?;
        let relaxed = if relaxed { Some(pd.register(memory, KeyOrder::Relaxed)?) } else { None };
        Ok(Self { relaxed, strict })
    }

    /// Returns the key for the data of puts and gets.
    pub fn data(&self) -> &dyn Key {
        self.relaxed.as_deref().unwrap_or(&*self.strict)
    }

    /// Returns the strictly ordered key, for single values, atomics and signals.
    pub fn strict(&self) -> &dyn Key {
        &*self.strict
    }
}
