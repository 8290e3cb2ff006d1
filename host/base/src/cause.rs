use std::error::Error;

/// Returns the message of the error that caused `error`, or that of `error` itself if it names no cause.
///
/// Some libraries give the details only in the source of an error.
pub fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    #[derive(Debug)]
    struct Outer(fmt::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("it failed")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn the_innermost_error_says_why() {
        assert_eq!(root_cause(&Outer(fmt::Error)), fmt::Error.to_string());
        assert_eq!(root_cause(&fmt::Error), fmt::Error.to_string());
    }
}
