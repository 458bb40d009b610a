//! Model repositories on disk, deleted when dropped.
use std::{fs, io, path::Path};

use tempfile::TempDir;

use crate::golden;

/// A model repository in a temporary directory.
#[derive(Debug)]
pub struct Repository {
    directory: TempDir,
}

impl Repository {
    /// A repository without models.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn empty() -> io::Result<Self> {
        Ok(Self { directory: tempfile::tempdir()? })
    }

    /// The models of the recorded exchanges, version 1 of each.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn golden() -> io::Result<Self> {
        let repository = Self::empty()?;
        for (name, files) in golden::models() {
            let place = |file: &str| match file {
                "model.py" => "1/model.py".to_owned(),
                other => other.to_owned(),
            };
            let files: Vec<_> = files.iter().map(|(file, text)| (place(file), text.as_str())).collect();
            repository.add(&name, files.iter().map(|(path, text)| (path.as_str(), *text)))?;
        }
        Ok(repository)
    }

    /// Adds a model with version 1 and these files, named by their paths in the model's directory.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn add<'f>(&self, name: &str, files: impl IntoIterator<Item = (&'f str, &'f str)>) -> io::Result<()> {
        let model = self.path().join(name);
        fs::create_dir_all(model.join("1"))?;
        files.into_iter().try_for_each(|(path, text)| fs::write(model.join(path), text))
    }

    /// The path of the repository.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_models_lie_as_a_server_expects_them() {
        let repository = Repository::golden().unwrap();
        for file in ["simple/config.pbtxt", "simple/labels.txt", "simple/1/model.py", "ens/config.pbtxt"] {
            assert!(repository.path().join(file).is_file(), "{file}");
        }
        assert!(repository.path().join("ens/1").is_dir());
        let config = fs::read_to_string(repository.path().join("id2d/config.pbtxt")).unwrap();
        assert_eq!(proto::text::parse(config.as_bytes()).unwrap().config.max_batch_size, 4);
    }
}
