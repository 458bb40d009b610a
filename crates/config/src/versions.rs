//! Decides which directories are versions, and which versions the server serves.
use proto::model_version_policy::PolicyChoice;

/// Which version directories are served (`version_policy`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionPolicy {
    /// This many of the largest version numbers.
    Latest(u32),
    /// All versions.
    All,
    /// The versions with these numbers, as far as they exist.
    Specific(Vec<i64>),
}

/// The kind of a directory inside a model's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionDirectory {
    /// A version of that number.
    Version(i64),
    /// Not a version. The warning is for the log. It is absent if the directory has another known purpose.
    Ignored(Option<String>),
}

/// Recognises a version directory by its name: `0` or digits without leading zero, at most `i64::MAX`.
///
/// Triton accepts any name that begins with a number, and terminates at a number that is too large.
pub fn version_directory(name: &str) -> VersionDirectory {
    if ["warmup", "initial_state", "configs"].contains(&name) {
        return VersionDirectory::Ignored(None);
    }
    let digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if digits && name.len() > 1 && name.starts_with('0') {
        return VersionDirectory::Ignored(Some(format!(
            "ignore version directory '{name}' which contains leading zeros in its directory name"
        )));
    }
    match name.parse() {
        Ok(version) if digits => VersionDirectory::Version(version),
        _ => VersionDirectory::Ignored(Some(format!(
            "ignore version directory '{name}' which fails to convert to integral number"
        ))),
    }
}

/// The versions to serve among the existing ones, in ascending order. An empty result leads to the error of
/// [`no_version_available`].
pub fn select_versions(policy: &VersionPolicy, existing: &[i64]) -> Vec<i64> {
    let mut versions = existing.to_vec();
    versions.sort_unstable();
    versions.dedup();
    match policy {
        VersionPolicy::All => {}
        VersionPolicy::Latest(count) => {
            let skipped = versions.len().saturating_sub(usize::try_from(*count).unwrap_or(usize::MAX));
            versions.drain(..skipped);
        }
        VersionPolicy::Specific(wanted) => versions.retain(|version| wanted.contains(version)),
    }
    versions
}

/// The warnings about versions that the policy names and that do not exist.
pub fn absent_versions(policy: &VersionPolicy, existing: &[i64], model: &str) -> Vec<String> {
    let VersionPolicy::Specific(wanted) = policy else { return Vec::new() };
    let absent = wanted.iter().filter(|version| !existing.contains(version));
    absent
        .map(|version| {
            format!(
                "version {version} is specified for model '{model}', but the version directory is not present"
            )
        })
        .collect()
}

/// The error of a model without any selected version.
pub fn no_version_available(model: &str) -> vocabulary::Error {
    vocabulary::Error::invalid(format!(
        "at least one version must be available under the version policy of model '{model}'"
    ))
}

impl VersionPolicy {
    /// The policy of a configuration. The default is the latest version.
    pub fn of(config: &proto::ModelConfig) -> Self {
        let Some(policy) = &config.version_policy else { return Self::Latest(1) };
        match &policy.policy_choice {
            Some(PolicyChoice::Latest(latest)) => Self::Latest(latest.num_versions),
            Some(PolicyChoice::Specific(specific)) => Self::Specific(specific.versions.clone()),
            // As Triton: a policy without a choice serves all versions (model_lifecycle.cc, VersionsToLoad).
            Some(PolicyChoice::All(_)) | None => Self::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_plain_number() {
        for (name, version) in [("0", 0), ("1", 1), ("10", 10), ("9223372036854775807", i64::MAX)] {
            assert_eq!(version_directory(name), VersionDirectory::Version(version), "{name}");
        }
        for name in ["warmup", "initial_state", "configs"] {
            assert_eq!(version_directory(name), VersionDirectory::Ignored(None), "{name}");
        }
    }

    #[test]
    fn names_that_only_begin_like_a_number_are_ignored_with_a_warning() {
        let names = ["abc", "2abc", "+5", " 7", "1.5", "-1", "", ".git", "99999999999999999999", "٣"];
        for name in names {
            let warning =
                format!("ignore version directory '{name}' which fails to convert to integral number");
            assert_eq!(version_directory(name), VersionDirectory::Ignored(Some(warning)));
        }
        let warning = "ignore version directory '01' which contains leading zeros in its directory name";
        assert_eq!(version_directory("01"), VersionDirectory::Ignored(Some(warning.to_owned())));
    }

    #[test]
    fn a_policy_selects_by_number_and_not_by_spelling() {
        let existing = [10, 2, 1];
        for (policy, selected) in [
            (VersionPolicy::Latest(1), &[10][..]),
            (VersionPolicy::Latest(2), &[2, 10]),
            (VersionPolicy::Latest(9), &[1, 2, 10]),
            (VersionPolicy::Latest(0), &[]),
            (VersionPolicy::All, &[1, 2, 10]),
            (VersionPolicy::Specific(vec![7, 1]), &[1]),
            (VersionPolicy::Specific(vec![]), &[]),
        ] {
            assert_eq!(select_versions(&policy, &existing), selected, "{policy:?}");
        }
    }

    #[test]
    fn a_named_version_that_does_not_exist_gives_a_warning() {
        let told = absent_versions(&VersionPolicy::Specific(vec![1, 7]), &[1, 2], "m");
        assert_eq!(told, ["version 7 is specified for model 'm', but the version directory is not present"]);
        assert!(absent_versions(&VersionPolicy::Latest(5), &[1], "m").is_empty());
    }

    #[test]
    fn a_policy_is_read_from_the_configuration() {
        for (text, policy) in [
            ("", VersionPolicy::Latest(1)),
            ("version_policy { latest { num_versions: 3 } }", VersionPolicy::Latest(3)),
            ("version_policy { latest {} }", VersionPolicy::Latest(0)),
            ("version_policy { all {} }", VersionPolicy::All),
            ("version_policy {}", VersionPolicy::All),
            ("version_policy { specific { versions: [ 1, 3 ] } }", VersionPolicy::Specific(vec![1, 3])),
        ] {
            let config = proto::text::parse(text.as_bytes()).unwrap().config;
            assert_eq!(VersionPolicy::of(&config), policy, "{text}");
        }
    }
}
