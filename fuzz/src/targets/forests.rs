//! Files of forests. What has been read is asked for a prediction: the evaluator relies on what the reader has proved.
use forest::{Forest, ForestFormat, PredictionScratch, ReadOptions};

use crate::{Bound, Effort, FuzzTarget};

/// For each byte of a document: its value, a node, and a place of the layout, while they are built.
const MEMORY: Bound = Bound {
    factor: 128,
    constant: 18 << 20,
    reason: "values of a document become nodes, and sets of categories may have 16 MiB",
};
const WORK: Bound = Bound {
    factor: 8,
    constant: 16 << 10,
    reason: "each value of a document may be allocated, and moved as vectors grow",
};

pub(super) const XGBOOST_JSON: FuzzTarget = FuzzTarget {
    name: "forest-xgboost-json",
    reads: "`xgboost.json`",
    memory: MEMORY,
    work: WORK,
    run: |file| run(ForestFormat::XgboostJson, file),
};

pub(super) const XGBOOST_UBJSON: FuzzTarget = FuzzTarget {
    name: "forest-xgboost-ubjson",
    reads: "`xgboost.ubj`",
    memory: MEMORY,
    work: WORK,
    run: |file| run(ForestFormat::XgboostUbjson, file),
};

pub(super) const LIGHTGBM: FuzzTarget = FuzzTarget {
    name: "forest-lightgbm",
    reads: "`model.txt`",
    memory: MEMORY,
    work: WORK,
    run: |file| run(ForestFormat::Lightgbm, file),
};

pub(super) const TREELITE: FuzzTarget = FuzzTarget {
    name: "forest-treelite",
    reads: "`checkpoint.tl`",
    memory: MEMORY,
    work: WORK,
    run: |file| run(ForestFormat::TreeliteCheckpoint, file),
};

/// The most values of rows and predictions that a run asks for. A file of a few bytes may have many features.
const MOST_VALUES: usize = 1 << 12;

fn run(format: ForestFormat, file: &[u8]) -> Effort {
    let options = ReadOptions { allow_unknown_fields: true, keep_covers: false };
    let Ok(forest) = Forest::read(format, file, options) else { return Effort::default() };
    // Eight rows take one way through the evaluator, and one row the other.
    for rows in [1, 9] {
        if rows * (forest.features() + forest.outputs()) > MOST_VALUES {
            continue;
        }
        for value in [f32::NAN, 0.0, -1.0, 3.5, f32::INFINITY] {
            let values = vec![value; rows * forest.features()];
            let mut predictions = vec![0.0; rows * forest.outputs()];
            let predicted = forest.predict(&values, &mut predictions, &mut PredictionScratch::default());
            predicted.expect("the slices have the lengths that the forest wants");
        }
    }
    Effort::default()
}
