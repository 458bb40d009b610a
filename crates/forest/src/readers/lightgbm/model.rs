//! The model of a file.

use crate::fault::{ForestError, malformed, unsupported};
use crate::format::ReadOptions;
use crate::model::{Description, ForestModel, Margins};
use crate::readers::bounds::layout_builder;
use crate::readers::lightgbm::fields::TextFields;
use crate::readers::lightgbm::objective::LightgbmObjective;
use crate::readers::lightgbm::tree;
use crate::tree::{CategoryBudget, OutputRange};

/// Reads a model.
pub(in crate::readers) fn read(file: &[u8], options: ReadOptions) -> Result<ForestModel, ForestError> {
    let mut lines = file.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    if lines.next() != Some(b"tree") {
        return Err(malformed("first line", "it must be `tree`"));
    }
    let heading = TextFields::read(&mut lines)?;
    match heading.text("version")? {
        "v3" | "v4" => {}
        version => {
            let what = format!("LightGBM's text of version `{version}`");
            return Err(unsupported(
                what,
                "versions are v3 and v4; a release from 3.0 on saves the model as one of them",
            ));
        }
    }
    let last_feature: usize = heading.number("max_feature_idx")?;
    let classes: usize = heading.number("num_class")?;
    let per_iteration = heading.optional_number("num_tree_per_iteration")?.unwrap_or(classes);
    if classes != per_iteration {
        return Err(malformed("num_tree_per_iteration", format!("it must be num_class, which is {classes}")));
    }
    let objective = LightgbmObjective::read(&heading, classes)?;
    let mut description = Description {
        features: last_feature.saturating_add(1),
        targets: 1,
        classes,
        is_classifier: objective.is_classifier,
        has_vector_leaves: false,
        objective: objective.name.to_owned(),
        link: objective.link,
    };
    let mut builder = layout_builder(&description, true, options)?;
    let mut budget = CategoryBudget::new(file.len());
    let mut count = 0;
    let mut is_tree = heading.ends_with_tree;
    while is_tree {
        let within = |error: ForestError| error.within(|| format!("tree {count}"));
        let fields = TextFields::read(&mut lines).map_err(within)?;
        let mut tree = tree::read(&fields, &mut budget, options).map_err(within)?;
        tree.outputs = OutputRange::one(count % classes);
        builder.push(&tree, None)?;
        is_tree = fields.ends_with_tree;
        count += 1;
    }
    if count % classes != 0 {
        return Err(malformed(
            "trees",
            format!("their number {count} must be a multiple of num_class {classes}"),
        ));
    }
    description.has_vector_leaves = builder.has_vectors();
    #[expect(clippy::cast_precision_loss, reason = "there are fewer trees than 2^53")]
    let iterations = (count / classes).max(1) as f64;
    let divisors = heading.has("average_output").then(|| vec![iterations; classes]);
    let margins = Margins { base: vec![0.0; classes], divisors };
    Ok(ForestModel { description, margins, layout: builder.finish()? })
}
