//! Changes some fields in the text of a configuration. Everything else stays as the user wrote it, with its comments.

use std::ops::Range;

use anyhow::{Result, ensure};
use proto::text::SourceField;

use crate::tunable::{BatchingChange, ConfigChanges, ThreadsChange, TunableModel};

/// The text with the changes.
///
/// # Errors
/// The text is no configuration, or has a form that cannot be changed in place.
pub fn edit(text: &str, model: &TunableModel, changes: &ConfigChanges) -> Result<String> {
    let fields = proto::text::outline(text)?;
    let mut edits = TextEdits { text, changes: Vec::new(), appended: String::new() };
    if let Some(size) = changes.max_batch_size {
        edits.set(&fields, "max_batch_size", size);
    }
    edits.instances(&fields, changes.instances);
    if let Some(batching) = &changes.batching {
        edits.batching(&fields, batching);
    }
    if let Some(threads) = changes.threads {
        edits.threads(&fields, threads);
    }
    let edited = edits.finish();
    let says = proto::text::parse(edited.as_bytes())?.config;
    ensure!(
        says == model.with(changes),
        "the configuration has a form that cannot be changed in place; 'nereid config show' prints a plain one"
    );
    Ok(edited)
}

struct TextEdits<'a> {
    text: &'a str,
    /// What replaces which part.
    changes: Vec<(Range<usize>, String)>,
    /// What follows the text.
    appended: String,
}

fn named<'f, 'a>(fields: &'f [SourceField<'a>], name: &str) -> Option<&'f SourceField<'a>> {
    fields.iter().find(|field| field.name == name)
}

impl TextEdits<'_> {
    /// Sets a number that is a field of the configuration.
    fn set(&mut self, fields: &[SourceField<'_>], name: &str, value: u32) {
        match named(fields, name) {
            Some(field) => self.changes.push((field.value.clone(), value.to_string())),
            None => self.appended.push_str(&format!("{name}: {value}\n")),
        }
    }

    /// Sets a number in a message.
    fn set_inside(&mut self, message: &SourceField<'_>, name: &str, value: u32) {
        match named(&message.inside, name) {
            Some(field) => self.changes.push((field.value.clone(), value.to_string())),
            None => self.insert(message, &format!("{name}: {value}")),
        }
    }

    /// Adds a field as the first of a message, on a line of its own if the message has several lines.
    fn insert(&mut self, message: &SourceField<'_>, field: &str) {
        let after_brace = message.value.start + 1;
        let inside = &self.text[message.value.clone()];
        let added = if inside.contains('\n') {
            let line = self.text[..message.whole.start].rfind('\n').map_or(0, |newline| newline + 1);
            let blank = self.text[line..].len() - self.text[line..].trim_start_matches([' ', '\t']).len();
            format!("\n{}  {field}", &self.text[line..line + blank])
        } else if message.inside.is_empty() {
            // Whatever blanks are between the braces.
            let end = message.value.end - 1;
            self.changes.push((after_brace..end, String::new()));
            format!(" {field} ")
        } else {
            let is_close = !self.text[after_brace..].starts_with(char::is_whitespace);
            format!(" {field}{}", if is_close { " " } else { "" })
        };
        self.changes.push((after_brace..after_brace, added));
    }

    /// Takes a field out, and its line if nothing else is on it.
    fn remove(&mut self, field: &SourceField<'_>) {
        let Range { start, end } = field.whole.clone();
        let line = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let rest = self.text[end..].find('\n').map_or(self.text.len(), |newline| end + newline + 1);
        let is_alone = self.text[line..start].trim().is_empty() && self.text[end..rest].trim().is_empty();
        if is_alone {
            self.changes.push((line..rest, String::new()));
        } else {
            // With the blanks before it, so that none are left twice.
            let before = self.text[..start].trim_end_matches([' ', '\t']).len();
            self.changes.push((before..end, String::new()));
        }
    }

    fn instances(&mut self, fields: &[SourceField<'_>], count: u32) {
        match named(fields, "instance_group") {
            None => self.appended.push_str(&format!("instance_group {{\n  count: {count}\n}}\n")),
            Some(group) if self.text[group.value.clone()].starts_with('[') => match group.inside.first() {
                Some(element) => self.set_inside(element, "count", count),
                None => self.changes.push((group.value.clone(), format!("[ {{ count: {count} }} ]"))),
            },
            Some(group) => self.set_inside(group, "count", count),
        }
    }

    fn batching(&mut self, fields: &[SourceField<'_>], change: &BatchingChange) {
        let mut wanted = Vec::new();
        if let Some(size) = change.preferred {
            wanted.push(("preferred_batch_size", format!("[ {size} ]")));
        }
        if change.delay_us > 0 {
            wanted.push(("max_queue_delay_microseconds", change.delay_us.to_string()));
        }
        let Some(message) = named(fields, "dynamic_batching") else {
            let lines = wanted.iter().map(|(name, value)| format!("  {name}: {value}\n"));
            let body = lines.collect::<String>();
            let body = if body.is_empty() { " ".to_owned() } else { format!("\n{body}") };
            self.appended.push_str(&format!("dynamic_batching {{{body}}}\n"));
            return;
        };
        for name in ["preferred_batch_size", "max_queue_delay_microseconds"] {
            let value = wanted.iter().position(|(wanted, _)| *wanted == name).map(|at| wanted.remove(at).1);
            let mut value = value;
            for field in message.inside.iter().filter(|field| field.name == name) {
                match value.take() {
                    Some(value) => self.changes.push((field.value.clone(), value)),
                    None => self.remove(field),
                }
            }
            wanted.extend(value.map(|value| (name, value)));
        }
        if !wanted.is_empty() {
            let fields: Vec<_> = wanted.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            self.insert(message, &fields.join(" "));
        }
    }

    fn threads(&mut self, fields: &[SourceField<'_>], ThreadsChange { parameter, count }: ThreadsChange) {
        let entries = fields.iter().filter(|field| field.name == "parameters").flat_map(|field| {
            let is_list = self.text[field.value.clone()].starts_with('[');
            if is_list { field.inside.iter().collect() } else { vec![field] }
        });
        let is_key = |entry: &&SourceField<'_>| {
            named(&entry.inside, "key")
                .is_some_and(|key| self.text[key.value.clone()].trim_matches(['"', '\'']) == parameter)
        };
        let value = entries.filter(is_key).find_map(|entry| named(&entry.inside, "value"));
        match value {
            Some(value) => {
                let text = format!("{{ string_value: \"{count}\" }}");
                self.changes.push((value.value.clone(), text));
            }
            None => self.appended.push_str(&format!(
                "parameters {{\n  key: \"{parameter}\"\n  value {{ string_value: \"{count}\" }}\n}}\n"
            )),
        }
    }

    fn finish(mut self) -> String {
        let mut text = self.text.to_owned();
        // From the back, so that the places before a change stay. An addition comes after a removal at the same place.
        self.changes.sort_by_key(|(range, _)| (range.start, range.end));
        for (range, new) in self.changes.into_iter().rev() {
            text.replace_range(range, &new);
        }
        if !self.appended.is_empty() && !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text + &self.appended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::TunedSetting;

    const EFFECTIVE: &str = "backend: 'onnxruntime' max_batch_size: 8";

    fn edited(text: &str, setting: TunedSetting) -> String {
        let mut effective = proto::text::parse(EFFECTIVE.as_bytes()).unwrap().config;
        let given = proto::text::parse(text.as_bytes()).unwrap();
        if given.fields.contains("max_batch_size") {
            effective.max_batch_size = given.config.max_batch_size;
        }
        let model = TunableModel::new(text, effective, 1024).unwrap();
        edit(text, &model, &model.changes(&setting)).unwrap()
    }

    const SETTING: TunedSetting = TunedSetting { instances: 3, threads: Some(2), batch: 4, delay_us: 500 };

    #[test]
    fn only_the_tuned_parts_change() {
        let text = "# Ours.\nmax_batch_size: 8   # rows\ninstance_group [\n  { kind: KIND_CPU  count: 1 } # one\n]\n\
                    dynamic_batching {\n  # wait\n  max_queue_delay_microseconds:   7\n  preserve_ordering: true\n}\n\
                    parameters { key: \"intra_op_thread_count\" value: { string_value: \"1\" } }\n\
                    version_policy { all { } }";
        let expected = "# Ours.\nmax_batch_size: 8   # rows\ninstance_group [\n  { kind: KIND_CPU  count: 3 } # one\n]\n\
                    dynamic_batching {\n  preferred_batch_size: [ 4 ]\n  # wait\n  max_queue_delay_microseconds:   500\n  \
                    preserve_ordering: true\n}\n\
                    parameters { key: \"intra_op_thread_count\" value: { string_value: \"2\" } }\n\
                    version_policy { all { } }";
        assert_eq!(edited(text, SETTING), expected);
    }

    #[test]
    fn what_is_missing_is_added_at_the_end() {
        let expected = "max_batch_size: 1024\ninstance_group {\n  count: 3\n}\ndynamic_batching {\n  preferred_batch_size: [ 4 ]\n  \
                        max_queue_delay_microseconds: 500\n}\nparameters {\n  key: \"intra_op_thread_count\"\n  \
                        value { string_value: \"2\" }\n}\n";
        assert_eq!(edited("", SETTING), expected);
    }

    #[test]
    fn a_delay_and_sizes_that_are_not_wanted_leave() {
        let text = "max_batch_size: 8\ndynamic_batching {\n  preferred_batch_size: 2\n  preferred_batch_size: [ 4, 8 ]\n  \
                    max_queue_delay_microseconds: 7\n}\ninstance_group { }\n";
        let expected = "max_batch_size: 8\ndynamic_batching {\n}\ninstance_group { count: 3 }\nparameters {\n  key: \
                        \"intra_op_thread_count\"\n  value { string_value: \"2\" }\n}\n";
        assert_eq!(edited(text, TunedSetting { batch: 8, delay_us: 0, ..SETTING }), expected);
    }

    #[test]
    fn every_form_can_be_changed_and_changing_again_changes_nothing() {
        let texts = [
            "max_batch_size: 8 dynamic_batching { preferred_batch_size: [2], max_queue_delay_microseconds: 3; }",
            "max_batch_size: 8 dynamic_batching <> instance_group []",
            "max_batch_size: 8 instance_group: [ < count: 2 > ] parameters [ { key: 'intra_op_thread_count' \
             value { string_value: '9' } }, { key: 'x' value { string_value: 'y' } } ]",
            "dynamic_batching{preserve_ordering:true}instance_group{kind:KIND_CPU}",
            "# only a comment",
        ];
        for text in texts {
            for batch in [1, 4, 8, 16] {
                let setting = TunedSetting { batch, delay_us: if batch == 1 { 0 } else { 100 }, ..SETTING };
                let once = edited(text, setting);
                assert_eq!(edited(&once, setting), once, "{text}");
            }
        }
    }
}
