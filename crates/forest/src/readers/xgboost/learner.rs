//! The parameters of a learner.

use crate::fault::{ForestError, malformed};
use crate::format::ReadOptions;
use crate::readers::document::{Object, Value};
use crate::readers::xgboost::objective::XgboostObjective;

/// The numbers of `learner_model_param`.
pub(super) struct LearnerParameters {
    pub(super) features: usize,
    pub(super) targets: usize,
    pub(super) classes: usize,
    /// One, or one for each output, before the objective makes margins of them.
    base_scores: Vec<f32>,
}

impl LearnerParameters {
    pub(super) fn read(learner: &Object<'_>, options: ReadOptions) -> Result<Self, ForestError> {
        let parameters = learner.required("learner_model_param")?.object("learner_model_param")?;
        parameters.check_names("learner_model_param", options, |name| {
            matches!(name, "base_score" | "boost_from_average" | "num_class" | "num_feature" | "num_target")
        })?;
        let count = |name: &str| match parameters.get(name) {
            None => Ok(0),
            Some(value) => whole(value, name),
        };
        let base_score = parameters.required("base_score")?.text("base_score")?;
        let list = base_score.trim().trim_start_matches('[').trim_end_matches(']');
        let base_scores: Option<Vec<f32>> =
            list.split(',').map(|word| fast_float2::parse(word.trim()).ok()).collect();
        Ok(Self {
            features: count("num_feature")?,
            targets: count("num_target")?.max(1),
            classes: count("num_class")?.max(1),
            base_scores: base_scores
                .ok_or_else(|| malformed("base_score", "it must be a number or a list of numbers"))?,
        })
    }

    /// The margins with which the outputs begin.
    pub(super) fn margins(
        &self,
        objective: &XgboostObjective<'_>,
        outputs: usize,
    ) -> Result<Vec<f64>, ForestError> {
        let margin = |score: &f32| f64::from(objective.margin(*score));
        match &self.base_scores[..] {
            [score] => Ok(vec![margin(score); outputs]),
            scores if scores.len() == outputs => Ok(scores.iter().map(margin).collect()),
            _ => Err(malformed("base_score", format!("it must have 1 or {outputs} numbers"))),
        }
    }
}

/// A whole number, which XGBoost writes as a text.
pub(super) fn whole(value: &Value<'_>, name: &str) -> Result<usize, ForestError> {
    let text = value.text(name)?;
    text.trim().parse().map_err(|_| malformed(name, "it must be the text of a whole number"))
}
