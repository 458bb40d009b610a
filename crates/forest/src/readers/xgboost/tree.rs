//! Trees of XGBoost.

use crate::fault::{ForestError, malformed};
use crate::format::ReadOptions;
use crate::readers::document::{Object, Value};
use crate::readers::xgboost::learner::whole;
use crate::tree::{CategoryBudget, NodeKind, OutputRange, Split, SplitTest, Tree, TreeNode, less_than};

/// The fields that trees of any release have.
const FIELDS: [&str; 18] = [
    "id",
    "tree_param",
    "loss_changes",
    "sum_hessian",
    "base_weights",
    "leaf_weights",
    "leaf_child_counts",
    "left_children",
    "right_children",
    "parents",
    "split_indices",
    "split_type",
    "split_conditions",
    "default_left",
    "categories",
    "categories_nodes",
    "categories_segments",
    "categories_sizes",
];

/// Reads one tree after the other.
pub(super) struct XgboostTreeReader {
    outputs: usize,
    options: ReadOptions,
    budget: CategoryBudget,
}

/// The arrays of a tree. Each has an element for each node.
struct XgboostNodes {
    left: Vec<i64>,
    right: Vec<i64>,
    features: Vec<i64>,
    conditions: Vec<f32>,
    default_left: Vec<i64>,
    /// Empty if all tests are of numbers.
    is_categorical: Vec<i64>,
    covers: Option<Vec<f32>>,
}

/// The categories of a tree's categorical tests.
#[derive(Default)]
struct CategoryArrays {
    categories: Vec<i64>,
    /// The nodes that have such a test, in ascending order.
    nodes: Vec<i64>,
    segments: Vec<i64>,
    sizes: Vec<i64>,
}

impl XgboostTreeReader {
    /// A reader of trees of a forest with so many `outputs`, in a file of `length` bytes.
    pub(super) fn new(outputs: usize, length: usize, options: ReadOptions) -> Self {
        Self { outputs, options, budget: CategoryBudget::new(length) }
    }

    /// Reads a tree that adds to the output `group`, or to all if its leaves are vectors.
    pub(super) fn read(&mut self, tree: &Value<'_>, group: Option<i64>) -> Result<Tree, ForestError> {
        let object = tree.object("tree")?;
        object.check_names("tree", self.options, |name| FIELDS.contains(&name))?;
        let arrays = XgboostNodes::read(object, self.options.keep_covers)?;
        let categories = if arrays.is_categorical.contains(&1) {
            CategoryArrays::read(object)?
        } else {
            CategoryArrays::default()
        };
        let vectors = LeafVectors::read(object, &arrays)?;
        let mut tree = Tree { outputs: OutputRange::all(self.outputs), ..Tree::default() };
        if vectors.is_none() {
            let group = group.and_then(|group| usize::try_from(group).ok());
            tree.outputs =
                OutputRange::one(group.ok_or_else(|| malformed("tree_info", "it must not be negative"))?);
        }
        for node in 0..arrays.left.len() {
            let kind = if arrays.left[node] == -1 {
                match &vectors {
                    None => NodeKind::Leaf(f64::from(arrays.conditions[node])),
                    Some(vectors) => NodeKind::LeafVector(vectors.first(node, &arrays)?),
                }
            } else {
                NodeKind::Split(self.split(node, &arrays, &categories, &mut tree.category_words)?)
            };
            let cover = arrays.covers.as_ref().map_or(0.0, |covers| f64::from(covers[node]));
            tree.nodes.push(TreeNode { kind, cover });
        }
        if let Some(vectors) = vectors {
            tree.leaf_vectors = vectors.values.into_iter().map(f64::from).collect();
        }
        Ok(tree)
    }

    fn split(
        &mut self,
        node: usize,
        arrays: &XgboostNodes,
        categories: &CategoryArrays,
        words: &mut Vec<u32>,
    ) -> Result<Split, ForestError> {
        let index = |name: &str, value: i64| {
            u32::try_from(value).map_err(|_| malformed(format!("{name}[{node}]"), "it must be an index"))
        };
        let left = index("left_children", arrays.left[node])?;
        let right = index("right_children", arrays.right[node])?;
        let is_default_left = arrays.default_left[node] != 0;
        let split = |test, on_true, on_false, missing_is_true| {
            let feature = index("split_indices", arrays.features[node])?;
            Ok(Split { feature, test, missing_is_true, zero_is_missing: false, on_true, on_false })
        };
        if arrays.is_categorical.get(node) == Some(&1) {
            let set = self.budget.push_set(words, categories.of(node)?)?;
            // Categories of the set go right.
            return split(SplitTest::InSet(set), right, left, !is_default_left);
        }
        match less_than(f64::from(arrays.conditions[node])) {
            Some(test) => split(test, left, right, is_default_left),
            // No value is less than -inf, so every value goes right.
            None => split(SplitTest::AtMost(f32::INFINITY), right, left, !is_default_left),
        }
    }
}

impl XgboostNodes {
    fn read(object: &Object<'_>, keep_covers: bool) -> Result<Self, ForestError> {
        let integers = |name: &str| object.required(name)?.integers(name);
        let left = integers("left_children")?;
        let is_categorical =
            object.get("split_type").map_or(Ok(Vec::new()), |types| types.integers("split_type"))?;
        let covers = object.get("sum_hessian").filter(|_| keep_covers);
        let covers = covers.map(|covers| covers.reals("sum_hessian")).transpose()?;
        let arrays = Self {
            right: integers("right_children")?,
            features: integers("split_indices")?,
            conditions: object.required("split_conditions")?.reals("split_conditions")?,
            default_left: integers("default_left")?,
            is_categorical,
            covers,
            left,
        };
        let lengths = [
            ("right_children", arrays.right.len()),
            ("split_indices", arrays.features.len()),
            ("split_conditions", arrays.conditions.len()),
            ("default_left", arrays.default_left.len()),
            ("split_type", arrays.is_categorical.len()),
            ("sum_hessian", arrays.covers.as_ref().map_or(0, Vec::len)),
        ];
        let nodes = arrays.left.len();
        for (name, length) in lengths {
            let may_be_empty = name == "split_type" || name == "sum_hessian";
            if length != nodes && !(may_be_empty && length == 0) {
                return Err(malformed(name, format!("it must have an element for each of {nodes} nodes")));
            }
        }
        Ok(Self { covers: arrays.covers.filter(|covers| covers.len() == nodes), ..arrays })
    }
}

impl CategoryArrays {
    fn read(object: &Object<'_>) -> Result<Self, ForestError> {
        let integers = |name: &str| object.required(name)?.integers(name);
        let arrays = Self {
            categories: integers("categories")?,
            nodes: integers("categories_nodes")?,
            segments: integers("categories_segments")?,
            sizes: integers("categories_sizes")?,
        };
        let count = arrays.nodes.len();
        if arrays.segments.len() != count || arrays.sizes.len() != count {
            return Err(malformed(
                "categories_nodes",
                "it must be as long as categories_segments and categories_sizes",
            ));
        }
        if !arrays.nodes.is_sorted() {
            return Err(malformed("categories_nodes", "it must ascend"));
        }
        Ok(arrays)
    }

    /// The categories of the test of `node`.
    fn of(&self, node: usize) -> Result<impl Iterator<Item = u32> + Clone, ForestError> {
        let index = self.nodes.binary_search_by(|probe| probe.cmp(&i64::try_from(node).unwrap_or(i64::MAX)));
        let index = index.map_err(|_| {
            malformed("categories_nodes", format!("it must have the categorical node {node}"))
        })?;
        let segment = usize::try_from(self.segments[index]).ok().zip(usize::try_from(self.sizes[index]).ok());
        let range = segment.and_then(|(first, count)| Some(first..first.checked_add(count)?));
        let categories = range.and_then(|range| self.categories.get(range));
        let rule =
            || malformed(format!("categories of node {node}"), "they must be elements of `categories`");
        let categories = categories.ok_or_else(rule)?;
        if categories.iter().any(|&category| u32::try_from(category).is_err()) {
            return Err(malformed(format!("categories of node {node}"), "they must not be negative"));
        }
        Ok(categories.iter().filter_map(|&category| u32::try_from(category).ok()))
    }
}

/// The leaves of `multi_output_tree`.
struct LeafVectors {
    values: Vec<f32>,
    size: usize,
    /// Whether only leaves have values. Then `right_children` of a leaf is the number of the leaf. Otherwise each node
    /// has.
    of_leaves: bool,
}

impl LeafVectors {
    /// None if leaves have one value each.
    fn read(object: &Object<'_>, arrays: &XgboostNodes) -> Result<Option<Self>, ForestError> {
        let parameters = object.required("tree_param")?.object("tree_param")?;
        let size =
            parameters.get("size_leaf_vector").map_or(Ok(1), |size| whole(size, "size_leaf_vector"))?;
        if size <= 1 {
            return Ok(None);
        }
        let (name, of_leaves) = match object.get("leaf_weights") {
            Some(_) => ("leaf_weights", true),
            None => ("base_weights", false),
        };
        let values = object.required(name)?.reals(name)?;
        if !of_leaves && values.len() != arrays.left.len().saturating_mul(size) {
            return Err(malformed(name, format!("it must have {size} elements for each node")));
        }
        Ok(Some(Self { values, size, of_leaves }))
    }

    /// The index of the first value of a leaf.
    fn first(&self, node: usize, arrays: &XgboostNodes) -> Result<usize, ForestError> {
        let vector = if self.of_leaves { usize::try_from(arrays.right[node]).ok() } else { Some(node) };
        let first = vector.and_then(|vector| vector.checked_mul(self.size));
        first.ok_or_else(|| malformed(format!("right_children[{node}]"), "it must be the number of the leaf"))
    }
}
