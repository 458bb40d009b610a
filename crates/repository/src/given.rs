//! A configuration and files that a load request brings instead of those of the repository.
use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use bytes::Bytes;
use vocabulary::Error;

use super::private_directory::PrivateDirectory;

/// What a load request brings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadParameters {
    /// The whole configuration, as JSON. It replaces the model's file.
    pub config: Option<String>,
    /// Files by their paths in the model's directory. If there are any, the model has no others.
    pub files: Vec<(String, Bytes)>,
}

impl LoadParameters {
    /// Tells whether the request brings nothing: the model is loaded as it is in its repository.
    pub fn is_empty(&self) -> bool {
        self.config.is_none() && self.files.is_empty()
    }

    /// The most bytes that the reading of the configuration takes besides its text.
    pub fn reading_bytes(&self) -> usize {
        self.config.as_ref().map_or(0, |config| config.len().saturating_mul(proto::json::MOST_FOR_A_BYTE))
    }
}

/// Writes the files of a request into a new directory, which is removed when the returned value is dropped.
///
/// # Errors
/// INVALID_ARG for a path that leaves the directory, or that is a file and a directory; INTERNAL if a file cannot be
/// written.
pub fn write_files(files: &[(String, Bytes)]) -> Result<PrivateDirectory, Error> {
    let directory = PrivateDirectory::new()?;
    for (path, content) in files {
        let relative = inside(path)?;
        let target = directory.path().join(&relative);
        let failed =
            |error| Error::internal(format!("failed to write file parameter 'file:{path}': {error}"));
        if target.is_dir() || relative.as_os_str().is_empty() {
            return Err(Error::invalid(format!(
                "Invalid file parameter 'file:{path}', directory has been created as a file"
            )));
        }
        let parents: Vec<_> =
            relative.ancestors().skip(1).map(|parent| directory.path().join(parent)).collect();
        if parents.iter().any(|parent| parent.is_file()) {
            return Err(Error::invalid(format!(
                "Invalid file parameter 'file:{path}', a part of its path is a file"
            )));
        }
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        fs::write(&target, content).map_err(failed)?;
    }
    Ok(directory)
}

/// The path without `.` and `..`. An absolute path begins at the model's directory.
fn inside(path: &str) -> Result<PathBuf, Error> {
    let mut normal = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir if normal.file_name().is_some() => drop(normal.pop()),
            Component::ParentDir => normal.push(".."),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    if normal.starts_with("..") {
        return Err(Error::invalid(format!(
            "Invalid file parameter 'file:{path}' with normalized path '{}' must stay within model directory.",
            normal.display()
        )));
    }
    Ok(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(files: &[(&str, &'static str)]) -> Result<PrivateDirectory, Error> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| ((*path).to_owned(), Bytes::from(*text))).collect();
        write_files(&files)
    }

    #[test]
    fn files_are_written_below_a_directory_that_goes_with_its_guard() {
        let directory = written(&[("1/model.py", "a"), ("/labels.txt", "b"), ("1/./x/../y", "")]).unwrap();
        let path = directory.path().to_owned();
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
        assert_eq!((&*read("1/model.py"), &*read("labels.txt"), &*read("1/y")), ("a", "b", ""));
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn a_path_that_leaves_the_directory_or_is_two_things_is_refused() {
        for (files, text) in [
            (&[("../x", "")][..], "with normalized path '../x' must stay within model directory."),
            (&[("1/../../x", "")], "must stay within model directory."),
            (&[("1/a", ""), ("1", "")], "'file:1', directory has been created as a file"),
            (&[("1", ""), ("1/a", "")], "'file:1/a', a part of its path is a file"),
        ] {
            let error = written(files).unwrap_err();
            assert!(error.message.ends_with(text), "{error}");
        }
    }
}
