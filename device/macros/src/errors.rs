//! Collects the errors found in one kernel, to report all of them in one compilation.

use quote::ToTokens;
use syn::{Error, Result};

#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn add(&mut self, at: impl ToTokens, message: impl std::fmt::Display) {
        let error = Error::new_spanned(at, message);
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
