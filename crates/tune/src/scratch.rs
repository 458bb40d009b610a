//! The repository of the server that is measured: links to the user's models, and a configuration of its own for the model
//! that is tuned. The user's repository stays as it is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// The name of the configuration in a model's directory.
pub const CONFIG_FILE: &str = "config.pbtxt";

/// A temporary directory. It is removed when the value is dropped.
pub struct ScratchRepository {
    folder: TempDir,
    model: String,
    source: PathBuf,
}

impl ScratchRepository {
    /// Links the models of all repositories.
    ///
    /// # Errors
    /// No repository has the model, or a directory cannot be read or made.
    pub fn new(repositories: &[PathBuf], model: &str) -> Result<ScratchRepository> {
        let Some(source) = repositories.iter().map(|path| path.join(model)).find(|path| path.is_dir()) else {
            let names: Vec<_> = repositories.iter().map(|path| format!("'{}'", path.display())).collect();
            bail!("there is no directory '{model}' in {}", names.join(", "))
        };
        let folder = tempfile::Builder::new().prefix("nereid-tune-").tempdir()?;
        let models = folder.path().join("models");
        fs::create_dir_all(models.join(model))?;
        for repository in repositories {
            for entry in entries(repository)? {
                let link = models.join(entry.file_name().unwrap_or_default());
                if !link.exists() && entry.is_dir() {
                    symlink(&entry, &link).with_context(|| format!("cannot link {}", entry.display()))?;
                }
            }
        }
        for entry in entries(&source)? {
            let name = entry.file_name().unwrap_or_default();
            if name != CONFIG_FILE {
                symlink(&entry, models.join(model).join(name))
                    .with_context(|| format!("cannot link {}", entry.display()))?;
            }
        }
        Ok(ScratchRepository { folder, model: model.to_owned(), source })
    }

    /// The user's directory of the model.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// The text of the user's configuration. Empty if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is not UTF-8.
    pub fn given_text(&self) -> Result<String> {
        let path = self.source.join(CONFIG_FILE);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            read => read.with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// The repository for the server.
    pub fn models(&self) -> PathBuf {
        self.folder.path().join("models")
    }

    /// A place for other files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sets the configuration of the model. An empty text is no configuration.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_config(&self, text: &str) -> Result<()> {
        let path = self.models().join(&self.model).join(CONFIG_FILE);
        if text.is_empty() {
            return Ok(());
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// The absolute paths of what is in a directory.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let reading = || format!("cannot read {}", folder.display());
    let folder = folder.canonicalize().with_context(reading)?;
    let entries = fs::read_dir(folder).with_context(reading)?;
    entries.map(|entry| Ok(entry.with_context(reading)?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_repository_stays_as_it_is() {
        let user = tempfile::tempdir().unwrap();
        for folder in ["m/1", "n/1"] {
            fs::create_dir_all(user.path().join(folder)).unwrap();
        }
        fs::write(user.path().join("m/config.pbtxt"), "max_batch_size: 2").unwrap();
        fs::write(user.path().join("m/labels.txt"), "a").unwrap();
        let scratch = ScratchRepository::new(&[user.path().to_owned()], "m").unwrap();
        assert_eq!(scratch.given_text().unwrap(), "max_batch_size: 2");
        scratch.write_config("max_batch_size: 4").unwrap();
        let models = scratch.models();
        assert_eq!(fs::read_to_string(models.join("m/config.pbtxt")).unwrap(), "max_batch_size: 4");
        assert_eq!(fs::read_to_string(models.join("m/labels.txt")).unwrap(), "a");
        assert!(models.join("m/1").is_dir() && models.join("n/1").is_dir());
        assert_eq!(fs::read_to_string(user.path().join("m/config.pbtxt")).unwrap(), "max_batch_size: 2");
        drop(scratch);
        assert!(!models.exists() && user.path().join("m/labels.txt").exists());
    }

    #[test]
    fn a_model_that_is_nowhere_is_named() {
        let user = tempfile::tempdir().unwrap();
        let Err(error) = ScratchRepository::new(&[user.path().to_owned()], "m") else {
            panic!("it was found")
        };
        assert!(error.to_string().contains("no directory 'm'"), "{error}");
    }
}
