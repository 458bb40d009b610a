//! Finds the known name that a misspelt name most probably means.

use prost_reflect::{EnumDescriptor, MessageDescriptor};

/// The message about a field name that `message` does not have, and the name that was probably meant.
pub(crate) fn unknown_field(name: &str, message: &MessageDescriptor) -> (String, Option<String>) {
    let near = nearest(name, message.fields().map(|field| field.name().to_owned()));
    (format!("'{name}' is not a field of {}{}", message.name(), hint(near.as_deref())), near)
}

/// The message about a value name that the enumeration does not have, and the name that was probably meant.
pub(crate) fn unknown_value(name: &str, values: &EnumDescriptor) -> (String, Option<String>) {
    let near = nearest(name, values.values().map(|value| value.name().to_owned()));
    (format!("'{name}' is not a value of {}{}", values.name(), hint(near.as_deref())), near)
}

fn hint(near: Option<&str>) -> String {
    near.map(|known| format!(", did you mean '{known}'?")).unwrap_or_default()
}

/// The name of `known` with the least edit distance to `name`, if at most a third of `name` differs.
///
/// The comparison ignores case, `_` and `-`, so that camelCase finds snake_case.
pub fn nearest<T: AsRef<str>>(name: &str, known: impl IntoIterator<Item = T>) -> Option<T> {
    let name = plain(name);
    let limit = (name.len() / 3).max(1);
    known
        .into_iter()
        .map(|known| (distance(&name, &plain(known.as_ref())), known))
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
    fn an_unrelated_word_finds_nothing() {
        for word in ["", "x", "frobnicate", "input"] {
            assert_eq!(nearest(word, KNOWN), None, "{word}");
        }
    }
}
