//! LightGBM's objectives and their links.

use crate::fault::{ForestError, malformed, unsupported};
use crate::link::Link;
use crate::readers::lightgbm::fields::TextFields;

/// An objective with its parameters.
pub(super) struct LightgbmObjective<'f> {
    pub(super) name: &'f str,
    pub(super) link: Link,
    pub(super) is_classifier: bool,
}

impl<'f> LightgbmObjective<'f> {
    /// Reads the field `objective`, such as `binary sigmoid:1`. A model whose objective was a function has none.
    pub(super) fn read(heading: &TextFields<'f>, classes: usize) -> Result<Self, ForestError> {
        let mut words = heading.get("objective").unwrap_or("custom").split_ascii_whitespace();
        let name = words.next().unwrap_or("custom");
        let mut is_sqrt = false;
        let mut slope = None;
        for word in words {
            match word.split_once(':') {
                None if word == "sqrt" => is_sqrt = true,
                Some(("sigmoid", value)) => slope = fast_float2::parse::<f64, _>(value).ok(),
                // Other parameters are about the training.
                _ => {}
            }
        }
        let logistic = || match slope {
            Some(slope) if slope > 0.0 => Ok(Link::Logistic { slope }),
            _ => Err(malformed("objective", format!("`{name}` must have a positive parameter `sigmoid`"))),
        };
        let (link, is_classifier) = match name {
            "regression" | "regression_l1" | "huber" | "fair" | "quantile" | "mape" => {
                (if is_sqrt { Link::SignedSquare } else { Link::Identity }, false)
            }
            "custom" | "lambdarank" | "rank_xendcg" => (Link::Identity, false),
            "poisson" | "gamma" | "tweedie" => (Link::Exponential, false),
            "binary" => (logistic()?, true),
            "multiclass" => (Link::Softmax, true),
            "multiclassova" => (logistic()?, true),
            "cross_entropy" => (Link::Logistic { slope: 1.0 }, true),
            "cross_entropy_lambda" => (Link::LogOnePlusExp, true),
            _ => return Err(unsupported(format!("objective `{name}`"), "its link is not known")),
        };
        let is_multiclass = matches!(name, "multiclass" | "multiclassova" | "custom");
        if classes != 1 && !is_multiclass {
            return Err(malformed("num_class", format!("it must be 1 for the objective `{name}`")));
        }
        Ok(Self { name, link, is_classifier })
    }
}
