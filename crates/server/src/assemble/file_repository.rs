//! Single files as models: `nereid model.onnx`.
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use repository::PrivateDirectory;
use vocabulary::Error;

/// A repository of links to files, each of which is a model with the name of its file, without the extension.
#[derive(Debug)]
pub(super) struct FileRepository(PrivateDirectory);

impl FileRepository {
    /// `None` without files. Blocks.
    ///
    /// # Errors
    /// INVALID_ARG if two files have the same name, INTERNAL if a file cannot be read, or the repository not made.
    pub(super) fn new<'f>(files: impl IntoIterator<Item = &'f PathBuf>) -> Result<Option<Self>, Error> {
        let mut named: BTreeMap<String, &Path> = BTreeMap::new();
        for file in files {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(other) = named.insert(name.clone(), file) {
                let (one, other) = (other.display(), file.display());
                return Err(Error::invalid(format!(
                    "'{one}' and '{other}' are both the model '{name}': rename one of them"
                )));
            }
        }
        if named.is_empty() {
            return Ok(None);
        }
        let repository = Self(PrivateDirectory::new()?);
        for (name, file) in named {
            link(&repository.path().join(name), file)
                .map_err(|error| Error::internal(format!("cannot serve '{}': {error}", file.display())))?;
        }
        Ok(Some(repository))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Makes the directory of the model in `file`.
fn link(model: &Path, file: &Path) -> io::Result<()> {
    let file = file.canonicalize()?;
    let version = model.join("1");
    // Other files of the model are found in the directory of the graph. Otherwise that directory may be a large one.
    if let Some(beside) = file.parent().filter(|_| backend_onnx::has_external_data(&file).unwrap_or(false)) {
        fs::create_dir(model)?;
        symlink(beside, version)?;
        let config = proto::ModelConfig {
            backend: "onnxruntime".to_owned(),
            default_model_filename: file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            ..proto::ModelConfig::default()
        };
        return fs::write(model.join("config.pbtxt"), proto::text::write(&config, |_| None));
    }
    fs::create_dir_all(&version)?;
    symlink(&file, version.join("model.onnx"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_a_model_with_its_name() {
        let root = tempfile::tempdir().unwrap();
        let files = ["b.onnx", "deep/a.int8.onnx"].map(|name| root.path().join(name));
        fs::create_dir(root.path().join("deep")).unwrap();
        files.iter().for_each(|file| fs::write(file, file.to_string_lossy().as_bytes()).unwrap());
        let repository = FileRepository::new(&files).unwrap().unwrap();
        for (name, file) in ["b", "a.int8"].iter().zip(&files) {
            let link = repository.path().join(name).join("1/model.onnx");
            assert_eq!(fs::read_to_string(link).unwrap(), file.to_string_lossy());
        }
        let place = repository.path().to_owned();
        drop(repository);
        assert!(!place.exists() && FileRepository::new(&[]).unwrap().is_none());
    }

    #[test]
    fn two_files_of_one_name_are_refused() {
        let files = ["x/m.onnx", "y/m.onnx"].map(PathBuf::from);
        let error = FileRepository::new(&files).unwrap_err();
        assert_eq!(error.message, "'x/m.onnx' and 'y/m.onnx' are both the model 'm': rename one of them");
    }
}
