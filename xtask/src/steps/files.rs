//! The files of steps: their logs, outcomes and reports of tests.

use std::path::PathBuf;

use crate::workspace;

/// Where steps write.
pub(crate) fn folder() -> PathBuf {
    workspace::target().join("steps")
}

/// The path of a file of a step.
pub(crate) fn file(step: &str, extension: &str) -> PathBuf {
    folder()
        .join(step.replace(|character: char| !character.is_alphanumeric(), "-"))
        .with_added_extension(extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_name_of_the_step() {
        assert!(file("python clients", "log").ends_with("steps/python-clients.log"));
    }
}
