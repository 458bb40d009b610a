//! XGBoost's documents, JSON and UBJSON, of releases 1.0 to 3.x.
//!
//! Learners write numbers as texts, trees write arrays with an element for each node. `doc/model.schema` of XGBoost
//! describes the fields; those that it does not have are in its sources, `SaveModel` of learner, `GBTreeModel` and
//! `RegTree`.

mod objective;
mod tree;

use crate::fault::{ForestError, malformed, unsupported};
use crate::forest::{Description, Forest, Margins};
use crate::format::ReadOptions;
use crate::readers::document::{Object, Value};
use crate::readers::layout_builder;
use crate::readers::xgboost::objective::Objective;
use crate::readers::xgboost::tree::TreeReader;

/// Reads a model of a file of `length` bytes.
pub(super) fn read(document: &Value<'_>, length: usize, options: ReadOptions) -> Result<Forest, ForestError> {
    let root = document.object("document")?;
    root.check_names("document", options, |name| matches!(name, "learner" | "version" | "Model" | "Config"))?;
    // A pickled booster has its model within.
    let root = match root.get("Model") {
        Some(model) => model.object("Model")?,
        None => root,
    };
    let learner = root.required("learner")?.object("learner")?;
    learner.check_names("learner", options, |name| {
        matches!(name, "attributes" | "feature_names" | "feature_types" | "gradient_booster")
            || matches!(name, "learner_model_param" | "objective")
    })?;
    let parameters = LearnerParameters::read(learner, options)?;
    let objective = Objective::read(learner, options)?;
    let booster = Booster::read(learner, options)?;
    let outputs = parameters.targets.saturating_mul(parameters.classes);
    let mut description = Description {
        features: parameters.features,
        targets: parameters.targets,
        classes: parameters.classes,
        is_classifier: objective.is_classifier(),
        has_vector_leaves: false,
        objective: objective.name.to_owned(),
        link: objective.link,
    };
    let mut builder = layout_builder(&description, false, options)?;
    let mut reader = TreeReader::new(outputs, length, options);
    for (index, tree) in booster.trees.iter().enumerate() {
        let group = booster.groups.get(index).copied();
        let tree = reader.read(tree, group).map_err(|error| error.within(|| format!("tree {index}")))?;
        builder.push(&tree, booster.weights.get(index).copied())?;
    }
    description.has_vector_leaves = builder.has_vectors();
    let base = parameters.margins(&objective, outputs)?;
    Ok(Forest { description, margins: Margins { base, divisors: None }, layout: builder.finish()? })
}

/// The numbers of `learner_model_param`.
struct LearnerParameters {
    features: usize,
    targets: usize,
    classes: usize,
    /// One, or one for each output, before the objective makes margins of them.
    base_scores: Vec<f32>,
}

impl LearnerParameters {
    fn read(learner: &Object<'_>, options: ReadOptions) -> Result<Self, ForestError> {
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
    fn margins(&self, objective: &Objective<'_>, outputs: usize) -> Result<Vec<f64>, ForestError> {
        let margin = |score: &f32| f64::from(objective.margin(*score));
        match &self.base_scores[..] {
            [score] => Ok(vec![margin(score); outputs]),
            scores if scores.len() == outputs => Ok(scores.iter().map(margin).collect()),
            _ => Err(malformed("base_score", format!("it must have 1 or {outputs} numbers"))),
        }
    }
}

/// A whole number, which XGBoost writes as a text.
fn whole(value: &Value<'_>, name: &str) -> Result<usize, ForestError> {
    let text = value.text(name)?;
    text.trim().parse().map_err(|_| malformed(name, "it must be the text of a whole number"))
}

/// The trees, with what each of them adds to.
struct Booster<'d, 'f> {
    trees: &'d [Value<'f>],
    /// The output of each tree.
    groups: Vec<i64>,
    /// The weights of DART, or nothing.
    weights: Vec<f32>,
}

impl<'d, 'f> Booster<'d, 'f> {
    fn read(learner: &'d Object<'f>, options: ReadOptions) -> Result<Self, ForestError> {
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
