//! The page: each message with its fields, then parameters and settings.

use std::{fmt::Write, sync::Arc};

use config::SETTINGS_OF_ALL_BACKENDS;
use inference::backend::{Backend, first_of_each_name};
use proto::{DocumentedField, DocumentedMessage, documented_messages};

use super::{
    model_fields,
    notes::{FieldNote, FieldSupport},
    parameters::{self, NamedValue},
    scheduling_fields,
};

const HEAD: &str = "\
# Configuration reference

Each field of `config.pbtxt`, and each parameter and setting that Nereid reads. `nereid man configuration` prints this page from the tables
of the program. [configuration.md](configuration.md) explains the fields by their tasks, and [checking.md](checking.md) the rules.

- *Type*: `list of` fields may be given several times. A `map` has entries `{ key: ... value: ... }`.
- *Default*: the value of a field that is not set. Empty: there is none.
- *Refused*: values with which a model is not loaded, with the [rule](checking.md#rules) that `nereid check` names. Values of a wrong type and
  unknown names are refused everywhere.
- *Shown only*: Nereid accepts the field, gives it back to clients and plug-ins, and changes nothing because of it.
";

fn notes() -> impl Iterator<Item = &'static FieldNote> {
    [
        model_fields::MODEL,
        model_fields::TENSORS,
        model_fields::INSTANCES,
        scheduling_fields::BATCHING,
        scheduling_fields::ENSEMBLES,
        scheduling_fields::OPTIMIZATION,
    ]
    .into_iter()
    .flatten()
}

/// The reference as a page of Markdown. `backends` are those that are built in.
pub fn configuration_reference(backends: &[Arc<dyn Backend>]) -> String {
    let mut page = HEAD.to_owned();
    for message in documented_messages() {
        push_message(&mut page, &message);
    }
    page.push_str("\n## Parameters\n\n```pbtxt\nparameters { key: \"MAX_UNREAD_RESPONSES\" value { string_value: \"16\" } }\n```\n");
    push_values(&mut page, "Parameters of all models", "Parameter", parameters::OF_THE_SERVER.iter());
    push_values(&mut page, "Parameters of ensembles", "Parameter", parameters::OF_ENSEMBLES.iter());
    let named = |names: &'static [&'static str]| {
        names.iter().filter_map(|name| parameters::OF_BACKENDS.iter().find(|value| value.name == *name))
    };
    push_values(
        &mut page,
        "Settings of all backends",
        "`--backend-config=BACKEND,...`",
        named(&SETTINGS_OF_ALL_BACKENDS),
    );
    for backend in first_of_each_name(backends) {
        let name = backend.name();
        let Some(known) = backend.known_names() else { continue };
        push_values(
            &mut page,
            &format!("Parameters of backend `{name}`"),
            "Parameter",
            named(known.parameters),
        );
        let heading = format!("Settings of backend `{name}`");
        let column = format!("`--backend-config={name},...`");
        push_values(&mut page, &heading, &column, named(known.settings));
    }
    push_refused(&mut page);
    page
}

/// A configuration with each refused value.
fn push_refused(page: &mut String) {
    page.push_str(
        "\n## Examples of refused values\n\nTests give each of them to `nereid check`, together with an input `IN` and an output \
         `OUT`.\n\n| Field | Example | Rule |\n|---|---|---|\n",
    );
    for note in notes() {
        for refusal in note.refusals {
            let _ = writeln!(page, "| `{}` | `{}` | `{}` |", note.field, refusal.example, refusal.rule.id);
        }
    }
}

fn push_message(page: &mut String, message: &DocumentedMessage) {
    let _ = write!(page, "\n## {}\n\n", message.name);
    if !message.text.is_empty() {
        let _ = write!(page, "{}\n\n", message.text);
    }
    if message.fields.is_empty() {
        page.push_str("It has no fields: write `{}`.\n");
        return;
    }
    page.push_str("| Field | Type | Default | Meaning | Refused |\n|---|---|---|---|---|\n");
    for field in &message.fields {
        let path = format!("{}.{}", message.name, field.name);
        let note = notes().find(|note| note.field == path);
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} |",
            field.name,
            kind(field),
            default(field, note),
            meaning(field, note),
            note.map_or_else(String::new, refused)
        );
    }
}

/// The type. A message is a link to its own section.
fn kind(field: &DocumentedField) -> String {
    let Some(message) = &field.message else { return field.kind.clone() };
    let anchor: String = message.chars().filter(|one| *one != '.').collect();
    field.kind.replace(message, &format!("[{message}](#{})", anchor.to_lowercase()))
}

fn default(field: &DocumentedField, note: Option<&FieldNote>) -> String {
    match note {
        Some(note) if !note.default.is_empty() => note.default.to_owned(),
        _ => match field.words.first() {
            Some(word) if !field.kind.starts_with("list") => format!("`{word}`"),
            _ => field.default.to_owned(),
        },
    }
}

fn meaning(field: &DocumentedField, note: Option<&FieldNote>) -> String {
    let mut parts = Vec::new();
    match note {
        Some(note) if note.support == FieldSupport::ShownOnly => parts.push("*Shown only.*".to_owned()),
        Some(note) => parts.push(note.meaning.to_owned()),
        None => {}
    }
    parts.push(field.text.clone());
    if !field.words.is_empty() {
        let words: Vec<_> = field.words.iter().map(|word| format!("`{word}`")).collect();
        parts.push(format!("One of {}.", words.join(", ")));
    }
    if !field.excludes.is_empty() {
        let others: Vec<_> = field.excludes.iter().map(|other| format!("`{other}`")).collect();
        parts.push(format!("Not together with {}.", others.join(" or ")));
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

fn refused(note: &FieldNote) -> String {
    let refusals: Vec<_> =
        note.refusals.iter().map(|refusal| format!("{} (`{}`)", refusal.words, refusal.rule.id)).collect();
    refusals.join("; ")
}

fn push_values<'a>(
    page: &mut String,
    heading: &str,
    column: &str,
    values: impl Iterator<Item = &'a NamedValue>,
) {
    let rows: String = values
        .map(|value| format!("| `{}` | {} | {} |\n", value.name, value.default, value.meaning))
        .collect();
    if !rows.is_empty() {
        let _ = write!(page, "\n### {heading}\n\n| {column} | Default | Meaning |\n|---|---|---|\n{rows}");
    }
}

#[cfg(test)]
mod tests;
