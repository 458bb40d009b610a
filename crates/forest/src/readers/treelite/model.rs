//! The model of a file.

use crate::fault::{ForestError, malformed, unsupported};
use crate::format::ReadOptions;
use crate::layout::LayoutBuilder;
use crate::link::Link;
use crate::model::{Description, ForestModel, Margins};
use crate::readers::bounds::layout_builder;
use crate::readers::treelite::cursor::CheckpointCursor;
use crate::readers::treelite::postprocessor;
use crate::readers::treelite::tree::CheckpointTreeReader;
use crate::tree::OutputRange;

/// Reads a model.
pub(in crate::readers) fn read(file: &[u8], options: ReadOptions) -> Result<ForestModel, ForestError> {
    let mut cursor = CheckpointCursor::new(file);
    let header = CheckpointHeader::read(&mut cursor)?;
    let mut description = header.description()?;
    let mut builder = layout_builder(&description, header.is_double, options)?;
    let outputs = header.targets * header.classes;
    let mut trees_of_output = vec![0.0f64; if header.averages { outputs } else { 0 }];
    let mut reader = CheckpointTreeReader::new(header.is_double, file.len(), options);
    for index in 0..header.trees {
        let mut tree = reader.read(&mut cursor).map_err(|error| error.within(|| format!("tree {index}")))?;
        tree.outputs =
            header.tree_outputs(index).map_err(|error| error.within(|| format!("tree {index}")))?;
        push(&mut builder, &tree, &mut trees_of_output)?;
    }
    cursor.finish()?;
    description.has_vector_leaves = builder.has_vectors();
    let divisors = header.averages.then(|| trees_of_output.iter().map(|count| count.max(1.0)).collect());
    let margins = Margins { base: header.base_scores, divisors };
    Ok(ForestModel { description, margins, layout: builder.finish()? })
}

fn push(
    builder: &mut LayoutBuilder,
    tree: &crate::tree::Tree,
    trees_of_output: &mut [f64],
) -> Result<(), ForestError> {
    builder.push(tree, None)?;
    let OutputRange { first, stride, count } = tree.outputs;
    for trees in trees_of_output.iter_mut().skip(first).step_by(stride).take(count) {
        *trees += 1.0;
    }
    Ok(())
}

/// The fields before the trees.
struct CheckpointHeader {
    is_double: bool,
    trees: usize,
    features: usize,
    is_classifier: bool,
    averages: bool,
    targets: usize,
    /// The largest number of classes of a target.
    classes: usize,
    has_equal_classes: bool,
    /// The target and the class of each tree. -1 for all of them.
    target_ids: Vec<i32>,
    class_ids: Vec<i32>,
    postprocessor: String,
    link: Link,
    base_scores: Vec<f64>,
}

impl CheckpointHeader {
    fn read(cursor: &mut CheckpointCursor<'_>) -> Result<Self, ForestError> {
        let version = [cursor.int32("major_ver")?, cursor.int32("minor_ver")?, cursor.int32("patch_ver")?];
        if !matches!(version[0], 4 | 5) {
            return Err(unsupported(
                format!("a checkpoint of treelite {}.{}.{}", version[0], version[1], version[2]),
                "checkpoints are those of treelite 4 and 5",
            ));
        }
        let (thresholds, leaves) = (cursor.byte("threshold_type")?, cursor.byte("leaf_output_type")?);
        let is_double = match (thresholds, leaves) {
            (2, 2) => false,
            (3, 3) => true,
            _ => {
                return Err(malformed(
                    "threshold_type",
                    "it must be float32 or float64, as leaf_output_type",
                ));
            }
        };
        let trees = cursor.count("num_tree")?;
        let features = cursor.index("num_feature")?;
        let task_type = cursor.byte("task_type")?;
        let averages = cursor.byte("average_tree_output")? != 0;
        let targets = cursor.index("num_target")?;
        let num_class = cursor.array("num_class", 4)?;
        let classes: Vec<usize> =
            num_class.int32s().map(|count| usize::try_from(count).unwrap_or(0)).collect();
        if classes.len() != targets {
            return Err(malformed(
                "num_class",
                format!("it must have an element for each of {targets} targets"),
            ));
        }
        cursor.array("leaf_vector_shape", 4)?;
        let target_ids: Vec<i32> = cursor.array("target_id", 4)?.int32s().collect();
        let class_ids: Vec<i32> = cursor.array("class_id", 4)?.int32s().collect();
        if target_ids.len() != trees || class_ids.len() != trees {
            return Err(malformed("target_id", format!("it must have an element for each of {trees} trees")));
        }
        let postprocessor = cursor.text("postprocessor")?;
        let (slope, ratio) = (cursor.float32("sigmoid_alpha")?, cursor.float32("ratio_c")?);
        let link = postprocessor::link(&postprocessor, slope, ratio)?;
        let base_scores: Vec<f64> = cursor.array("base_scores", 8)?.float64s().collect();
        let most = classes.iter().copied().max().unwrap_or(0);
        if targets.checked_mul(most) != Some(base_scores.len()) {
            return Err(malformed("base_scores", format!("it must have {targets} times {most} elements")));
        }
        cursor.array("attributes", 1)?;
        cursor.skip_optional_fields()?;
        Ok(Self {
            is_double,
            trees,
            features,
            is_classifier: matches!(task_type, 0 | 2),
            averages,
            targets,
            classes: most,
            has_equal_classes: classes.iter().all(|&count| count == most),
            target_ids,
            class_ids,
            postprocessor,
            link,
            base_scores,
        })
    }

    fn description(&self) -> Result<Description, ForestError> {
        if self.link == Link::Softmax && !self.has_equal_classes {
            return Err(unsupported(
                "softmax over targets with different numbers of classes",
                "the numbers must be equal",
            ));
        }
        Ok(Description {
            features: self.features,
            targets: self.targets,
            classes: self.classes,
            is_classifier: self.is_classifier,
            has_vector_leaves: false,
            objective: self.postprocessor.clone(),
            link: self.link,
        })
    }

    /// What the tree at `index` adds to. Outputs are the classes of one target after the other.
    fn tree_outputs(&self, index: usize) -> Result<OutputRange, ForestError> {
        let id = |name: &str, id: i32, count: usize| match usize::try_from(id) {
            Ok(id) if id < count => Ok(Some(id)),
            Err(_) if id == -1 => Ok(None),
            _ => Err(malformed(name, format!("it must be -1 or less than {count}"))),
        };
        let target = id("target_id", self.target_ids[index], self.targets)?;
        let class = id("class_id", self.class_ids[index], self.classes)?;
        Ok(match (target, class) {
            (None, None) => OutputRange::all(self.targets * self.classes),
            (None, Some(class)) => OutputRange { first: class, stride: self.classes, count: self.targets },
            (Some(target), None) => {
                OutputRange { first: target * self.classes, stride: 1, count: self.classes }
            }
            (Some(target), Some(class)) => OutputRange::one(target * self.classes + class),
        })
    }
}
