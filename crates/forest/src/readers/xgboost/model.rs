//! The model of a file.

use crate::fault::ForestError;
use crate::format::ReadOptions;
use crate::model::{Description, ForestModel, Margins};
use crate::readers::bounds::layout_builder;
use crate::readers::document::Value;
use crate::readers::xgboost::booster::Booster;
use crate::readers::xgboost::learner::LearnerParameters;
use crate::readers::xgboost::objective::XgboostObjective;
use crate::readers::xgboost::tree::XgboostTreeReader;

/// Reads a model of a file of `length` bytes.
pub(in crate::readers) fn read(
    document: &Value<'_>,
    length: usize,
    options: ReadOptions,
) -> Result<ForestModel, ForestError> {
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
    let objective = XgboostObjective::read(learner, options)?;
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
    let mut reader = XgboostTreeReader::new(outputs, length, options);
    for (index, tree) in booster.trees.iter().enumerate() {
        let group = booster.groups.get(index).copied();
        let tree = reader.read(tree, group).map_err(|error| error.within(|| format!("tree {index}")))?;
        builder.push(&tree, booster.weights.get(index).copied())?;
    }
    description.has_vector_leaves = builder.has_vectors();
    let base = parameters.margins(&objective, outputs)?;
    Ok(ForestModel { description, margins: Margins { base, divisors: None }, layout: builder.finish()? })
}
