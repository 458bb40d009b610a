//! treelite's postprocessors, which are links.

use crate::fault::{ForestError, malformed, unsupported};
use crate::link::Link;

/// The link that the postprocessor `name` is.
pub(super) fn link(name: &str, sigmoid_alpha: f32, ratio_c: f32) -> Result<Link, ForestError> {
    let logistic = || match f64::from(sigmoid_alpha) {
        slope if slope > 0.0 => Ok(Link::Logistic { slope }),
        _ => Err(malformed("sigmoid_alpha", "it must be positive")),
    };
    match name {
        "identity" | "identity_multiclass" => Ok(Link::Identity),
        "signed_square" => Ok(Link::SignedSquare),
        "hinge" => Ok(Link::Hinge),
        "sigmoid" | "multiclass_ova" => logistic(),
        "exponential" => Ok(Link::Exponential),
        "exponential_standard_ratio" => match f64::from(ratio_c) {
            ratio if ratio > 0.0 => Ok(Link::ExponentialRatio { ratio }),
            _ => Err(malformed("ratio_c", "it must be positive")),
        },
        "logarithm_one_plus_exp" => Ok(Link::LogOnePlusExp),
        "softmax" => Ok(Link::Softmax),
        _ => Err(unsupported(format!("postprocessor `{name}`"), "it is none of treelite 4")),
    }
}
