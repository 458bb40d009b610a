//! Files that are refused, and with which words.

use forest::{Forest, ForestError, ForestFormat, PredictionScratch, ReadOptions};

use crate::golden;

fn error(format: ForestFormat, file: &[u8]) -> ForestError {
    match Forest::read(format, file, ReadOptions::default()) {
        Ok(_) => panic!("the file must be refused"),
        Err(error) => error,
    }
}

/// A file of the goldens as text, with the first `from` replaced by `to`.
fn replaced(name: &str, from: &str, to: &str) -> Vec<u8> {
    let text = std::fs::read_to_string(golden::folder().join(name)).expect("a golden");
    assert!(text.contains(from), "{name} has {from}");
    text.replacen(from, to, 1).into_bytes()
}

fn margins(forest: &Forest) -> Vec<u32> {
    let row = vec![0.3; forest.features()];
    let mut margins = vec![0.0; forest.outputs()];
    forest.predict_margins(&row, &mut margins, &mut PredictionScratch::default()).expect("the lengths fit");
    margins.iter().map(|margin| margin.to_bits()).collect()
}

#[test]
fn a_truncated_file_is_refused_or_the_same_model() {
    for name in [
        "xgboost_hinge",
        "xgboost_rank",
        "lightgbm_categories",
        "sklearn_extra_trees",
        "xgboost_category_sets",
    ] {
        let golden = golden::named(name);
        let file = golden.file();
        let whole = margins(&golden.forest(ReadOptions::default()));
        for length in 0..file.len() {
            if let Ok(forest) = Forest::read(golden.format, &file[..length], ReadOptions::default()) {
                assert_eq!(margins(&forest), whole, "{name} of {length} bytes");
            }
        }
    }
}

#[test]
fn a_file_with_a_changed_byte_does_not_panic() {
    for name in [
        "xgboost_hinge",
        "xgboost_rank",
        "lightgbm_categories",
        "sklearn_extra_trees",
        "xgboost_vector_leaves",
    ] {
        let golden = golden::named(name);
        let mut file = golden.file();
        for place in (0..file.len()).step_by(5) {
            let byte = file[place];
            for other in [0x7f, b'9', byte ^ 1] {
                file[place] = other;
                let options = ReadOptions { allow_unknown_fields: true, keep_covers: true };
                if let Ok(forest) = Forest::read(golden.format, &file, options)
                    && forest.features() < 100
                {
                    margins(&forest);
                    let mut contributions = vec![0.0; (forest.features() + 1) * forest.outputs()];
                    let row = vec![f32::NAN; forest.features()];
                    // Covers may have become zero.
                    let _ = forest.shap(&row, &mut contributions);
                }
            }
            file[place] = byte;
        }
    }
}

#[test]
fn the_old_binary_format_is_refused_with_the_command_that_converts_it() {
    for format in [ForestFormat::XgboostBinary, ForestFormat::XgboostJson, ForestFormat::XgboostUbjson] {
        let text = error(format, b"binf\0\0\0\x3f").to_string();
        assert!(
            text.ends_with("`booster.load_model('xgboost.model')`, then `booster.save_model('xgboost.ubj')`"),
            "{text}"
        );
    }
}

#[test]
fn what_is_not_evaluated_is_refused_by_name() {
    let linear = std::fs::read(golden::folder().join("xgboost_linear.json")).expect("a golden");
    let text = |format, file: &[u8]| error(format, file).to_string();
    assert_eq!(
        text(ForestFormat::XgboostJson, &linear),
        "booster `gblinear`: boosters are `gbtree` and `dart`"
    );
    let linear = std::fs::read(golden::folder().join("lightgbm_linear.txt")).expect("a golden");
    assert_eq!(
        text(ForestFormat::Lightgbm, &linear),
        "linear trees (`linear_tree=true`): leaves must be constants"
    );
    let file = replaced("xgboost_rank.json", "rank:ndcg", "rank:new");
    assert!(
        text(ForestFormat::XgboostJson, &file).starts_with("objective `rank:new`: its link is not known")
    );
    let file = replaced("lightgbm_l1.txt", "objective=regression_l1", "objective=absolute");
    assert_eq!(text(ForestFormat::Lightgbm, &file), "objective `absolute`: its link is not known");
    let file = replaced("lightgbm_l1.txt", "version=v4", "version=v2");
    assert!(
        text(ForestFormat::Lightgbm, &file)
            .starts_with("LightGBM's text of version `v2`: versions are v3 and v4")
    );
    let mut file = golden::named("sklearn_extra_trees").file();
    file[0] = 3;
    let rule = "checkpoints are those of treelite 4 and 5";
    assert!(text(ForestFormat::TreeliteCheckpoint, &file).ends_with(rule));
}

#[test]
fn an_unknown_field_is_refused_unless_it_is_allowed() {
    let file = replaced("xgboost_rank.json", "\"tree_info\"", "\"tree_weights\":[1],\"tree_info\"");
    assert_eq!(
        error(ForestFormat::XgboostJson, &file).to_string(),
        "model.tree_weights: the field is not known; `xgboost_allow_unknown_field` would ignore it"
    );
    let options = ReadOptions { allow_unknown_fields: true, ..ReadOptions::default() };
    Forest::read(ForestFormat::XgboostJson, &file, options).expect("the field is ignored");
}

/// A model of XGBoost with one tree of two arrays of children.
fn xgboost(left: &str, right: &str, features: &str, conditions: &str, parameters: &str) -> String {
    let nodes = left.split(',').count();
    let flags = vec!["0"; nodes].join(",");
    format!(
        "{{\"learner\":{{\"learner_model_param\":{{{parameters}}},\"objective\":{{\"name\":\"reg:squarederror\"}},\
         \"gradient_booster\":{{\"name\":\"gbtree\",\"model\":{{\"tree_info\":[0],\"trees\":[{{\"tree_param\":{{}},\
         \"left_children\":[{left}],\"right_children\":[{right}],\"split_indices\":[{features}],\
         \"split_conditions\":[{conditions}],\"default_left\":[{flags}]}}]}}}}}}}}"
    )
}

#[test]
fn trees_that_are_none_are_refused() {
    let two = "\"base_score\":\"0\",\"num_feature\":\"2\"";
    let text = |model: String| error(ForestFormat::XgboostJson, model.as_bytes()).to_string();
    let tree = |left: &str, right: &str, features: &str| text(xgboost(left, right, features, "0,1,2", two));
    assert_eq!(tree("1,0,-1", "2,2,-1", "0,0,0"), "tree 0, node 0: it must be the child of one node");
    assert_eq!(tree("1,-1,-1", "1,-1,-1", "0,0,0"), "tree 0, node 1: it must be the child of one node");
    assert_eq!(tree("1,-1,-1", "3,-1,-1", "0,0,0"), "tree 0, node 0: its child 3 must be a node");
    assert_eq!(tree("1,-1,-1", "2,-1,-1", "2,0,0"), "tree 0, node 0: its feature 2 must be less than 2");
    assert_eq!(tree("1,-1,-1", "-1,-1,-1", "0,0,0"), "tree 0, right_children[0]: it must be an index");
    assert_eq!(
        tree("1,-1,-1", "2,-1", "0,0,0"),
        "tree 0, right_children: it must have an element for each of 3 nodes"
    );
    assert_eq!(
        tree("1,-1,x", "2,-1,-1", "0,0,0"),
        "tree 0, left_children: it must be an array of whole numbers"
    );
    let nan = xgboost("1,-1,-1", "2,-1,-1", "0,0,0", "NaN,1,2", two);
    assert_eq!(text(nan), "tree 0, node 0: its threshold must be a number");
    let huge = xgboost("-1", "-1", "0", "1", "\"base_score\":\"0\",\"num_feature\":\"4000000000\"");
    assert_eq!(text(huge), "number of features: it must be from 1 to 16777216, it is 4000000000");
    let classes = xgboost(
        "-1",
        "-1",
        "0",
        "1",
        "\"base_score\":\"0\",\"num_feature\":\"2\",\"num_class\":\"99999999\"",
    );
    assert_eq!(text(classes), "number of outputs: it must be from 1 to 65536, it is 1 times 99999999");
    let base = xgboost("-1", "-1", "0", "1", "\"base_score\":\"[1,2]\",\"num_feature\":\"2\"");
    assert_eq!(text(base), "base_score: it must have 1 or 1 numbers");
}

#[test]
fn leaves_may_not_share_their_vectors() {
    let parameters = "\"base_score\":\"0\",\"num_feature\":\"2\",\"num_target\":\"2\"";
    let vectors = |right: &str, weights: &str| {
        let model = xgboost("1,-1,-1", right, "0,0,0", "0,0,0", parameters);
        let tree = format!("\"leaf_weights\":[{weights}],\"tree_param\":{{\"size_leaf_vector\":\"2\"}}");
        Forest::read(
            ForestFormat::XgboostJson,
            model.replace("\"tree_param\":{}", &tree).as_bytes(),
            ReadOptions::default(),
        )
    };
    vectors("2,1,0", "1,2,3,4").expect("each leaf has two values");
    let error = vectors("2,0,0", "1,2").expect_err("both leaves have the same values");
    assert_eq!(error.to_string(), "tree 0, node 2: it must have values of its own");
    let error = vectors("2,1,2", "1,2,3,4").expect_err("there are two vectors");
    assert_eq!(error.to_string(), "tree 0, node 2: it must have 2 values");
}

#[test]
fn a_chain_of_tests_is_deep_but_not_too_deep() {
    let chain = |depth: usize| {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for node in 0..depth {
            left.push((2 * node + 1).to_string());
            right.push((2 * node + 2).to_string());
            if node + 1 < depth {
                left.push("-1".into());
                right.push("-1".into());
            }
        }
        // Node 2k is a test, and node 2k + 1 a leaf. The last test has two leaves.
        left.extend(["-1".into(), "-1".into()]);
        right.extend(["-1".into(), "-1".into()]);
        let zeros = vec!["0"; left.len()].join(",");
        xgboost(
            &left.join(","),
            &right.join(","),
            &zeros,
            &zeros,
            "\"base_score\":\"0\",\"num_feature\":\"1\"",
        )
    };
    let read = |model: &str, keep_covers| {
        let options = ReadOptions { keep_covers, ..ReadOptions::default() };
        Forest::read(ForestFormat::XgboostJson, model.as_bytes(), options)
    };
    read(&chain(4096), false).expect("it is as deep as trees may be");
    let error = read(&chain(4097), false).expect_err("it is too deep");
    assert_eq!(error.to_string(), "tree 0, node 8192: its depth must be at most 4096");
    let error = read(&chain(513), true).expect_err("it is too deep for Shapley values");
    assert_eq!(error.to_string(), "tree 0 has a depth of 513: Shapley values need a depth of at most 512");
}

#[test]
fn categories_may_not_take_more_memory_than_the_file_justifies() {
    let golden = golden::named("xgboost_categories");
    let file = replaced("xgboost_categories.json", "\"categories\":[", "\"categories\":[16777215,");
    // The first set now ends at the largest category, and takes 2 MiB: that is allowed.
    Forest::read(golden.format, &file, ReadOptions::default()).expect("one set may be large");
    let nodes = 40;
    let sets: Vec<String> = (0..nodes).map(|node| node.to_string()).collect();
    let left: Vec<String> =
        (0..nodes).map(|node| (2 * node + 1).to_string()).chain(vec!["-1".into(); nodes + 1]).collect();
    let right: Vec<String> =
        (0..nodes).map(|node| (2 * node + 2).to_string()).chain(vec!["-1".into(); nodes + 1]).collect();
    let zeros = vec!["0"; left.len()].join(",");
    let model = xgboost(
        &left.join(","),
        &right.join(","),
        &zeros,
        &zeros,
        "\"base_score\":\"0\",\"num_feature\":\"1\"",
    );
    let types: Vec<&str> = (0..left.len()).map(|node| if node < nodes { "1" } else { "0" }).collect();
    let categories = format!(
        "\"split_type\":[{}],\"categories\":[0,16777215],\"categories_nodes\":[{}],\"categories_segments\":[{}],\
         \"categories_sizes\":[{}],\"tree_param\"",
        types.join(","),
        sets.join(","),
        vec!["0"; nodes].join(","),
        vec!["2"; nodes].join(",")
    );
    let model = model.replace("\"tree_param\"", &categories);
    assert_eq!(
        error(ForestFormat::XgboostJson, model.as_bytes()).to_string(),
        "tree 0, categories: the sets must fit 16777216 bytes and eight times the file"
    );
}

#[test]
fn texts_of_lightgbm_are_refused_with_the_field() {
    let text = |from: &str, to: &str| {
        error(ForestFormat::Lightgbm, &replaced("lightgbm_categories.txt", from, to)).to_string()
    };
    assert_eq!(text("tree\n", "trees\n"), "first line: it must be `tree`");
    assert_eq!(text("end of trees", ""), "tree 5, last line: the file must have the line `end of trees`");
    assert_eq!(text("num_leaves=6", "num_leaves=0"), "tree 0, num_leaves: it must be at least 1");
    assert_eq!(text("num_leaves=6", "num_leaves=7"), "tree 0, leaf_value: it must be 7 numbers");
    assert_eq!(text("num_class=1", "num_class=-1"), "num_class: it must be a whole number");
    assert_eq!(
        text("num_class=1", "num_class=2"),
        "num_tree_per_iteration: it must be num_class, which is 2"
    );
    let huge = error(
        ForestFormat::Lightgbm,
        &replaced("lightgbm_l1.txt", "max_feature_idx=3", "max_feature_idx=99999999"),
    );
    assert_eq!(huge.to_string(), "number of features: it must be from 1 to 16777216, it is 100000000");
}

#[test]
fn checkpoints_are_refused_with_the_field() {
    let file = golden::named("sklearn_extra_trees").file();
    let mut longer = file.clone();
    longer.push(0);
    let text = error(ForestFormat::TreeliteCheckpoint, &longer).to_string();
    assert_eq!(text, "end of the file: nothing must follow the trees, but 1 bytes do");
    let mut many = file;
    // The number of trees stands after three versions and two types.
    many[14..22].copy_from_slice(&u64::MAX.to_le_bytes());
    let text = error(ForestFormat::TreeliteCheckpoint, &many).to_string();
    assert_eq!(text, format!("target_id: it must have an element for each of {} trees", u64::MAX));
}
