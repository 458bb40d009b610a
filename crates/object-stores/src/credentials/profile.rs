//! The profiles of AWS: sections of keys in `~/.aws/credentials`, and of settings in `~/.aws/config`.
//!
//! Profiles that take a role, sign on or start a program are refused by name; only keys and a region are read.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use vocabulary::Error;

use super::credential::S3Credential;
use super::variables::StoreVariables;

/// Settings of a profile that would be needed to get a key, and that are not supported.
const UNSUPPORTED: &[&str] =
    &["role_arn", "sso_start_url", "sso_session", "credential_process", "credential_source"];

/// Adds what a credential lacks from a profile: the named one, otherwise the default profile if there is one.
///
/// # Errors
/// INVALID_ARGUMENT: half of a key is given, a file cannot be read, the named profile does not exist or has no key.
pub(super) fn complete(
    credential: S3Credential,
    name: Option<String>,
    variables: &StoreVariables,
) -> Result<S3Credential, Error> {
    match (&credential.key_id, &credential.secret_key) {
        (Some(_), Some(_)) => return Ok(credential),
        (None, None) => {}
        (Some(_), None) => return Err(Error::invalid("a credential of S3 has a key id, but no secret key")),
        (None, Some(_)) => return Err(Error::invalid("a credential of S3 has a secret key, but no key id")),
    }
    let wanted = name.as_deref().unwrap_or("default");
    let keys = section(&path(variables, "AWS_SHARED_CREDENTIALS_FILE", "credentials"), &[wanted])?;
    let in_config = format!("profile {wanted}");
    let names = if wanted == "default" { vec!["default", &in_config] } else { vec![in_config.as_str()] };
    let settings = section(&path(variables, "AWS_CONFIG_FILE", "config"), &names)?;
    let Some(mut all) = merged(settings, keys) else {
        return match name {
            Some(name) => Err(Error::invalid(format!("profile '{name}' of AWS does not exist"))),
            None => Ok(credential),
        };
    };
    let found = S3Credential {
        key_id: all.remove("aws_access_key_id"),
        secret_key: all.remove("aws_secret_access_key"),
        session_token: all.remove("aws_session_token"),
        region: credential.region.clone().or_else(|| all.remove("region")),
    };
    match (found.key_id.is_some() && found.secret_key.is_some(), name) {
        (true, _) => Ok(found),
        // The region is of use with other credentials too.
        (false, None) => Ok(S3Credential { region: found.region, ..credential }),
        (false, Some(name)) => Err(match UNSUPPORTED.iter().find(|setting| all.contains_key(**setting)) {
            Some(setting) => Error::new(
                vocabulary::ErrorCode::Unsupported,
                format!("profile '{name}' of AWS uses {setting}, which is not supported: give it a key"),
            ),
            None => Error::invalid(format!("profile '{name}' of AWS has no key")),
        }),
    }
}

fn path(variables: &StoreVariables, variable: &str, file: &str) -> Option<PathBuf> {
    let below_home = || variables.get("HOME").map(|home| PathBuf::from(home).join(".aws").join(file));
    variables.get(variable).map(PathBuf::from).or_else(below_home)
}

pub(crate) type Settings = BTreeMap<String, String>;

/// The settings of the first of these sections that the file has. A missing file has no sections.
fn section(path: &Option<PathBuf>, names: &[&str]) -> Result<Option<Settings>, Error> {
    let Some(path) = path else { return Ok(None) };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Error::invalid(format!(
                "profiles of AWS in '{}' cannot be read: {error}",
                path.display()
            )));
        }
    };
    Ok(names.iter().find_map(|name| parsed(&text, name)))
}

/// The settings of a section: lines `name = value` below `[section]`. Indented lines belong to nested settings.
pub(crate) fn parsed(text: &str, section: &str) -> Option<Settings> {
    let mut settings = None;
    let mut is_inside = false;
    for line in text.lines() {
        if line.starts_with(['#', ';', ' ', '\t']) {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let name = header.split(']').next().unwrap_or_default();
            is_inside = name.split_whitespace().eq(section.split_whitespace());
            if is_inside {
                settings.get_or_insert_with(Settings::new);
            }
        } else if is_inside
            && let (Some(settings), Some((name, value))) = (&mut settings, line.split_once('='))
            && !value.trim().is_empty()
        {
            settings.insert(name.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    settings
}

/// Both sections; the second one has priority.
fn merged(first: Option<Settings>, second: Option<Settings>) -> Option<Settings> {
    match (first, second) {
        (Some(mut first), Some(second)) => {
            first.extend(second);
            Some(first)
        }
        (first, second) => first.or(second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::tests::variables;

    const KEYS: &str = "# a comment\n[default]\naws_access_key_id = default-id\naws_secret_access_key=default-key\n\n\
        [models]\naws_access_key_id=models-id\naws_secret_access_key=models=key\naws_session_token = token\n";
    const SETTINGS: &str = "[profile models]\nregion = eu-west-1\ns3 =\n  max_concurrent_requests = 20\n\
        [profile role]\nrole_arn = arn\nsource_profile = models\n[profile empty]\noutput = json\n";

    fn completed(credential: S3Credential, name: Option<&str>) -> Result<S3Credential, Error> {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".aws")).unwrap();
        fs::write(home.path().join(".aws/credentials"), KEYS).unwrap();
        fs::write(home.path().join(".aws/config"), SETTINGS).unwrap();
        let variables = variables(&[("HOME", home.path().to_str().unwrap())]);
        complete(credential, name.map(str::to_owned), &variables)
    }

    #[test]
    fn a_named_profile_has_its_keys_and_its_region() {
        let found = completed(S3Credential::default(), Some("models")).ok().unwrap();
        assert_eq!(found.key_id.as_deref(), Some("models-id"));
        assert_eq!(found.secret_key.as_deref(), Some("models=key"));
        assert_eq!(found.session_token.as_deref(), Some("token"));
        assert_eq!(found.region.as_deref(), Some("eu-west-1"));
    }

    #[test]
    fn the_default_profile_is_used_if_no_other_is_named() {
        let region = S3Credential { region: Some("us-west-2".into()), ..S3Credential::default() };
        let found = completed(region, None).ok().unwrap();
        assert_eq!(found.key_id.as_deref(), Some("default-id"));
        assert_eq!(found.region.as_deref(), Some("us-west-2"));
    }

    #[test]
    fn a_key_that_is_given_has_priority_over_profiles() {
        let credential = S3Credential {
            key_id: Some("id".into()),
            secret_key: Some("key".into()),
            ..S3Credential::default()
        };
        assert!(completed(credential.clone(), Some("models")).is_ok_and(|found| found == credential));
    }

    #[test]
    fn profiles_that_give_no_key_are_refused_by_name() {
        for (name, expected) in [
            ("none", "profile 'none' of AWS does not exist"),
            ("empty", "profile 'empty' of AWS has no key"),
            ("role", "profile 'role' of AWS uses role_arn, which is not supported: give it a key"),
        ] {
            assert_eq!(completed(S3Credential::default(), Some(name)).err().unwrap().message, expected);
        }
        let half = S3Credential { key_id: Some("id".into()), ..S3Credential::default() };
        assert!(completed(half, None).err().unwrap().message.contains("no secret key"));
    }

    #[test]
    fn without_files_there_is_no_profile_and_no_error() {
        let home = tempfile::tempdir().unwrap();
        let variables = variables(&[("HOME", home.path().to_str().unwrap())]);
        assert!(
            complete(S3Credential::default(), None, &variables).is_ok_and(|found| found.key_id.is_none())
        );
    }
}
