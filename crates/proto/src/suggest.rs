//! Finds the known name that a misspelt name most probably means.

use prost_reflect::{EnumDescriptor, Kind, MessageDescriptor};

use crate::descriptors;

/// The message about a field name that `message` does not have, and the name that was probably meant.
pub(crate) fn unknown_field(name: &str, message: &MessageDescriptor) -> (String, Option<String>) {
    let near = meant_field(name, message);
    (format!("'{name}' is not a field of {}{}", message.name(), did_you_mean(near.as_deref())), near)
}

/// The message about a value name that the enumeration does not have, and the name that was probably meant.
pub(crate) fn unknown_value(name: &str, values: &EnumDescriptor) -> (String, Option<String>) {
    let near = meant_value(name, values);
    (format!("'{name}' is not a value of {}{}", values.name(), did_you_mean(near.as_deref())), near)
}

/// Names of other programs for fields: the message, the name, and what to write.
const FIELD_ALIASES: &[(&str, &str, &str)] = &[
    ("ModelConfig", "decoupled", "model_transaction_policy { decoupled: true }"),
    ("ModelConfig", "instances", "instance_group"),
    ("ModelInput", "dtype", "data_type"),
    ("ModelInput", "shape", "dims"),
    ("ModelInput", "type", "data_type"),
    ("ModelOutput", "dtype", "data_type"),
    ("ModelOutput", "shape", "dims"),
    ("ModelOutput", "type", "data_type"),
    ("State", "dtype", "data_type"),
    ("State", "shape", "dims"),
];

/// Names of other programs for datatypes.
const DATATYPE_ALIASES: &[(&str, &str)] = &[
    ("BFLOAT16", "TYPE_BF16"),
    ("BOOLEAN", "TYPE_BOOL"),
    ("BYTES", "TYPE_STRING"),
    ("DOUBLE", "TYPE_FP64"),
    ("FLOAT", "TYPE_FP32"),
    ("FLOAT16", "TYPE_FP16"),
    ("FLOAT32", "TYPE_FP32"),
    ("FLOAT64", "TYPE_FP64"),
    ("HALF", "TYPE_FP16"),
    ("INT", "TYPE_INT32"),
    ("LONG", "TYPE_INT64"),
    ("OBJECT", "TYPE_STRING"),
    ("STR", "TYPE_STRING"),
];

/// Ends of names that tell another unit of time than the schema has.
const UNITS: [&str; 6] = ["_ms", "_us", "_s", "_millis", "_micros", "_milliseconds"];

/// What to write instead of a field name that the message does not have.
fn meant_field(name: &str, message: &MessageDescriptor) -> Option<String> {
    let alias = FIELD_ALIASES.iter().find(|(of, other, _)| *of == message.name() && *other == name);
    if let Some((_, _, meant)) = alias {
        return Some((*meant).to_owned());
    }
    let known: Vec<String> = message.fields().map(|field| field.name().to_owned()).collect();
    let without_unit = UNITS.iter().find_map(|unit| name.strip_suffix(unit));
    let in_microseconds = without_unit.map(|name| format!("{name}_microseconds"));
    known
        .iter()
        .find(|known| in_microseconds.as_ref() == Some(known))
        .cloned()
        .or_else(|| nearest(name, known.iter().cloned()))
        .or_else(|| containing(name, &known))
}

/// What to write instead of a value that the enumeration does not have.
fn meant_value(name: &str, values: &EnumDescriptor) -> Option<String> {
    let known: Vec<String> = values.values().map(|value| value.name().to_owned()).collect();
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("TYPE_").unwrap_or(&upper);
    let alias = DATATYPE_ALIASES
        .iter()
        .find(|(other, meant)| *other == bare && known.iter().any(|known| known == meant));
    // A value begins with the name of its enumeration.
    let of_the_end = || known.iter().find(|known| known.ends_with(&format!("_{upper}"))).cloned();
    alias
        .map(|(_, meant)| (*meant).to_owned())
        .or_else(of_the_end)
        .or_else(|| nearest(name, known.iter().cloned()))
}

/// The only known name that begins or ends with the words of `name`.
fn containing(name: &str, known: &[String]) -> Option<String> {
    let (first, last) = (format!("{name}_"), format!("_{name}"));
    let is_part = |known: &&String| {
        known.starts_with(&first)
            || known.ends_with(&last)
            || (name.len() >= SHORTEST_BEGINNING && known.starts_with(name))
    };
    let mut found = known.iter().filter(is_part);
    found.next().filter(|_| found.next().is_none()).cloned()
}

/// A shorter beginning of a word tells nothing.
const SHORTEST_BEGINNING: usize = 5;

/// What to write instead of a single value of a message with one field: `{ string_value: "b" }`. `value` is the text of
/// the value.
pub(crate) fn wrapped_value(field: &str, value: &str, message: &MessageDescriptor) -> Option<String> {
    let mut fields = message.fields();
    let only = fields.next().filter(|_| fields.next().is_none() && !value.is_empty())?;
    let fits = match only.kind() {
        Kind::String => value.starts_with(['"', '\'']),
        Kind::Bool => ["true", "false"].contains(&value),
        _ => false,
    };
    (fits && !only.is_list()).then(|| format!("{field}: {{ {}: {value} }}", only.name()))
}

/// `, did you mean 'x'?` about a name that was probably meant. Empty if there is none.
pub fn did_you_mean<T: AsRef<str>>(near: Option<T>) -> String {
    near.map(|known| format!(", did you mean '{}'?", known.as_ref())).unwrap_or_default()
}

/// The datatype of configurations that a name of another program means: `TYPE_FP32` for `float`.
pub fn meant_datatype(name: &str) -> Option<String> {
    let config = descriptors::model_config();
    meant_value(name, &config.parent_pool().get_enum_by_name("inference.DataType")?)
}

/// The name of `known` with the least edit distance to `name`, if at most a third of `name` differs. Names that have
/// nothing in common are never near, however short they are.
///
/// The comparison ignores case, `_` and `-`, so that camelCase finds snake_case.
pub fn nearest<T: AsRef<str>>(name: &str, known: impl IntoIterator<Item = T>) -> Option<T> {
    let name = plain(name);
    let limit = (name.len() / 3).max(1).min(name.len().saturating_sub(1));
    known
        .into_iter()
        .filter_map(|known| {
            let other = plain(known.as_ref());
            // The distance is at least the difference of the lengths.
            let is_near = name.len().abs_diff(other.len()) <= limit;
            is_near.then(|| (distance(&name, &other), known))
        })
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

fn plain(name: &str) -> Vec<char> {
    name.chars().filter(|c| !['_', '-'].contains(c)).flat_map(char::to_lowercase).take(64).collect()
}

/// Number of insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["name", "platform", "max_batch_size", "dims", "TYPE_FP32"];

    #[test]
    fn a_misspelt_word_finds_the_known_word() {
        for (slip, word) in [
            ("max_batchsize", "max_batch_size"),
            ("maxBatchSize", "max_batch_size"),
            ("naem", "name"),
            ("dim", "dims"),
            ("platfrom", "platform"),
            ("type_fp32", "TYPE_FP32"),
        ] {
            assert_eq!(nearest(slip, KNOWN), Some(word), "{slip}");
        }
    }

    #[test]
    fn words_of_other_programs_are_known() {
        let config = crate::descriptors::model_config();
        let of = |field: &str| {
            let kind = config.get_field_by_name(field).unwrap().kind();
            kind.as_message().unwrap().clone()
        };
        for (message, word, meant) in [
            (&config, "max_batch", "max_batch_size"),
            (&config, "batch_size", "max_batch_size"),
            (&config, "warmup", "model_warmup"),
            (&config, "cache", "response_cache"),
            (&config, "decoupled", "model_transaction_policy { decoupled: true }"),
            (&config, "instances", "instance_group"),
            (&of("input"), "dtype", "data_type"),
            (&of("input"), "shape", "dims"),
            (&of("output"), "shape", "dims"),
            (&of("output"), "label_file", "label_filename"),
            (&of("input"), "allow_ragged", "allow_ragged_batch"),
            (&of("dynamic_batching"), "max_queue_delay_ms", "max_queue_delay_microseconds"),
            (&of("dynamic_batching"), "max_queue_delay_us", "max_queue_delay_microseconds"),
            (&of("sequence_batching"), "max_sequence_idle_ms", "max_sequence_idle_microseconds"),
        ] {
            assert_eq!(meant_field(word, message).as_deref(), Some(meant), "{word}");
        }
        // Several names begin so, or none is meant.
        for word in ["model", "gpu_memory", "mod"] {
            assert_eq!(meant_field(word, &config), None, "{word}");
        }
    }

    #[test]
    fn datatypes_and_kinds_of_other_programs_are_known() {
        let config = crate::descriptors::model_config();
        let of = |message: &str, field: &str| {
            let message = config.get_field_by_name(message).unwrap().kind();
            let field = message.as_message().unwrap().get_field_by_name(field).unwrap().kind();
            field.as_enum().unwrap().clone()
        };
        let (datatypes, kinds) = (of("input", "data_type"), of("instance_group", "kind"));
        for (values, word, meant) in [
            (&datatypes, "INT32", "TYPE_INT32"),
            (&datatypes, "UINT32", "TYPE_UINT32"),
            (&datatypes, "FP32", "TYPE_FP32"),
            (&datatypes, "fp16", "TYPE_FP16"),
            (&datatypes, "STRING", "TYPE_STRING"),
            (&datatypes, "BYTES", "TYPE_STRING"),
            (&datatypes, "TYPE_BYTES", "TYPE_STRING"),
            (&datatypes, "TYPE_FLOAT32", "TYPE_FP32"),
            (&datatypes, "TYPE_FLOAT", "TYPE_FP32"),
            (&datatypes, "float", "TYPE_FP32"),
            (&datatypes, "TYPE_DOUBLE", "TYPE_FP64"),
            (&datatypes, "TYPE_BFLOAT16", "TYPE_BF16"),
            (&kinds, "CPU", "KIND_CPU"),
            (&kinds, "gpu", "KIND_GPU"),
        ] {
            assert_eq!(meant_value(word, values).as_deref(), Some(meant), "{word}");
        }
        assert_eq!(meant_value("DOUBLE", &kinds), None);
    }

    #[test]
    fn an_unrelated_word_finds_nothing() {
        for word in ["", "x", "frobnicate", "input"] {
            assert_eq!(nearest(word, KNOWN), None, "{word}");
        }
        assert_eq!((nearest("x", ["y"]), nearest("x", ["X"])), (None, Some("X")));
    }
}
