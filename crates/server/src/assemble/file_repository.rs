//! Single files and directories as models: `nereid model.onnx`, `--single-model`.
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use config::{VersionDirectory, version_directory};
use repository::PrivateDirectory;
use vocabulary::Error;

use crate::options::RepositorySettings;

/// A repository of links to files, each of which is a model with the name of its file, without the extension.
#[derive(Debug)]
pub(super) struct FileRepository(PrivateDirectory);

impl FileRepository {
    /// The repository of the model files, or of the only model. `None` without them. Blocks.
    ///
    /// # Errors
    /// Those of [`FileRepository::new`]; INTERNAL if there is no such place.
    pub(super) fn of_settings(settings: &RepositorySettings) -> Result<Option<Self>, Error> {
        let Some(name) = &settings.single_model else { return Self::new(&settings.model_files) };
        let mut places =
            settings.paths.iter().map(Path::new).chain(settings.model_files.iter().map(PathBuf::as_path));
        places.next().map(|place| Self::of_one(name, place)).transpose()
    }

    fn of_one(name: &str, place: &Path) -> Result<Self, Error> {
        let repository = Self(PrivateDirectory::new()?);
        let model = repository.path().join(name);
        let linked = if place.is_file() { link(&model, place) } else { link_directory(&model, place) };
        linked.map_err(|error| Error::internal(format!("cannot serve '{}': {error}", place.display())))?;
        Ok(repository)
    }

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

/// Makes the directory of the model whose directory, or whose only version, is at `place`.
fn link_directory(model: &Path, place: &Path) -> io::Result<()> {
    let place = place.canonicalize()?;
    let entries = fs::read_dir(&place)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    let is_version = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        matches!(version_directory(&name), VersionDirectory::Version(_)) && path.is_dir()
    };
    if place.join("config.pbtxt").exists() || entries.iter().any(is_version) {
        return symlink(place, model);
    }
    // A file of another name than that which the backend looks for is the model if it is the only one.
    let mut graphs =
        entries.iter().filter(|path| path.extension().is_some_and(|extension| extension == "onnx"));
    match (graphs.next(), graphs.next()) {
        (Some(graph), None) if graph.file_name() != Some("model.onnx".as_ref()) => link(model, graph),
        _ => {
            fs::create_dir(model)?;
            symlink(place, model.join("1"))
        }
    }
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

    /// The paths of the files of a repository with one model, whose place has these files.
    fn single(files: &[&str], place: &str) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let file = root.path().join("given").join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let repository = FileRepository::of_one("m", &root.path().join("given").join(place)).unwrap();
        let mut found = Vec::new();
        let mut folders = vec![repository.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else {
                    found.push(entry.strip_prefix(repository.path()).unwrap().to_string_lossy().into_owned());
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn a_place_is_one_model_whether_it_is_a_model_a_version_or_a_file() {
        assert_eq!(single(&["config.pbtxt", "labels.txt"], ""), ["m/config.pbtxt", "m/labels.txt"]);
        assert_eq!(single(&["2/model.py", "3/model.py"], ""), ["m/2/model.py", "m/3/model.py"]);
        assert_eq!(single(&["model.py", "words/en.txt"], ""), ["m/1/model.py", "m/1/words/en.txt"]);
        assert_eq!(single(&["model.onnx", "other.onnx"], ""), ["m/1/model.onnx", "m/1/other.onnx"]);
        assert_eq!(single(&["resnet.onnx", "README.md"], ""), ["m/1/model.onnx"]);
        assert_eq!(single(&["resnet.onnx"], "resnet.onnx"), ["m/1/model.onnx"]);
        let error = FileRepository::of_one("m", Path::new("/no/such/place")).unwrap_err();
        assert_eq!(error.message, "cannot serve '/no/such/place': No such file or directory (os error 2)");
    }

    #[test]
    fn two_files_of_one_name_are_refused() {
        let files = ["x/m.onnx", "y/m.onnx"].map(PathBuf::from);
        let error = FileRepository::new(&files).unwrap_err();
        assert_eq!(error.message, "'x/m.onnx' and 'y/m.onnx' are both the model 'm': rename one of them");
    }
}
