//! The notes agree with the schema, the rules and the server.
use std::{collections::BTreeSet, fs};

use config::ConfigRule;
use testing::Identity;

use super::*;
use crate::{CheckOptions, CheckReport, Severity, check_repositories};

const IO: &str = "input { name: 'IN' data_type: TYPE_INT32 dims: 1 }\noutput { name: 'OUT' data_type: TYPE_INT32 dims: 1 }\n";

fn check(config: &str) -> CheckReport {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("m/1")).unwrap();
    fs::write(root.path().join("m/config.pbtxt"), config).unwrap();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Identity::default())];
    let options = CheckOptions { plugins: backends.into(), ..CheckOptions::default() };
    check_repositories(&[root.path().to_path_buf()].into(), &options)
}

fn whole(example: &str) -> String {
    let names_backend = example.contains("backend: ") || example.contains("platform: ");
    let backend = if names_backend { "" } else { "backend: 'identity'\n" };
    format!("{backend}{IO}{example}")
}

#[test]
fn each_field_has_one_note_and_each_note_a_field() {
    let messages = documented_messages();
    let fields = messages
        .iter()
        .flat_map(|message| message.fields.iter().map(|field| format!("{}.{}", message.name, field.name)));
    let fields: BTreeSet<_> = fields.collect();
    let noted: BTreeSet<_> = notes().map(|note| note.field.to_owned()).collect();
    assert_eq!(noted, fields);
    assert_eq!(notes().count(), noted.len(), "a field has two notes");
}

#[test]
fn each_field_has_a_meaning() {
    let mut unclear = Vec::new();
    for message in documented_messages() {
        for field in &message.fields {
            let path = format!("{}.{}", message.name, field.name);
            let note = notes().find(|note| note.field == path);
            if meaning(field, note).is_empty() {
                unclear.push(path);
            }
        }
    }
    assert_eq!(unclear, Vec::<String>::new());
}

#[test]
fn each_refused_value_breaks_its_rule() {
    let mut wrong = Vec::new();
    for note in notes() {
        for refusal in note.refusals {
            let report = check(&whole(refusal.example));
            let errors = report.findings.iter().filter(|finding| finding.severity == Severity::Error);
            let rules: BTreeSet<_> = errors.map(|finding| finding.rule.id).collect();
            if !rules.contains(refusal.rule.id) {
                wrong.push(format!("{}: {}: breaks {rules:?}", note.field, refusal.words));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_model_without_these_values_is_good() {
    let report = check(&whole(""));
    assert_eq!(report.count(Severity::Error), 0);
}

/// Rules that are not about the value of a field: about texts and files, or about what follows from them.
const OF_FILES: [ConfigRule; 12] = [
    config::rule::SYNTAX,
    config::rule::UNKNOWN_FIELD,
    config::rule::UNKNOWN_VALUE,
    config::rule::MODEL_FILE,
    config::rule::GRAPH,
    config::rule::EXTERNAL_DATA,
    config::rule::ENSEMBLE_TENSORS,
    config::rule::ENSEMBLE_MEMBERS,
    config::rule::CONFIGURATION,
    config::rule::WRONG_VALUE,
    config::rule::PARAMETER,
    config::rule::REPEATED_FIELD,
];

#[test]
fn each_rule_about_fields_is_in_the_reference() {
    let named: BTreeSet<_> = notes().flat_map(|note| note.refusals).map(|refusal| refusal.rule.id).collect();
    let rules = config::rule::ALL.iter().filter(|rule| !OF_FILES.contains(rule));
    let rules: BTreeSet<_> = rules.map(|rule| rule.id).collect();
    assert_eq!(rules.difference(&named).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn parameters_of_the_server_are_those_that_it_knows() {
    let listed: BTreeSet<_> = parameters::OF_THE_SERVER.iter().map(|value| value.name).collect();
    assert_eq!(listed, config::server_parameters().into_iter().collect());
    let all = parameters::OF_BACKENDS.iter().map(|value| value.name);
    assert_eq!(all.clone().collect::<BTreeSet<_>>().len(), all.count(), "a name is listed twice");
}
