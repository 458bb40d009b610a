//! What `make_forests.py` has written.

use std::path::{Path, PathBuf};

use forest::{Forest, ForestFormat, ReadOptions};

/// A forest with what its library predicts.
pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) model: PathBuf,
    pub(crate) format: ForestFormat,
    pub(crate) features: usize,
    pub(crate) outputs: usize,
    pub(crate) is_classifier: bool,
    pub(crate) objective: String,
    pub(crate) rows: Vec<GoldenRow>,
}

/// A row, and what the library says about it.
#[derive(Default)]
pub(crate) struct GoldenRow {
    pub(crate) values: Vec<f32>,
    pub(crate) prediction: Vec<f64>,
    pub(crate) margin: Vec<f64>,
    pub(crate) contributions: Option<Vec<f64>>,
}

impl Golden {
    pub(crate) fn file(&self) -> Vec<u8> {
        std::fs::read(&self.model).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    pub(crate) fn forest(&self, options: ReadOptions) -> Forest {
        Forest::read(self.format, &self.file(), options)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// The folder of the forests.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens")
}

/// All forests.
pub(crate) fn all() -> Vec<Golden> {
    let entries = std::fs::read_dir(folder()).expect("the goldens are in the repository");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "golden")).collect();
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

/// One forest.
pub(crate) fn named(name: &str) -> Golden {
    read(&folder().join(format!("{name}.golden")))
}

fn read(path: &Path) -> Golden {
    let text = std::fs::read_to_string(path).expect("a golden is text");
    let mut golden = Golden {
        name: path.file_stem().expect("a name").to_string_lossy().into_owned(),
        model: PathBuf::new(),
        format: ForestFormat::XgboostJson,
        features: 0,
        outputs: 0,
        is_classifier: false,
        objective: String::new(),
        rows: Vec::new(),
    };
    for line in text.lines() {
        let (word, values) = line.split_once(' ').expect("a word and values");
        let reals = || values.split(' ').map(|value| value.parse().expect("a number")).collect::<Vec<f64>>();
        match word {
            "model" => golden.model = folder().join(values),
            "format" => golden.format = format(values),
            "features" => golden.features = values.parse().expect("a number"),
            "outputs" => golden.outputs = values.parse().expect("a number"),
            "classifier" => golden.is_classifier = values == "true",
            "objective" => golden.objective = values.to_owned(),
            "row" => {
                let values = values.split(' ').map(|value| value.parse().expect("a number")).collect();
                golden.rows.push(GoldenRow { values, ..GoldenRow::default() });
            }
            _ => {
                let row = golden.rows.last_mut().expect("a row is before its predictions");
                match word {
                    "prediction" => row.prediction = reals(),
                    "margin" => row.margin = reals(),
                    "contributions" => row.contributions = Some(reals()),
                    _ => panic!("{}: {word} is not known", golden.name),
                }
            }
        }
    }
    golden
}

fn format(name: &str) -> ForestFormat {
    match name {
        "xgboost_json" => ForestFormat::XgboostJson,
        "xgboost_ubj" => ForestFormat::XgboostUbjson,
        "lightgbm" => ForestFormat::Lightgbm,
        "treelite_checkpoint" => ForestFormat::TreeliteCheckpoint,
        _ => panic!("{name} is not known"),
    }
}
