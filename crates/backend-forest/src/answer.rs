//! What the predictions of a forest become in the output of a request, as in Triton's FIL backend.
use crate::parameters::ForestParameters;

/// The numbers of the output for one row, made from the predictions for the row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ForestAnswer {
    /// The predictions.
    Predictions(usize),
    /// The place of the largest of so many predictions: the class.
    Class(usize),
    /// 1 if the prediction is above this, and 0 otherwise: the class of a binary classifier.
    AboveThreshold(f32),
    /// The prediction of a binary classifier, behind the probability of the other class.
    BothClasses,
}

impl ForestAnswer {
    /// The answer of a forest with so many predictions for a row, whose output has so many numbers in the configuration.
    /// `is_classifier` is what the forest is, if the parameters do not tell.
    pub(crate) fn of(
        parameters: &ForestParameters,
        is_classifier: bool,
        predictions: usize,
        configured: Option<usize>,
    ) -> Self {
        let is_classifier = parameters.is_classifier.unwrap_or(is_classifier);
        match (is_classifier, parameters.predict_proba, predictions) {
            (true, false, 1) => Self::AboveThreshold(parameters.threshold),
            (true, false, _) => Self::Class(predictions),
            (true, true, 1) if configured == Some(2) => Self::BothClasses,
            _ => Self::Predictions(predictions),
        }
    }

    /// How many numbers a row has.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Predictions(count) => count,
            Self::Class(_) | Self::AboveThreshold(_) => 1,
            Self::BothClasses => 2,
        }
    }

    /// The bytes of the output for rows with these predictions: FP32, little endian.
    pub(crate) fn bytes(self, predictions: &[f32]) -> Vec<u8> {
        match self {
            Self::Predictions(_) => le_bytes(predictions.iter().copied()),
            Self::Class(classes) => le_bytes(predictions.chunks_exact(classes).map(largest)),
            Self::AboveThreshold(threshold) => {
                le_bytes(predictions.iter().map(|&value| f32::from(u8::from(value > threshold))))
            }
            Self::BothClasses => le_bytes(predictions.iter().flat_map(|&value| [1.0 - value, value])),
        }
    }
}

/// FP32 elements in the form of the protocols.
pub(crate) fn le_bytes(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}

/// The place of the largest value, the first of equal ones. Values that are not numbers do not count.
fn largest(values: &[f32]) -> f32 {
    let mut best = 0;
    for (place, value) in values.iter().enumerate() {
        if *value > values[best] || values[best].is_nan() && !value.is_nan() {
            best = place;
        }
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "the output is FP32, and a forest has fewer classes than that counts"
    )]
    let class = best as f32;
    class
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use vocabulary::Name;

    use super::*;

    fn answer(parameters: &[(&str, &str)], predictions: usize, configured: Option<usize>) -> ForestAnswer {
        let values: BTreeMap<String, String> =
            parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let parameters = ForestParameters::of(&Name::new("m"), &values).unwrap();
        ForestAnswer::of(&parameters, true, predictions, configured)
    }

    fn numbers(answer: ForestAnswer, predictions: &[f32]) -> Vec<f32> {
        answer.bytes(predictions).as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    #[test]
    fn a_classifier_answers_with_the_class_unless_probabilities_are_wanted() {
        assert_eq!(answer(&[], 3, None), ForestAnswer::Class(3));
        assert_eq!(answer(&[("threshold", "0.25")], 1, None), ForestAnswer::AboveThreshold(0.25));
        assert_eq!(answer(&[("predict_proba", "true")], 3, None), ForestAnswer::Predictions(3));
        assert_eq!(answer(&[("predict_proba", "true")], 1, Some(1)), ForestAnswer::Predictions(1));
        assert_eq!(answer(&[("predict_proba", "true")], 1, Some(2)), ForestAnswer::BothClasses);
        assert_eq!(answer(&[("is_classifier", "false")], 3, None), ForestAnswer::Predictions(3));
    }

    #[test]
    fn classes_are_the_places_of_the_largest_predictions() {
        let predictions = [0.1, 0.7, 0.2, 0.5, 0.5, 0.0, f32::NAN, 0.1, 0.2];
        assert_eq!(numbers(ForestAnswer::Class(3), &predictions), [1.0, 0.0, 2.0]);
        assert_eq!(numbers(ForestAnswer::AboveThreshold(0.5), &[0.5, 0.6, f32::NAN]), [0.0, 1.0, 0.0]);
        assert_eq!(numbers(ForestAnswer::BothClasses, &[0.25, 1.0]), [0.75, 0.25, 0.0, 1.0]);
    }

    #[test]
    fn the_length_of_an_answer_is_that_of_its_bytes() {
        for answer in [ForestAnswer::Predictions(4), ForestAnswer::Class(4)] {
            assert_eq!(answer.bytes(&[0.0; 8]).len(), 2 * 4 * answer.len());
        }
        for answer in [ForestAnswer::AboveThreshold(0.5), ForestAnswer::BothClasses] {
            assert_eq!(answer.bytes(&[0.0; 2]).len(), 2 * 4 * answer.len());
        }
    }
}
