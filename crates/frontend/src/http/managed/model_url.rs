//! Where the platform puts the files of a model: below `/opt/ml/models/<hash>/model`.
use std::{
    fs,
    path::{Component, Path, PathBuf},
};

/// Why a model cannot be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UrlRefusal {
    /// The path belongs to the system. The client learns nothing.
    System,
    /// The sentence for the client.
    Text(String),
}

/// A repository with one model to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UploadedModel {
    /// The directory of the repository.
    pub(super) repository: PathBuf,
    /// The directory of the model in it.
    pub(super) directory: String,
}

/// The directory that a URL names. `root` is `/opt/ml/models`.
///
/// # Errors
/// The URL does not have the form of the platform.
pub(super) fn directory(root: &Path, url: &str) -> Result<PathBuf, UrlRefusal> {
    let path = normalized(url);
    if ["/dev", "/proc", "/sys"].iter().any(|system| path.starts_with(system)) {
        return Err(UrlRefusal::System);
    }
    let below = path.strip_prefix(root).ok().map(|below| below.components().collect::<Vec<_>>());
    match below.as_deref() {
        Some([Component::Normal(_), model] | [Component::Normal(_), model, Component::Normal(_)])
            if *model == Component::Normal("model".as_ref()) =>
        {
            Ok(path)
        }
        _ => Err(UrlRefusal::Text(format!(
            "Invalid \"url\" '{url}': expected a path of the form {}/<hash>/model[/<subdir>]",
            root.display()
        ))),
    }
}

/// The path without `.` and `..`. Looks at no file.
fn normalized(url: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for component in Path::new(url).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// Finds the model in a directory: the directory itself, or the only directory in it, or the first ensemble in it, or the
/// first of several directories. Blocks.
///
/// # Errors
/// There is no such model.
pub(super) fn find(directory: &Path) -> Result<UploadedModel, UrlRefusal> {
    let text = |text: String| UrlRefusal::Text(text);
    if is_model(directory) {
        let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
            return Err(text(format!("'{}' is not a model", directory.display())));
        };
        let directory = name.to_string_lossy().into_owned();
        return Ok(UploadedModel { repository: parent.to_owned(), directory });
    }
    let entries = fs::read_dir(directory)
        .map_err(|error| text(format!("failed to read '{}': {error}", directory.display())))?;
    let names = entries.flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<_> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort_unstable();
    let ensemble = names.iter().position(|name| is_ensemble(&directory.join(name)));
    let chosen = ensemble.unwrap_or(0);
    if names.is_empty() {
        return Err(text(format!("'{}' contains no model", directory.display())));
    }
    if names.len() > 1 && ensemble.is_none() {
        log::warn!("'{}' contains several models; '{}' is loaded", directory.display(), names[chosen]);
    }
    Ok(UploadedModel { repository: directory.to_owned(), directory: names.swap_remove(chosen) })
}

/// A directory with a configuration or with numbered versions.
fn is_model(directory: &Path) -> bool {
    let is_version = |entry: fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name.parse::<u64>().is_ok()) && entry.path().is_dir()
    };
    directory.join("config.pbtxt").is_file()
        || fs::read_dir(directory).is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(is_version)))
}

fn is_ensemble(directory: &Path) -> bool {
    fs::read_to_string(directory.join("config.pbtxt"))
        .is_ok_and(|config| config.contains("ensemble_scheduling"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "/opt/ml/models";

    fn of(url: &str) -> Result<PathBuf, UrlRefusal> {
        directory(Path::new(ROOT), url)
    }

    #[test]
    fn only_paths_of_the_platform_are_accepted() {
        for (url, path) in [
            ("/opt/ml/models/abc/model", "/opt/ml/models/abc/model"),
            ("/opt/ml/models/abc/model/", "/opt/ml/models/abc/model"),
            ("/opt/ml//models/./abc/model/sub", "/opt/ml/models/abc/model/sub"),
            ("/opt/ml/models/x/../abc/model", "/opt/ml/models/abc/model"),
        ] {
            assert_eq!(of(url), Ok(path.into()), "{url}");
        }
        for url in [
            "",
            "/",
            "/opt/ml/models",
            "/opt/ml/models/abc",
            "/opt/ml/models/abc/other",
            "/opt/ml/models/abc/model/sub/sub",
            "/opt/ml/models/../abc/model",
            "opt/ml/models/abc/model",
            "/opt/ml/models/abc/model/../../../../../etc",
            "s3://bucket/abc/model",
        ] {
            let text = format!(
                "Invalid \"url\" '{url}': expected a path of the form /opt/ml/models/<hash>/model[/<subdir>]"
            );
            assert_eq!(of(url), Err(UrlRefusal::Text(text)), "{url}");
        }
        for url in ["/proc/self", "/dev/shm/x", "/sys/x", "/opt/../proc/1/root", "/dev"] {
            assert_eq!(of(url), Err(UrlRefusal::System), "{url}");
        }
    }

    #[test]
    fn a_model_is_the_directory_or_the_only_one_in_it_or_the_only_ensemble() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let write = |path: &str, text: &str| {
            let path = at(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let found = |path: &str| {
            find(&at(path)).map(|place| {
                (place.repository.strip_prefix(root.path()).unwrap().to_owned(), place.directory)
            })
        };
        let is = |repository: &str, directory: &str| Ok((PathBuf::from(repository), directory.to_owned()));
        write("a/model/config.pbtxt", "");
        assert_eq!(found("a/model"), is("a", "model"));
        write("b/model/1/model.onnx", "");
        assert_eq!(found("b/model"), is("b", "model"));
        write("c/model/net/config.pbtxt", "");
        write("c/model/.hidden/config.pbtxt", "");
        assert_eq!(found("c/model"), is("c/model", "net"));
        assert_eq!(found("c/model/net"), is("c/model", "net"));
        write("d/model/one/config.pbtxt", "");
        write("d/model/two/config.pbtxt", "");
        assert_eq!(found("d/model"), is("d/model", "one"));
        write("d/model/z_all/config.pbtxt", "ensemble_scheduling {}");
        assert_eq!(found("d/model"), is("d/model", "z_all"));
        fs::create_dir_all(at("e/model")).unwrap();
        assert!(found("e/model").is_err() && found("f/model").is_err());
    }
}
