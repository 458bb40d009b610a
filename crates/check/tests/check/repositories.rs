//! What a check finds in whole repositories.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
use std::{fs, sync::Arc};

use check::{CheckOptions, CheckReport, Severity, check_repositories, effective_config, json, sarif, text};
use inference::backend::Backend;
use tempfile::TempDir;
use testing::Identity;

const IO: &str = "input { name: 'IN' data_type: TYPE_INT32 dims: 4 }\noutput { name: 'OUT' data_type: TYPE_INT32 dims: 4 }\n";

/// A repository with these files. A path that ends in a slash is a directory.
fn repository(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join(path);
        if content.is_empty() && path.to_string_lossy().ends_with('/') {
            fs::create_dir_all(path).unwrap();
            continue;
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root
}

fn options() -> CheckOptions {
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Identity::default())];
    CheckOptions { plugins: backends.into(), ..CheckOptions::default() }
}

fn check(root: &TempDir) -> CheckReport {
    check_repositories(&[root.path().to_path_buf()].into(), &options())
}

/// Model, rule and suggestion of each finding.
fn told(report: &CheckReport) -> Vec<(String, &str, String)> {
    let told = report.findings.iter().map(|finding| {
        let model = finding.model.clone().unwrap_or_default();
        (model, finding.rule.id, finding.suggestion.clone().unwrap_or_default())
    });
    told.collect()
}

fn row<'a>(model: &str, rule: &'a str, suggestion: &str) -> (String, &'a str, String) {
    (model.to_owned(), rule, suggestion.to_owned())
}

#[test]
fn files_that_nothing_reads_and_directories_that_are_no_versions_are_told() {
    let config = format!("backend: 'identity'\n{IO}");
    let root = repository(&[
        ("m/config.pbtxt", &config),
        ("m/1/", ""),
        ("m/01/", ""),
        ("m/config.pbtx", "x"),
        ("m/model.onnx", "x"),
        ("m/warmups/", ""),
        ("m/notes", "x"),
        ("m/README.md", "x"),
        (".git/", ""),
        ("lost+found/", ""),
    ]);
    let report = check(&root);
    assert_eq!(
        told(&report),
        [
            row("m", "version-directory", ""),
            row("m", "version-directory", ""),
            row("m", "unread-file", "config.pbtxt"),
            row("m", "unread-file", ""),
            row("m", "unread-file", ""),
            row("m", "unread-file", "warmup"),
        ],
        "{}",
        text(&report)
    );
    assert_eq!(report.count(Severity::Error), 0);
    assert_eq!(report.count(Severity::Note), 1);
}

#[test]
fn a_model_in_place_of_its_repository_is_one_error_and_numbers_may_be_names_of_models() {
    let config = format!("backend: 'identity'\n{IO}");
    for files in
        [&[("config.pbtxt", &*config), ("1/model.x", ""), ("2/model.x", "")][..], &[("1/model.x", "")]]
    {
        let report = check(&repository(files));
        assert_eq!(told(&report), [row("", "repository-layout", "")], "{}", text(&report));
        assert_eq!((report.models, report.count(Severity::Error)), (0, 1));
        assert!(report.findings[0].text.contains(": name the directory above it '"), "{}", text(&report));
    }
    let numbered = check(&repository(&[("1/config.pbtxt", &config), ("1/1/model.x", "")]));
    assert_eq!((numbered.models, numbered.count(Severity::Error)), (1, 0), "{}", text(&numbered));
}

#[test]
fn ensembles_are_judged_with_their_members() {
    let member = format!("backend: 'identity'\nmax_batch_size: 2\n{IO}");
    let ensemble = |member: &str, input: &str, output: &str, more: &str| {
        format!(
            "platform: 'ensemble'\n{IO}{more}\nensemble_scheduling {{ step {{\n model_name: '{member}' model_version: -1\n input_map {{ key: \
             '{input}' value: 'IN' }}\n output_map {{ key: '{output}' value: 'OUT' }} }} }}"
        )
    };
    let circle = |member: &str| ensemble(member, "IN", "OUT", "");
    let root = repository(&[
        ("member/config.pbtxt", &member),
        ("member/1/", ""),
        ("broken/config.pbtxt", "backend: 'identity' max_batch_size: -1"),
        ("broken/1/", ""),
        ("good/config.pbtxt", &ensemble("member", "IN", "OUT", "max_batch_size: 2")),
        ("good/1/", ""),
        ("above/config.pbtxt", &ensemble("good", "IN", "OUT", "max_batch_size: 2")),
        ("above/1/", ""),
        ("missing/config.pbtxt", &ensemble("membre", "IN", "OUT", "")),
        ("missing/1/", ""),
        ("names/config.pbtxt", &ensemble("member", "INN", "OUT", "max_batch_size: 4")),
        ("names/1/", ""),
        ("upon/config.pbtxt", &ensemble("broken", "IN", "OUT", "")),
        ("upon/1/", ""),
        ("one/config.pbtxt", &circle("two")),
        ("one/1/", ""),
        ("two/config.pbtxt", &circle("one")),
        ("two/1/", ""),
    ]);
    let report = check(&root);
    let texts = |model: &str| -> Vec<(Option<usize>, &str)> {
        let of_model = report.findings.iter().filter(|finding| finding.model.as_deref() == Some(model));
        of_model.map(|finding| (finding.line, finding.text.as_str())).collect()
    };
    for model in ["member", "good", "above"] {
        assert_eq!(texts(model), [], "{model}");
    }
    assert_eq!(
        texts("missing"),
        [(Some(6), "ensemble missing contains models that are not available or ambiguous: membre")]
    );
    assert!(told(&report).contains(&row("missing", "ensemble-members", "member")));
    assert_eq!(
        texts("names"),
        [
            (
                Some(4),
                "ensemble names allows maximum batch size 4, but it contains model member which only allows maximum batch \
                 size to be 2"
            ),
            (Some(7), "in ensemble names, input IN in model member is not mapped to any ensemble tensors"),
            (
                Some(7),
                "in ensemble names, ensemble tensor IN is mapping to non-existing input INN in model member"
            ),
        ]
    );
    assert_eq!(texts("upon").len(), 1);
    for (model, other) in [("one", "two"), ("two", "one")] {
        let text = format!("circular dependency between ensembles: {model} -> ... -> {other} -> {model}");
        assert_eq!(texts(model), [(Some(5), text.as_str())]);
    }
}

#[test]
fn a_step_without_a_version_means_version_0() {
    let member = format!("backend: 'identity'\n{IO}");
    let ensemble = format!(
        "platform: 'ensemble'\n{IO}ensemble_scheduling {{ step {{ model_name: 'a' input_map {{ key: 'IN' value: 'IN' }} \
         output_map {{ key: 'OUT' value: 'OUT' }} }} }}"
    );
    let files = [("a/config.pbtxt", &*member), ("a/1/", ""), ("e/config.pbtxt", &*ensemble), ("e/1/", "")];
    assert_eq!(told(&check(&repository(&files))), [row("e", "ensemble-members", "model_version: -1")]);
}

#[test]
fn a_model_in_two_repositories_and_a_repository_that_is_not_there_are_errors() {
    let config = format!("backend: 'identity'\n{IO}");
    let files = [("m/config.pbtxt", config.as_str()), ("m/1/", "")];
    let (one, two) = (repository(&files), repository(&files));
    let paths = [one.path().to_path_buf(), two.path().to_path_buf(), one.path().join("none")];
    let report = check_repositories(&paths.into(), &options());
    let rules: Vec<_> = report.findings.iter().map(|finding| finding.rule.id).collect();
    assert_eq!(rules.iter().filter(|rule| **rule == "unique-model").count(), 2);
    assert!(rules.contains(&"repository"));
    let paths = [one.path().to_path_buf(), two.path().to_path_buf()];
    let namespaced = CheckOptions { namespacing: true, ..options() };
    assert_eq!(check_repositories(&paths.into(), &namespaced).findings, []);
}

#[test]
fn the_forms_of_a_report_have_the_same_findings() {
    let root = repository(&[("m/config.pbtxt", "max_batchsize: 4\n\tbackend: identity"), ("m/1/", "")]);
    let report = check(&root);
    let file = root.path().join("m/config.pbtxt");
    assert_eq!(
        text(&report),
        format!(
            "{0}:1:1: error[unknown-field]: 'max_batchsize' is not a field of ModelConfig, did you mean 'max_batch_size'?\n  \
             max_batchsize: 4\n  ^\n{0}:2:11: error[wrong-value]: expected a string in quotes for 'backend', found \
             'identity'\n  \tbackend: identity\n  \t         ^\n1 model checked: 2 errors, 0 warnings, 0 notes\n",
            file.display()
        )
    );
    let object: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
    assert_eq!((&object["errors"], &object["models"]), (&2.into(), &1.into()));
    assert_eq!(object["findings"][0]["suggestion"], "max_batch_size");
    assert_eq!(object["findings"][1]["column"], 11);
    let log: serde_json::Value = serde_json::from_str(&sarif(&report)).unwrap();
    let run = &log["runs"][0];
    assert_eq!(log["version"], "2.1.0");
    for result in run["results"].as_array().unwrap() {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
        assert_eq!(result["level"], "error");
        let uri = &result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
        assert!(uri.as_str().unwrap().starts_with("file:///"), "{uri}");
    }
    let empty: serde_json::Value = serde_json::from_str(&json(&CheckReport::default())).unwrap();
    assert_eq!(empty["findings"], serde_json::json!([]));
}

#[test]
fn each_value_of_a_configuration_has_an_origin() {
    let config = format!("max_batch_size: 8\nbackend: 'identity'\n{IO}dynamic_batching {{}}\n");
    let root = repository(&[("m/config.pbtxt", &config), ("m/1/", "")]);
    let shown = effective_config(&root.path().join("m"), None, &options()).unwrap();
    for (path, origin) in [
        ("name", "the directory's name"),
        ("backend", "config.pbtxt:2"),
        ("max_batch_size", "config.pbtxt:1"),
        ("input[0].dims", "config.pbtxt:3"),
        ("dynamic_batching.preferred_batch_size", "default"),
        ("instance_group[0].count", "default"),
    ] {
        assert_eq!(shown.origins.get(path).map(String::as_str), Some(origin), "{path}\n{}", shown.text());
    }
    assert!(shown.text().contains("max_batch_size: 8  # config.pbtxt:1\n"));
    assert!(effective_config(&root.path().join("m"), Some(7), &options()).is_err());
    assert!(effective_config(&root.path().join("none"), None, &options()).is_err());
}

#[test]
fn strings_that_name_nothing_are_told_with_the_name_that_is_there() {
    let root = repository(&[
        ("m/config.pbtxt", &format!("backend: 'idenity'\n{IO}")),
        ("m/1/", ""),
        (
            "n/config.pbtxt",
            &format!("backend: 'identity'\n{IO}batch_output {{ target_name: 'OUTT' source_input: 'INN' }}"),
        ),
        ("n/1/", ""),
    ]);
    let report = check(&root);
    assert_eq!(
        told(&report),
        [row("m", "backend", "identity"), row("n", "batch-tensor", "IN"), row("n", "batch-tensor", "OUT")]
    );
}

#[test]
fn characters_that_a_terminal_obeys_are_shown_escaped() {
    let root = repository(&[
        ("m\u{1b}[1m/config.pbtxt", "name: '\u{1b}[2J' max_batchsize: 4"),
        ("m\u{1b}[1m/1/", ""),
    ]);
    let report = check(&root);
    let shown = text(&report);
    assert!(!shown.contains('\u{1b}') && shown.contains("/m\\u{1b}[1m/config.pbtxt:1:"), "{shown}");
    let mut lines = shown.lines().skip_while(|line| !line.contains("[unknown-field]")).skip(1);
    let (line, caret) = (lines.next().unwrap(), lines.next().unwrap());
    assert_eq!(line.find("max_batchsize"), caret.find('^'), "{shown}");
    // Programs get the names as they are.
    let object: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
    assert_eq!(object["findings"][0]["model"], "m\u{1b}[1m");
}
