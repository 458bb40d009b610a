//! A forest as its users see it.

use crate::evaluate::{Evaluation, PredictionScratch};
use crate::fault::ForestError;
use crate::format::{ForestFormat, ReadOptions};
use crate::layout::LeafValues;
use crate::link::Link;
use crate::model::{ForestModel, Margins};
use crate::readers;
use crate::real::Real;
use crate::shap::Explanation;

/// An ensemble of decision trees, ready to predict.
///
/// It is immutable, so threads may share it. Each thread has its own [`PredictionScratch`].
#[derive(Debug)]
pub struct Forest {
    model: ForestModel,
}

impl Forest {
    /// Reads a model file.
    ///
    /// The file may come from outside: no input makes this function panic, and its memory is a small multiple of the
    /// file's length. It blocks for the time of parsing, about 100 ms for 50 MB.
    ///
    /// # Errors
    /// [`ForestError::Malformed`] if the file breaks a rule of its format, [`ForestError::Unsupported`] if it has
    /// something that is not evaluated: linear boosters, linear leaves, unknown objectives.
    pub fn read(format: ForestFormat, file: &[u8], options: ReadOptions) -> Result<Self, ForestError> {
        Ok(Self { model: readers::read(format, file, options)? })
    }

    /// The number of values of a row.
    #[must_use]
    pub fn features(&self) -> usize {
        self.model.description.features
    }

    /// The number of values that are predicted for a row: targets times classes.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.model.description.targets * self.model.description.classes
    }

    /// The number of targets. More than one only for multi-output models.
    #[must_use]
    pub fn targets(&self) -> usize {
        self.model.description.targets
    }

    /// The number of values that are predicted for each target. A binary classifier that gives the probability of the
    /// positive class has one.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.model.description.classes
    }

    /// The number of trees.
    #[must_use]
    pub fn trees(&self) -> usize {
        self.model.layout.trees.len()
    }

    /// The bytes of memory that the forest takes.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        self.model.layout.byte_size()
    }

    /// Whether the model is a classifier, by its objective or by what the checkpoint says.
    #[must_use]
    pub fn is_classifier(&self) -> bool {
        self.model.description.is_classifier
    }

    /// Whether a tree adds to several outputs at once.
    #[must_use]
    pub fn has_vector_leaves(&self) -> bool {
        self.model.description.has_vector_leaves
    }

    /// The name of the objective in the file, such as `binary:logistic`. For treelite the name of the postprocessor.
    #[must_use]
    pub fn objective(&self) -> &str {
        &self.model.description.objective
    }

    /// What makes predictions of margins.
    #[must_use]
    pub fn link(&self) -> Link {
        self.model.description.link
    }

    /// The same forest with another link.
    #[must_use]
    pub fn with_link(mut self, link: Link) -> Self {
        self.model.description.link = link;
        self
    }

    /// Predicts for `rows`, which has the values of one row after the other. Missing values are NaN. `predictions` gets
    /// [`outputs`](Self::outputs) values for each row.
    ///
    /// The predictions of a classifier are probabilities, also if the objective is `multi:softmax`.
    ///
    /// # Errors
    /// [`ForestError::Length`] if `rows` does not have whole rows, or `predictions` does not fit them.
    pub fn predict(
        &self,
        rows: &[f32],
        predictions: &mut [f32],
        scratch: &mut PredictionScratch,
    ) -> Result<(), ForestError> {
        self.evaluate(rows, predictions, scratch, self.model.description.link)
    }

    /// Gives the margins of `rows`: what [`predict`](Self::predict) would give if the link were the identity.
    ///
    /// # Errors
    /// As [`predict`](Self::predict).
    pub fn predict_margins(
        &self,
        rows: &[f32],
        margins: &mut [f32],
        scratch: &mut PredictionScratch,
    ) -> Result<(), ForestError> {
        self.evaluate(rows, margins, scratch, Link::Identity)
    }

    /// Gives the Shapley values of one row. `contributions` gets, for each output, a value for each feature and then
    /// the bias. The sum of an output's values is its margin.
    ///
    /// They are those of path-dependent TreeSHAP (Lundberg et al. 2018, algorithm 2), as `pred_contribs` of XGBoost and
    /// `pred_contrib` of LightGBM. The time grows with the square of the depth.
    ///
    /// # Errors
    /// [`ForestError::NoCovers`] unless the forest was read with [`ReadOptions::keep_covers`] and the file has covers.
    /// [`ForestError::Length`] if `row` is not one row, or `contributions` does not fit it.
    pub fn shap(&self, row: &[f32], contributions: &mut [f32]) -> Result<(), ForestError> {
        check_length("row", self.features(), row.len())?;
        check_length("contributions", (self.features() + 1) * self.outputs(), contributions.len())?;
        let Some(covers) = &self.model.layout.covers else {
            return Err(ForestError::NoCovers("the model was read without them"));
        };
        let explanation = Explanation { layout: &self.model.layout, covers, features: self.features() };
        explanation.explain(row, &self.model.margins, contributions)
    }

    fn evaluate(
        &self,
        rows: &[f32],
        predictions: &mut [f32],
        scratch: &mut PredictionScratch,
        link: Link,
    ) -> Result<(), ForestError> {
        let count = rows.len() / self.features();
        check_length("rows", count * self.features(), rows.len())?;
        check_length("predictions", count * self.outputs(), predictions.len())?;
        match &self.model.layout.leaves.values {
            LeafValues::Single(values) => {
                self.add_leaves(rows, values, predictions.len(), &mut scratch.single);
                self.make_predictions(&mut scratch.single, link, predictions);
            }
            LeafValues::Double(values) => {
                self.add_leaves(rows, values, predictions.len(), &mut scratch.double);
                self.make_predictions(&mut scratch.double, link, predictions);
            }
        }
        Ok(())
    }

    /// Makes `sums` the `count` sums of the leaves, whose values are `values`, that `rows` come to.
    fn add_leaves<R: Real>(&self, rows: &[f32], values: &[R], count: usize, sums: &mut Vec<R>) {
        // XGBoost begins with the base. An average gets it at the end.
        let has_divisors = self.model.margins.divisors.is_some();
        let first = |base: &f64| if has_divisors { R::ZERO } else { R::near(*base) };
        sums.clear();
        sums.extend(self.model.margins.base.iter().map(first).cycle().take(count));
        let (features, outputs) = (self.features(), self.outputs());
        Evaluation { layout: &self.model.layout, features, outputs, values }.add(rows, sums);
    }

    /// Makes predictions of sums of leaves.
    fn make_predictions<R: Real>(&self, sums: &mut [R], link: Link, predictions: &mut [f32]) {
        let Margins { base, divisors } = &self.model.margins;
        let outputs = self.outputs();
        for (sums, predictions) in sums.chunks_exact_mut(outputs).zip(predictions.chunks_exact_mut(outputs)) {
            if let Some(divisors) = divisors {
                for ((sum, divisor), base) in sums.iter_mut().zip(divisors).zip(base) {
                    *sum /= R::near(*divisor);
                    *sum += R::near(*base);
                }
            }
            link.apply(sums, self.model.description.classes);
            for (prediction, sum) in predictions.iter_mut().zip(sums) {
                *prediction = sum.single();
            }
        }
    }
}

fn check_length(slice: &'static str, expected: usize, actual: usize) -> Result<(), ForestError> {
    if expected == actual { Ok(()) } else { Err(ForestError::Length { slice, expected, actual }) }
}
