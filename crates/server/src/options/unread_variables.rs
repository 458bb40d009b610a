//! Variables of the environment that look as if they were for Nereid, and that no part of Nereid reads.
//!
//! A misspelt variable would otherwise have no effect and cause no error. It cannot be an error: whoever starts the server
//! may not own its environment. Kubernetes makes variables for services, and the names of some begin with `NEREID_`.

use super::table::{self, OptionSpec};
use super::values::did_you_mean_variable;

/// How the names of the variables begin.
const PREFIX: &str = "NEREID_";

/// Variables that other parts of the program read.
const OF_PROGRAM: [&str; 4] =
    ["NEREID_OPENVINO_LIBRARY", "NEREID_PYTHON", "NEREID_SAGEMAKER_MODEL_ROOT", "NEREID_TORCH_LIBRARY"];

/// Variables that the tests and chores of this repository read. The programs that they start inherit them.
const OF_TESTS: [&str; 13] = [
    "NEREID_ADVISORY_DB",
    "NEREID_BINARY",
    "NEREID_CHAOS_FULL",
    "NEREID_DIST",
    "NEREID_FUZZ_ROUNDS",
    "NEREID_FUZZ_TARGET",
    "NEREID_MEMORY_CYCLES",
    "NEREID_PICTURE_ROUNDS",
    "NEREID_PLUGINS",
    "NEREID_PYTHON_SOAK_REQUESTS",
    "NEREID_RELEASE",
    "NEREID_SHUTDOWN_FULL",
    "NEREID_TORTURE",
];

/// How the names of all other variables of tests begin.
const PREFIX_OF_TESTS: &str = "NEREID_TEST_";

/// How the values of a service's variables begin, by protocol.
const SERVICE_SCHEMES: [&str; 3] = ["tcp://", "udp://", "sctp://"];

/// Whether a value is the address of a service of Kubernetes, and not a value of an option.
pub(super) fn is_service_address(value: &str) -> bool {
    SERVICE_SCHEMES.iter().any(|scheme| value.starts_with(scheme))
}

/// The names of these variables, given with their values, that begin with `NEREID_` and that nothing reads. An empty
/// variable counts as unset.
pub(super) fn unread<'v>(
    variables: impl IntoIterator<Item = (&'v str, &'v str)>,
) -> impl Iterator<Item = &'v str> {
    let begins =
        |name: &str| name.get(..PREFIX.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(PREFIX));
    variables
        .into_iter()
        .filter(move |(name, value)| begins(name) && !value.is_empty())
        .filter(|(name, value)| !is_read(name) && !describes_service(name, value))
        .map(|(name, _)| name)
}

/// The warning about a variable that nothing reads.
pub(super) fn warning(name: &str) -> String {
    let known = table::all().filter_map(OptionSpec::variable).chain(OF_PROGRAM.map(str::to_owned));
    let hint = did_you_mean_variable(name, PREFIX, known);
    format!("Warning: no option has the environment variable {name}, it has no effect{hint}")
}

fn is_read(name: &str) -> bool {
    table::all().filter_map(OptionSpec::variable).any(|known| known == name)
        || OF_PROGRAM.contains(&name)
        || OF_TESTS.contains(&name)
        || name.starts_with(PREFIX_OF_TESTS)
}

/// Whether Kubernetes or Docker makes such a variable for a service, such as `NEREID_SERVICE_HOST`,
/// `NEREID_SERVICE_PORT_HTTP`, `NEREID_PORT` and `NEREID_PORT_8000_TCP_ADDR`.
fn describes_service(name: &str, value: &str) -> bool {
    if is_service_address(value) || name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT") {
        return true;
    }
    if name.contains("_SERVICE_PORT_") {
        return true;
    }
    name.match_indices("_PORT_").any(|(at, marker)| {
        let mut parts = name[at + marker.len()..].split('_');
        let number = parts.next().is_some_and(|port| port.parse::<u16>().is_ok());
        number && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    fn unread_of(name: &str, value: &str) -> bool {
        unread([(name, value)]).next().is_some()
    }

    #[test]
    fn a_variable_that_nothing_reads_is_found() {
        for name in ["NEREID_HTPP_PORT", "NEREID_HELP", "NEREID_http_port", "NEREID_", "Nereid_Http_Port"] {
            assert!(unread_of(name, "1"), "{name}");
        }
        assert!(!unread_of("NEREID_HTPP_PORT", ""));
    }

    #[test]
    fn variables_that_are_read_or_belong_to_others_are_not() {
        for name in ["NEREID_HTTP_PORT", "NEREID_CONFIG", "NEREID_ONNXRUNTIME_LIBRARY", "NEREID_PYTHON"] {
            assert!(!unread_of(name, "1"), "{name}");
        }
        for name in
            ["NEREID_TEST_REDIS_SERVER", "NEREID_PLUGINS", "NEREIDS_HTTP_PORT", "OTHER", "é", "NEREÏD_X"]
        {
            assert!(!unread_of(name, "1"), "{name}");
        }
    }

    #[test]
    fn variables_of_services_are_not() {
        for (name, value) in [
            ("NEREID_SERVICE_HOST", "10.0.0.1"),
            ("NEREID_SERVICE_PORT", "8000"),
            ("NEREID_SERVICE_PORT_HTTP_METRICS", "8000"),
            ("NEREID_PORT", "tcp://10.0.0.1:8000"),
            ("NEREID_PORT_8000_TCP", "tcp://10.0.0.1:8000"),
            ("NEREID_PORT_8000_TCP_PROTO", "tcp"),
            ("NEREID_PORT_8000_TCP_PORT", "8000"),
            ("NEREID_BLUE_PORT_53_UDP_ADDR", "10.0.0.1"),
            ("NEREID_BLUE_SERVICE_HOST", "10.0.0.1"),
        ] {
            assert!(!unread_of(name, value), "{name}");
        }
        for (name, value) in
            [("NEREID_PORT", "8000"), ("NEREID_PORT_HTTP_TCP", "1"), ("NEREID_PORT_8000", "1")]
        {
            assert!(unread_of(name, value), "{name}");
        }
    }

    #[test]
    fn the_warning_names_the_probable_variable() {
        for (name, meant) in [
            ("NEREID_HTPP_PORT", "NEREID_HTTP_PORT"),
            ("NEREID_HTTPPORT", "NEREID_HTTP_PORT"),
            ("NEREID_MODEL_REPOSITRY", "NEREID_MODEL_REPOSITORY"),
            ("NEREID_log_verbose", "NEREID_LOG_VERBOSE"),
            ("NEREID_PYTHN", "NEREID_PYTHON"),
        ] {
            let warning = warning(name);
            assert!(
                warning.contains(name) && warning.ends_with(&format!("did you mean {meant}?")),
                "{warning}"
            );
        }
        assert!(!warning("NEREID_FROBNICATE_ALL").contains("did you mean"));
    }

    /// The texts in quotes of `source` that are names of variables.
    fn quoted(source: &str) -> impl Iterator<Item = &str> {
        source.split('"').filter(|text| {
            let name = text.strip_prefix("NEREID_").unwrap_or_default();
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
        })
    }

    /// Collects the variables that the programs of a folder name.
    fn collect(folder: &Path, found: &mut BTreeSet<String>) {
        // The variables of the options' own tests are examples of wrong ones.
        if folder.ends_with("crates/server/src/options") {
            return;
        }
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, found);
                continue;
            }
            let is_program = path.extension().is_some_and(|extension| extension == "rs" || extension == "py");
            if is_program && !path.ends_with("crates/server/tests/server/variables.rs") {
                found.extend(quoted(&fs::read_to_string(&path).unwrap()).map(str::to_owned));
            }
        }
    }

    /// Programs and tests name their variables in quotes.
    #[test]
    fn each_variable_that_a_program_of_this_repository_reads_is_known() {
        let mut names = BTreeSet::new();
        for folder in ["crates", "tests", "xtask"] {
            collect(&testing::plugins::root().join(folder), &mut names);
        }
        assert!(names.contains("NEREID_TEST_REDIS_SERVER") && names.contains("NEREID_PYTHON"), "{names:?}");
        let unknown: Vec<_> = names.iter().filter(|name| unread_of(name, "1")).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
