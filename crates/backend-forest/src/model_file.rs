//! The file of a version, and its format.
use std::{
    fs,
    path::{Path, PathBuf},
};

use forest::ForestFormat;
use inference::backend::ModelSource;
use vocabulary::Error;

use crate::parameters::{FORMATS, ForestParameters};

/// A file with a forest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ModelFile {
    pub(crate) path: PathBuf,
    pub(crate) format: ForestFormat,
}

impl ModelFile {
    /// The file that the configuration names, or else the one with the usual name of the format. Without a format, the
    /// name of the file tells it.
    ///
    /// # Errors
    /// INVALID_ARG if there is no such file, or if nothing tells its format.
    pub(crate) fn of(source: &ModelSource, parameters: &ForestParameters) -> Result<Self, Error> {
        let directory = &source.version_directory;
        let named = &source.declared.default_model_filename;
        let (path, format) = match (named.as_str(), parameters.format) {
            ("", Some(format)) => (directory.join(usual_name(format)), format),
            ("", None) => {
                let there = |name: &&(&str, ForestFormat, &str)| directory.join(name.2).is_file();
                let Some((_, format, name)) = FORMATS.iter().find(there) else {
                    return Err(nothing_there(source));
                };
                (directory.join(name), *format)
            }
            (named, Some(format)) => (directory.join(named), format),
            (named, None) => {
                let path = directory.join(named);
                let format = format_of(&path).ok_or_else(|| {
                    Error::invalid(format!(
                        "model '{}': the name '{named}' does not tell the format of the forest: set parameter 'model_type'",
                        source.name
                    ))
                })?;
                (path, format)
            }
        };
        if !path.is_file() {
            let text = format!(
                "model '{}' version {}: there is no file '{}'",
                source.name,
                source.version,
                path.display()
            );
            return Err(Error::invalid(text));
        }
        Ok(Self { path, format })
    }

    /// The content of the file.
    ///
    /// # Errors
    /// INTERNAL if it cannot be read.
    pub(crate) fn read(&self) -> Result<Vec<u8>, Error> {
        fs::read(&self.path)
            .map_err(|error| Error::internal(format!("unable to read '{}': {error}", self.path.display())))
    }
}

fn usual_name(format: ForestFormat) -> &'static str {
    FORMATS.iter().find(|(_, known, _)| *known == format).map_or("", |(.., name)| *name)
}

/// The format that the name of a file tells: a usual name, or an extension that only one format has.
fn format_of(path: &Path) -> Option<ForestFormat> {
    let name = path.file_name()?.to_str()?;
    let usual = FORMATS.iter().find(|(.., usual)| *usual == name).map(|(_, format, _)| *format);
    usual.or_else(|| match path.extension()?.to_str()? {
        "ubj" => Some(ForestFormat::XgboostUbjson),
        "json" => Some(ForestFormat::XgboostJson),
        "txt" => Some(ForestFormat::Lightgbm),
        "tl" => Some(ForestFormat::TreeliteCheckpoint),
        _ => None,
    })
}

fn nothing_there(source: &ModelSource) -> Error {
    let names: Vec<_> = FORMATS.iter().map(|(.., name)| *name).collect();
    Error::invalid(format!(
        "model '{}' version {}: the directory has none of {}: set 'default_model_filename'",
        source.name,
        source.version,
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use vocabulary::Name;

    use super::*;

    fn found(
        files: &[&str],
        named: &str,
        model_type: Option<&str>,
    ) -> Result<(String, ForestFormat), String> {
        let directory = tempfile::tempdir().unwrap();
        for file in files {
            fs::write(directory.path().join(file), "").unwrap();
        }
        let source = ModelSource {
            name: "m".into(),
            version: 1,
            version_directory: directory.path().into(),
            model_directory: directory.path().into(),
            declared: Arc::new(proto::ModelConfig {
                default_model_filename: named.to_owned(),
                ..Default::default()
            }),
            settings: BTreeMap::new(),
            inferer: None,
            host_policies: Arc::default(),
        };
        let values = model_type.map(|word| ("model_type".to_owned(), word.to_owned())).into_iter().collect();
        let parameters = ForestParameters::of(&Name::new("m"), &values).unwrap();
        let ModelFile { path, format } =
            ModelFile::of(&source, &parameters).map_err(|error| error.message.into_owned())?;
        Ok((path.file_name().unwrap().to_str().unwrap().to_owned(), format))
    }

    #[test]
    fn the_format_and_the_name_of_the_file_tell_each_other() {
        for (files, named, model_type, expected) in [
            (&["xgboost.json"][..], "", Some("xgboost_json"), ("xgboost.json", ForestFormat::XgboostJson)),
            (&["model.txt"], "", None, ("model.txt", ForestFormat::Lightgbm)),
            (&["checkpoint.tl", "model.txt"], "", None, ("checkpoint.tl", ForestFormat::TreeliteCheckpoint)),
            (&["prices.ubj"], "prices.ubj", None, ("prices.ubj", ForestFormat::XgboostUbjson)),
            (&["prices"], "prices", Some("lightgbm"), ("prices", ForestFormat::Lightgbm)),
        ] {
            assert_eq!(found(files, named, model_type), Ok((expected.0.to_owned(), expected.1)));
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = found(&["weights.bin"], "", None).unwrap_err();
        assert!(error.contains("the directory has none of xgboost.ubj, xgboost.json"), "{error}");
        let error = found(&["a.bin"], "a.bin", None).unwrap_err();
        assert!(error.contains("does not tell the format of the forest"), "{error}");
        let error = found(&[], "", Some("lightgbm")).unwrap_err();
        assert!(error.contains("there is no file") && error.contains("model.txt"), "{error}");
    }
}
