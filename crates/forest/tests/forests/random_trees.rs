//! Random trees, written as models of XGBoost and LightGBM, compared with a walk as the libraries define it.
//!
//! Trees grow by splits of random leaves, so that shallow and deep ones occur. Rows have the thresholds themselves,
//! their neighbours, zeros, infinities, NaN and numbers that are no categories.

use std::fmt::Write;

use forest::{Forest, ForestFormat, PredictionScratch, ReadOptions};
use proptest::prelude::*;

/// The numbers that thresholds and rows are made of.
const NUMBERS: [f32; 16] = [
    0.0,
    -0.0,
    1.0,
    1.000_000_1,
    0.999_999_94,
    -1.0,
    1e-35,
    -1e-40,
    2.5,
    3.0,
    40.0,
    -0.5,
    f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

/// A split of a leaf.
#[derive(Debug, Clone)]
struct Growth {
    /// Which of the leaves, as a share of them.
    leaf: f64,
    feature: usize,
    /// An index of [`NUMBERS`] that is not NaN.
    threshold: usize,
    is_categorical: bool,
    default_left: bool,
    /// LightGBM's type of missing values.
    missing: u8,
    categories: u64,
    values: (f32, f32),
}

/// A node of a walked tree.
#[derive(Debug, Clone)]
enum Walked {
    Leaf(f32),
    Split(Growth, usize, usize),
}

fn growth(features: usize) -> impl Strategy<Value = Growth> {
    let test = (0.0..1.0, 0..features, 0..NUMBERS.len() - 1, prop::bool::weighted(0.2));
    let rest = (any::<bool>(), 0u8..3, any::<u64>(), (-1.0f32..1.0, -1.0f32..1.0));
    (test, rest).prop_map(
        |((leaf, feature, threshold, is_categorical), (default_left, missing, categories, values))| Growth {
            leaf,
            feature,
            threshold,
            is_categorical,
            default_left,
            missing,
            categories,
            values,
        },
    )
}

/// Trees of `features`, some of them deep.
fn trees(features: usize) -> impl Strategy<Value = Vec<Vec<Walked>>> {
    let deep = prop::collection::vec(growth(features), 0..40).prop_map(|mut growths| {
        growths.iter_mut().for_each(|growth| growth.leaf = growth.leaf.sqrt().sqrt());
        growths
    });
    let even = prop::collection::vec(growth(features), 0..20);
    let tree = prop_oneof![even, deep].prop_map(grow);
    prop::collection::vec(tree, 1..20)
}

fn grow(growths: Vec<Growth>) -> Vec<Walked> {
    let mut nodes = vec![Walked::Leaf(0.25)];
    for growth in growths {
        let leaves: Vec<usize> =
            (0..nodes.len()).filter(|&node| matches!(nodes[node], Walked::Leaf(_))).collect();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "small"
        )]
        let leaf = leaves[((leaves.len() as f64 * growth.leaf) as usize).min(leaves.len() - 1)];
        let (left, right) = growth.values;
        // Right before left: readers must not rely on an order.
        nodes.extend([Walked::Leaf(right), Walked::Leaf(left)]);
        nodes[leaf] = Walked::Split(growth, nodes.len() - 1, nodes.len() - 2);
    }
    nodes
}

fn walk(nodes: &[Walked], row: &[f32], goes_left: impl Fn(&Growth, f32) -> bool) -> f32 {
    let mut node = 0;
    loop {
        match &nodes[node] {
            Walked::Leaf(value) => return *value,
            Walked::Split(growth, left, right) => {
                node = if goes_left(growth, row[growth.feature]) { *left } else { *right };
            }
        }
    }
}

/// As XGBoost: predict_fn.h, GetNextNode, and categorical.h, Decision.
fn goes_left_in_xgboost(growth: &Growth, value: f32) -> bool {
    if value.is_nan() {
        return growth.default_left;
    }
    if !growth.is_categorical {
        return value < NUMBERS[growth.threshold];
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    let is_in_set = (0.0..64.0).contains(&value) && growth.categories >> value as u32 & 1 != 0;
    !is_in_set
}

/// As LightGBM: tree.h, NumericalDecision and CategoricalDecision.
fn goes_left_in_lightgbm(growth: &Growth, value: f32) -> bool {
    let value = f64::from(value);
    if growth.is_categorical {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
        return value > -1.0 && value < 64.0 && growth.categories >> value as u32 & 1 != 0;
    }
    let value = if value.is_nan() && growth.missing != 2 { 0.0 } else { value };
    let is_zero = value.abs() <= f64::from(1e-35f32);
    if growth.missing == 1 && is_zero || growth.missing == 2 && value.is_nan() {
        return growth.default_left;
    }
    value <= f64::from(NUMBERS[growth.threshold])
}

fn list<T: ToString>(values: impl Iterator<Item = T>, separator: &str) -> String {
    values.map(|value| value.to_string()).collect::<Vec<_>>().join(separator)
}

fn json_number(value: f32) -> String {
    if value.is_infinite() {
        if value > 0.0 { "Infinity".into() } else { "-Infinity".into() }
    } else {
        format!("{value:e}")
    }
}

fn xgboost_tree(nodes: &[Walked], id: usize, features: usize) -> String {
    let field = |name: &str, value: &dyn Fn(&Walked) -> String| {
        format!("\"{name}\":[{}]", list(nodes.iter().map(value), ","))
    };
    let is_set = |node: &Walked| matches!(node, Walked::Split(growth, ..) if growth.is_categorical);
    let mut categories = Vec::new();
    let (mut segments, mut sizes, mut owners) = (Vec::new(), Vec::new(), Vec::new());
    for (index, node) in nodes.iter().enumerate() {
        let Walked::Split(growth, ..) = node else { continue };
        if growth.is_categorical {
            let set: Vec<u32> = (0..64).filter(|bit| growth.categories >> bit & 1 != 0).collect();
            owners.push(index);
            segments.push(categories.len());
            sizes.push(set.len());
            categories.extend(set);
        }
    }
    let split = |node: &Walked, leaf: &str, of: &dyn Fn(&Growth, usize, usize) -> String| match node {
        Walked::Leaf(_) => leaf.to_owned(),
        Walked::Split(growth, left, right) => of(growth, *left, *right),
    };
    let fields = [
        format!("\"id\":{id}"),
        format!("\"tree_param\":{{\"num_nodes\":\"{}\",\"num_feature\":\"{features}\"}}", nodes.len()),
        field("left_children", &|node| split(node, "-1", &|_, left, _| left.to_string())),
        field("right_children", &|node| split(node, "-1", &|_, _, right| right.to_string())),
        field("split_indices", &|node| split(node, "0", &|growth, _, _| growth.feature.to_string())),
        field("default_left", &|node| {
            split(node, "0", &|growth, _, _| u8::from(growth.default_left).to_string())
        }),
        field("split_type", &|node| u8::from(is_set(node)).to_string()),
        field("split_conditions", &|node| match node {
            Walked::Leaf(value) => json_number(*value),
            Walked::Split(growth, ..) => json_number(NUMBERS[growth.threshold]),
        }),
        format!("\"categories\":[{}]", list(categories.iter(), ",")),
        format!("\"categories_nodes\":[{}]", list(owners.iter(), ",")),
        format!("\"categories_segments\":[{}]", list(segments.iter(), ",")),
        format!("\"categories_sizes\":[{}]", list(sizes.iter(), ",")),
    ];
    format!("{{{}}}", fields.join(","))
}

fn xgboost_model(trees: &[Vec<Walked>], features: usize) -> String {
    let documents = list(trees.iter().enumerate().map(|(id, nodes)| xgboost_tree(nodes, id, features)), ",");
    let groups = list(trees.iter().map(|_| 0), ",");
    format!(
        "{{\"learner\":{{\"learner_model_param\":{{\"base_score\":\"5E-1\",\"num_feature\":\"{features}\"}},\
         \"objective\":{{\"name\":\"reg:squarederror\"}},\"gradient_booster\":{{\"name\":\"gbtree\",\"model\":{{\
         \"trees\":[{documents}],\"tree_info\":[{groups}]}}}}}},\"version\":[3,2,0]}}"
    )
}

fn lightgbm_model(trees: &[Vec<Walked>], features: usize) -> String {
    let mut text =
        format!("tree\nversion=v4\nnum_class=1\nmax_feature_idx={}\nobjective=regression\n\n", features - 1);
    for (index, nodes) in trees.iter().enumerate() {
        let is_split = |node: &usize| matches!(nodes[*node], Walked::Split(..));
        let (splits, leaves): (Vec<usize>, Vec<usize>) = (0..nodes.len()).partition(is_split);
        let number = |node: usize| match splits.binary_search(&node) {
            Ok(split) => i64::try_from(split).expect("small"),
            Err(_) => !i64::try_from(leaves.binary_search(&node).expect("a leaf")).expect("small"),
        };
        let mut sets: Vec<u64> = Vec::new();
        let mut thresholds = Vec::new();
        let (mut types, mut of_features, mut left, mut right) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for &split in &splits {
            let Walked::Split(growth, on_left, on_right) = &nodes[split] else {
                unreachable!("it is a split")
            };
            types.push(
                u8::from(growth.is_categorical) | u8::from(growth.default_left) << 1 | growth.missing << 2,
            );
            of_features.push(growth.feature);
            left.push(number(*on_left));
            right.push(number(*on_right));
            if growth.is_categorical {
                thresholds.push(sets.len().to_string());
                sets.push(growth.categories);
            } else {
                thresholds.push(format!("{:e}", f64::from(NUMBERS[growth.threshold])));
            }
        }
        let values = leaves.iter().map(|&leaf| match nodes[leaf] {
            Walked::Leaf(value) => f64::from(value),
            Walked::Split(..) => unreachable!("it is a leaf"),
        });
        writeln!(text, "Tree={index}\nnum_leaves={}\nnum_cat={}", leaves.len(), sets.len()).expect("a text");
        writeln!(text, "split_feature={}", list(of_features.iter(), " ")).expect("a text");
        writeln!(text, "threshold={}\ndecision_type={}", thresholds.join(" "), list(types.iter(), " "))
            .expect("a text");
        writeln!(text, "left_child={}\nright_child={}", list(left.iter(), " "), list(right.iter(), " "))
            .expect("a text");
        writeln!(text, "leaf_value={}", list(values, " ")).expect("a text");
        if !sets.is_empty() {
            writeln!(text, "cat_boundaries={}", list((0..=sets.len()).map(|set| set * 2), " "))
                .expect("a text");
            let words = sets.iter().flat_map(|set| [set & 0xffff_ffff, set >> 32]);
            writeln!(text, "cat_threshold={}", list(words, " ")).expect("a text");
        }
        writeln!(text, "is_linear=0\nshrinkage=1\n").expect("a text");
    }
    text.push_str("end of trees\n");
    text
}

fn rows(features: usize) -> impl Strategy<Value = Vec<Vec<f32>>> {
    let value = (0..NUMBERS.len()).prop_map(|index| NUMBERS[index]);
    let present = (0..NUMBERS.len() - 1).prop_map(|index| NUMBERS[index]);
    let row = prop_oneof![
        prop::collection::vec(value, features..=features),
        prop::collection::vec(present, features..=features)
    ];
    prop::collection::vec(row, 1..20)
}

fn margins(format: ForestFormat, model: &str, rows: &[Vec<f32>]) -> Vec<f32> {
    let forest = Forest::read(format, model.as_bytes(), ReadOptions::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let mut margins = vec![0.0; rows.len()];
    forest
        .predict_margins(&rows.concat(), &mut margins, &mut PredictionScratch::default())
        .expect("the lengths fit");
    margins
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The sums of `base` and the leaves that rows come to in XGBoost.
fn walk_in_xgboost(trees: &[Vec<Walked>], rows: &[Vec<f32>]) -> Vec<f32> {
    let sum =
        |row: &Vec<f32>| trees.iter().fold(0.5, |sum, nodes| sum + walk(nodes, row, goes_left_in_xgboost));
    rows.iter().map(sum).collect()
}

proptest! {
    #[test]
    fn trees_of_xgboost_lead_rows_to_the_leaves_of_a_plain_walk(trees in trees(5), rows in rows(5)) {
        let actual = margins(ForestFormat::XgboostJson, &xgboost_model(&trees, 5), &rows);
        prop_assert_eq!(bits(&actual), bits(&walk_in_xgboost(&trees, &rows)));
    }

    #[test]
    fn trees_of_lightgbm_lead_rows_to_the_leaves_of_a_plain_walk(trees in trees(4), rows in rows(4)) {
        #[expect(clippy::cast_possible_truncation, reason = "the crate gives 32 bits")]
        let sum = |row: &Vec<f32>| {
            trees.iter().fold(0.0, |sum, nodes| sum + f64::from(walk(nodes, row, goes_left_in_lightgbm))) as f32
        };
        let expected: Vec<f32> = rows.iter().map(sum).collect();
        let actual = margins(ForestFormat::Lightgbm, &lightgbm_model(&trees, 4), &rows);
        prop_assert_eq!(bits(&actual), bits(&expected));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// A feature beyond 2^15 does not fit the narrow form of nodes.
    #[test]
    fn trees_over_many_features_are_the_same(mut trees in trees(5), rows in rows(5), is_numeric in any::<bool>()) {
        const FEATURES: usize = 40_000;
        for node in trees.iter_mut().flatten() {
            if let Walked::Split(growth, ..) = node {
                growth.is_categorical &= !is_numeric;
                growth.feature += FEATURES - 5;
            }
        }
        let wide = |row: &Vec<f32>| [vec![0.0; FEATURES - 5], row.clone()].concat();
        let rows: Vec<Vec<f32>> = rows.iter().map(wide).collect();
        let actual = margins(ForestFormat::XgboostJson, &xgboost_model(&trees, FEATURES), &rows);
        prop_assert_eq!(bits(&actual), bits(&walk_in_xgboost(&trees, &rows)));
    }
}
