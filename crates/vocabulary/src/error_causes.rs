//! The causes of an error of a library, as text.
use std::error::Error;

/// The error and its causes, in one line.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The innermost cause of an error. It says what a person can change: a refused connection, an unknown host, a
/// certificate.
pub fn innermost_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}

#[cfg(test)]
mod tests {
    use std::{fmt, io};

    use super::*;

    #[derive(Debug)]
    struct Outer(io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("no connection")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn causes_follow_their_error() {
        let error = Outer(io::Error::other("refused"));
        assert_eq!(with_causes(&error), "no connection: refused");
        assert_eq!(innermost_cause(&error).to_string(), "refused");
        assert_eq!(innermost_cause(&error.0).to_string(), "refused");
    }
}
