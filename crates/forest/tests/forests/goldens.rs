//! The forests of `make_forests.py`, compared with what the libraries predict.

use forest::{Forest, PredictionScratch, ReadOptions};

use crate::golden::{self, Golden, all};

/// The tolerance of predictions, relative and absolute.
const PREDICTION: f64 = 1e-6;
/// The tolerance of Shapley values.
const CONTRIBUTION: f64 = 1e-4;

/// What is compared: values of a row of a forest.
struct Compared<'g> {
    golden: &'g Golden,
    what: &'static str,
    row: usize,
}

impl Compared<'_> {
    fn check(&self, actual: &[f32], expected: &[f64], tolerance: f64) {
        let Self { golden, what, row } = self;
        assert_eq!(actual.len(), expected.len(), "{}: {what} of row {row}", golden.name);
        for (&actual, &expected) in actual.iter().zip(expected) {
            let (x, y) = (f64::from(actual), expected);
            let is_close = (x - y).abs() <= tolerance * (1.0 + y.abs()) || x == y || x.is_nan() && y.is_nan();
            assert!(is_close, "{}: {what} of row {row} is {x}, the library has {y}", golden.name);
        }
    }
}

#[test]
fn predictions_are_those_of_the_libraries() {
    let mut scratch = PredictionScratch::default();
    let goldens = all();
    assert!(goldens.len() >= 50, "there are {} forests", goldens.len());
    for golden in &goldens {
        let forest = golden.forest(ReadOptions::default());
        assert_eq!(forest.features(), golden.features, "{}", golden.name);
        assert_eq!(forest.outputs(), golden.outputs, "{}", golden.name);
        assert_eq!(forest.is_classifier(), golden.is_classifier, "{}", golden.name);
        if golden.objective != "-" {
            assert_eq!(forest.objective(), golden.objective, "{}", golden.name);
        }
        let rows: Vec<f32> = golden.rows.iter().flat_map(|row| row.values.iter().copied()).collect();
        let mut predictions = vec![0.0; golden.rows.len() * golden.outputs];
        let mut margins = predictions.clone();
        forest.predict(&rows, &mut predictions, &mut scratch).expect("the lengths fit");
        forest.predict_margins(&rows, &mut margins, &mut scratch).expect("the lengths fit");
        for (index, row) in golden.rows.iter().enumerate() {
            let range = index * golden.outputs..(index + 1) * golden.outputs;
            let compared = |what| Compared { golden, what, row: index };
            compared("margin").check(&margins[range.clone()], &row.margin, PREDICTION);
            compared("prediction").check(&predictions[range.clone()], &row.prediction, PREDICTION);
            // One row takes another way than many.
            let mut alone = vec![0.0; golden.outputs];
            forest.predict_margins(&row.values, &mut alone, &mut scratch).expect("the lengths fit");
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&alone), bits(&margins[range]), "{}: row {index} alone", golden.name);
        }
    }
}

#[test]
fn margins_of_lightgbm_are_equal_to_the_bit() {
    let mut scratch = PredictionScratch::default();
    for golden in all().iter().filter(|golden| golden.name.starts_with("lightgbm_")) {
        let forest = golden.forest(ReadOptions::default());
        for (index, row) in golden.rows.iter().enumerate() {
            let mut margins = vec![0.0; golden.outputs];
            forest.predict_margins(&row.values, &mut margins, &mut scratch).expect("the lengths fit");
            #[expect(clippy::cast_possible_truncation, reason = "the crate gives 32 bits")]
            let expected: Vec<f32> = row.margin.iter().map(|&margin| margin as f32).collect();
            assert_eq!(margins, expected, "{}: row {index}", golden.name);
        }
    }
}

#[test]
fn shapley_values_are_those_of_the_libraries() {
    let mut explained = 0;
    for golden in &all() {
        let forest = golden.forest(ReadOptions { keep_covers: true, ..ReadOptions::default() });
        let mut contributions = vec![0.0; (golden.features + 1) * golden.outputs];
        for (index, row) in
            golden.rows.iter().enumerate().filter(|(_, row)| row.margin.iter().all(|m| m.is_finite()))
        {
            forest
                .shap(&row.values, &mut contributions)
                .unwrap_or_else(|error| panic!("{}: {error}", golden.name));
            if let Some(expected) = &row.contributions {
                Compared { golden, what: "contributions", row: index }.check(
                    &contributions,
                    expected,
                    CONTRIBUTION,
                );
                explained += 1;
            }
            for (values, &margin) in contributions.chunks(golden.features + 1).zip(&row.margin) {
                let sum = values.iter().sum::<f32>();
                Compared { golden, what: "sum of contributions", row: index }.check(
                    &[sum],
                    &[margin],
                    CONTRIBUTION,
                );
            }
        }
    }
    assert!(explained > 400, "the libraries explain {explained} rows");
}

#[test]
fn forests_say_what_they_are() {
    let forest = golden::named("xgboost_vector_leaves").forest(ReadOptions::default());
    assert_eq!((forest.targets(), forest.classes(), forest.trees()), (3, 1, 3));
    assert!(forest.has_vector_leaves());
    let forest = golden::named("sklearn_forest_classifier").forest(ReadOptions::default());
    assert_eq!((forest.targets(), forest.classes(), forest.trees()), (1, 3, 5));
    let forest = golden::named("lightgbm_binary").forest(ReadOptions::default());
    assert_eq!(forest.link(), forest::Link::Logistic { slope: 1.7 });
    assert_eq!(forest.with_link(forest::Link::Identity).link(), forest::Link::Identity);
}

#[test]
fn slices_of_a_wrong_length_are_refused() {
    let forest: Forest = golden::named("xgboost_softprob").forest(ReadOptions::default());
    let mut scratch = PredictionScratch::default();
    let error = forest.predict(&[0.0; 7], &mut [0.0; 3], &mut scratch).expect_err("7 values are no rows");
    assert_eq!(error.to_string(), "rows must have 4 values, it has 7");
    let error =
        forest.predict(&[0.0; 8], &mut [0.0; 3], &mut scratch).expect_err("two rows have 6 predictions");
    assert_eq!(error.to_string(), "predictions must have 6 values, it has 3");
    let error = forest.shap(&[0.0; 4], &mut [0.0; 15]).expect_err("it has no covers");
    assert_eq!(
        error.to_string(),
        "Shapley values need the covers of the nodes: the model was read without them"
    );
    forest.predict(&[], &mut [], &mut scratch).expect("no rows have no predictions");
}
