//! The booster of a learner: its trees and their weights.

use crate::fault::{ForestError, malformed, unsupported};
use crate::format::ReadOptions;
use crate::readers::document::{Object, Value};

/// The trees, with what each of them adds to.
pub(super) struct Booster<'d, 'f> {
    pub(super) trees: &'d [Value<'f>],
    /// The output of each tree.
    pub(super) groups: Vec<i64>,
    /// The weights of DART, or nothing.
    pub(super) weights: Vec<f32>,
}

impl<'d, 'f> Booster<'d, 'f> {
    pub(super) fn read(learner: &'d Object<'f>, options: ReadOptions) -> Result<Self, ForestError> {
        let booster = learner.required("gradient_booster")?.object("gradient_booster")?;
        match booster.required("name")?.text("name")? {
            "gbtree" | "dart" => {}
            name => return Err(unsupported(format!("booster `{name}`"), "boosters are `gbtree` and `dart`")),
        }
        let check = |object: &Object<'_>, place: &str| {
            object.check_names(place, options, |name| {
                matches!(name, "name" | "model" | "gbtree" | "weight_drop")
            })
        };
        check(booster, "gradient_booster")?;
        let inner = match booster.get("gbtree") {
            Some(inner) => inner.object("gbtree")?,
            None => booster,
        };
        check(inner, "gbtree")?;
        let model = inner.required("model")?.object("model")?;
        model.check_names("model", options, |name| {
            matches!(
                name,
                "gbtree_model_param" | "trees" | "tree_info" | "iteration_indptr" | "cats" | "weight_drop"
            )
        })?;
        let trees = model.required("trees")?.array("trees")?;
        let groups = model.required("tree_info")?.integers("tree_info")?;
        let weights = booster.get("weight_drop").or_else(|| model.get("weight_drop"));
        let weights = weights.map_or(Ok(Vec::new()), |weights| weights.reals("weight_drop"))?;
        let count = trees.len();
        if groups.len() != count {
            return Err(malformed("tree_info", format!("it must have an element for each of {count} trees")));
        }
        if !weights.is_empty() && weights.len() != count {
            return Err(malformed(
                "weight_drop",
                format!("it must have an element for each of {count} trees"),
            ));
        }
        Ok(Self { trees, groups, weights })
    }
}
