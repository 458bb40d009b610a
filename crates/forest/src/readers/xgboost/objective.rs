//! XGBoost's objectives: their links, and how a base score becomes a margin.

use crate::fault::{ForestError, unsupported};
use crate::format::ReadOptions;
use crate::link::Link;
use crate::readers::document::Object;

/// Probabilities are kept this far from 0 and 1. As XGBoost: base.h, kRtEps.
const EPSILON: f32 = 1e-6;

/// An objective.
pub(super) struct XgboostObjective<'d> {
    pub(super) name: &'d str,
    pub(super) link: Link,
}

impl<'d> XgboostObjective<'d> {
    pub(super) fn read(learner: &'d Object<'_>, options: ReadOptions) -> Result<Self, ForestError> {
        let objective = learner.required("objective")?.object("objective")?;
        // The parameters of a loss do not change its link.
        objective.check_names("objective", options, |name| name == "name" || name.ends_with("_param"))?;
        let name = objective.required("name")?.text("name")?;
        let link = match name {
            "reg:squarederror" | "reg:linear" | "reg:squaredlogerror" | "reg:absoluteerror" => Link::Identity,
            "reg:pseudohubererror" | "reg:quantileerror" | "binary:logitraw" => Link::Identity,
            "rank:pairwise" | "rank:ndcg" | "rank:map" => Link::Identity,
            "reg:logistic" | "binary:logistic" => Link::Logistic { slope: 1.0 },
            "binary:hinge" => Link::Hinge,
            "count:poisson" | "reg:gamma" | "reg:tweedie" | "survival:cox" | "survival:aft" => {
                Link::Exponential
            }
            "multi:softmax" | "multi:softprob" => Link::Softmax,
            _ => {
                return Err(unsupported(
                    format!("objective `{name}`"),
                    "its link is not known; a model can be saved with an objective of the same link, such as \
                     `reg:squarederror` for the identity",
                ));
            }
        };
        Ok(Self { name, link })
    }

    pub(super) fn is_classifier(&self) -> bool {
        self.name.starts_with("binary:") || self.name.starts_with("multi:")
    }

    /// The margin of a base score. As XGBoost: ProbToMargin of the objectives.
    pub(super) fn margin(&self, score: f32) -> f32 {
        match self.link {
            Link::Logistic { .. } => -(1.0 / score.clamp(EPSILON, 1.0 - EPSILON) - 1.0).ln(),
            Link::Exponential => score.ln(),
            _ => score,
        }
    }
}
