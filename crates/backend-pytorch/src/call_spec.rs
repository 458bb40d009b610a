//! The names of the inputs and outputs of an exported program, from the specification of its call.
//!
//! The specification is the tree of arguments, or of results, in JSON: tuples, lists and dictionaries, whose leaves are
//! tensors. A leaf is named by its way from the root: `ARGS[0]`, `KWARGS[mask]`, `RESULT[parts][1]`.
use serde_json::Value;

/// The most leaves of a call.
const MOST_LEAVES: usize = 10_000;

/// The most bytes of a path. Each leaf below a long key has the key.
const MOST_PATH_BYTES: usize = 1024;

/// The inputs of a call in their order.
///
/// # Errors
/// The specification is none, or has a container that is neither tuple, list nor dictionary.
pub(crate) fn input_paths(spec: &str) -> Result<Vec<String>, String> {
    let tree = tree(spec)?;
    let roots = children(&tree)?;
    let mut paths = Vec::new();
    for (root, name) in roots.iter().zip(["ARGS", "KWARGS"]) {
        push_leaves(root, name, &mut paths)?;
    }
    Ok(paths)
}

/// The outputs of a call in their order.
///
/// # Errors
/// As [`input_paths`].
pub(crate) fn output_paths(spec: &str) -> Result<Vec<String>, String> {
    let mut paths = Vec::new();
    push_leaves(&tree(spec)?, "RESULT", &mut paths)?;
    Ok(paths)
}

/// The tree, which stands after the version of its form.
fn tree(spec: &str) -> Result<Value, String> {
    let parsed: Value = serde_json::from_str(spec).map_err(|error| format!("it is no JSON: {error}"))?;
    match parsed {
        Value::Array(parts) if parts.len() == 2 => Ok(parts.into_iter().next_back().unwrap_or_default()),
        _ => Err("it is no pair of a version and a tree".to_owned()),
    }
}

fn children(node: &Value) -> Result<&[Value], String> {
    let children = node.get("children_spec").and_then(Value::as_array);
    children.map(Vec::as_slice).ok_or_else(|| "a node has no children_spec".to_owned())
}

/// Adds the leaves below a node. The parser of JSON has limited the depth of the tree.
fn push_leaves(node: &Value, path: &str, paths: &mut Vec<String>) -> Result<(), String> {
    if path.len() > MOST_PATH_BYTES {
        return Err(format!("it has a path of {} bytes, more than {MOST_PATH_BYTES}", path.len()));
    }
    let children = children(node)?;
    let kind = match node.get("type") {
        Some(Value::Null) => {
            if paths.len() == MOST_LEAVES {
                return Err(format!("it has more than {MOST_LEAVES} tensors"));
            }
            paths.push(path.to_owned());
            return Ok(());
        }
        Some(Value::String(kind)) => kind.as_str(),
        _ => return Err(format!("'{path}' has no type")),
    };
    match kind {
        "builtins.dict" => {
            let keys = keys(node).filter(|keys| keys.len() == children.len());
            let keys = keys.ok_or_else(|| format!("'{path}' has other keys than values"))?;
            for (key, child) in keys.iter().zip(children) {
                push_leaves(child, &format!("{path}[{key}]"), paths)?;
            }
        }
        "builtins.tuple" | "builtins.list" => {
            for (index, child) in children.iter().enumerate() {
                push_leaves(child, &format!("{path}[{index}]"), paths)?;
            }
        }
        // A container that is empty has no tensors, whatever it is.
        _ if children.is_empty() => {}
        _ => return Err(format!("'{path}' is a {kind}, which is neither dict, tuple nor list")),
    }
    Ok(())
}

/// The keys of a dictionary, which are a list in JSON inside of a text.
fn keys(node: &Value) -> Option<Vec<String>> {
    let keys: Vec<Value> = serde_json::from_str(node.get("context")?.as_str()?).ok()?;
    let text = |key: Value| match key {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    keys.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAF: &str = r#"{"type": null, "context": null, "children_spec": []}"#;

    fn node(kind: &str, context: &str, children: &[&str]) -> String {
        let children = children.join(", ");
        format!(r#"{{"type": "{kind}", "context": "{context}", "children_spec": [{children}]}}"#)
    }

    fn spec(tree: &str) -> String {
        format!("[1, {tree}]")
    }

    #[test]
    fn inputs_are_named_by_their_place_or_name() {
        let pair = node("builtins.list", "null", &[LEAF, LEAF]);
        let arguments = node("builtins.tuple", "null", &[LEAF, &pair]);
        let named = node("builtins.dict", r#"[\"mask\", 3]"#, &[LEAF, LEAF]);
        let call = node("builtins.tuple", "null", &[&arguments, &named]);
        let paths = input_paths(&spec(&call)).unwrap();
        assert_eq!(paths, ["ARGS[0]", "ARGS[1][0]", "ARGS[1][1]", "KWARGS[mask]", "KWARGS[3]"]);
    }

    #[test]
    fn outputs_are_named_from_the_result_on() {
        assert_eq!(output_paths(&spec(LEAF)).unwrap(), ["RESULT"]);
        let parts = node("builtins.tuple", "null", &[LEAF]);
        let both = node("builtins.dict", r#"[\"parts\", \"sum\"]"#, &[&parts, LEAF]);
        assert_eq!(output_paths(&spec(&both)).unwrap(), ["RESULT[parts][0]", "RESULT[sum]"]);
        let empty = node("some.Cache", "null", &[]);
        let with_empty = node("builtins.tuple", "null", &[&empty, LEAF]);
        assert_eq!(output_paths(&spec(&with_empty)).unwrap(), ["RESULT[1]"]);
    }

    #[test]
    fn what_is_no_specification_is_refused_with_the_rule() {
        for (text, reason) in [
            ("".to_owned(), "it is no JSON: "),
            ("[1]".to_owned(), "it is no pair of a version and a tree"),
            (spec("{}"), "a node has no children_spec"),
            (spec(r#"{"children_spec": []}"#), "'RESULT' has no type"),
            (spec(&node("some.Box", "null", &[LEAF])), "'RESULT' is a some.Box, which is neither dict"),
            (spec(&node("builtins.dict", r#"[\"a\"]"#, &[])), "'RESULT' has other keys than values"),
            (spec(&node("builtins.dict", "[true]", &[LEAF])), "'RESULT' has other keys than values"),
            (format!("[1, {}", "[".repeat(10_000)), "it is no JSON: recursion limit"),
        ] {
            let error = output_paths(&text).unwrap_err();
            assert!(error.starts_with(reason), "{text}: {error}");
        }
        let key = node("builtins.dict", &format!(r#"[\"{}\"]"#, "k".repeat(MOST_PATH_BYTES)), &[LEAF]);
        let error = output_paths(&spec(&key)).unwrap_err();
        assert_eq!(error, "it has a path of 1032 bytes, more than 1024");
        let many = vec![LEAF; MOST_LEAVES + 1];
        let error = output_paths(&spec(&node("builtins.tuple", "null", &many))).unwrap_err();
        assert_eq!(error, "it has more than 10000 tensors");
    }
}
