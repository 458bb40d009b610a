//! Compiles models in Python, if their interpreter is there. One process of each interpreter compiles all its files, and
//! runs none of them.
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use inference::{Name, backend::PythonSource, nearest};
use serde::Deserialize;

use crate::{
    Finding, Severity,
    rules::{PYTHON_MODEL, PYTHON_SYNTAX},
};

const PROGRAM: &str = include_str!("python.py");

/// How long an interpreter may take for all its files.
const LONGEST: Duration = Duration::from_secs(60);

/// The most bytes of an interpreter's answer.
const MOST_BYTES: u64 = 256 << 20;

/// The class of a model.
const CLASS: &str = "TritonPythonModel";

/// The methods of a model that the server calls.
const METHODS: [&str; 5] = ["auto_complete_config", "execute", "finalize", "initialize", "is_ready"];

/// What an interpreter tells of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CompiledFile {
    error: Option<String>,
    at: (Option<usize>, Option<usize>),
    /// Code may make names that are not in the source.
    dynamic: bool,
    /// Classes, imported names, variables.
    names: Vec<String>,
    /// The line of the class.
    line: Option<usize>,
    /// The class has base classes, or decorators.
    derived: bool,
    /// Name, line and column of the methods of the class.
    methods: Vec<(String, usize, usize)>,
}

/// Findings about the source code of models. Interpreters that cannot be started give a note.
pub(crate) fn check_sources(sources: &[(Name, PythonSource)]) -> Vec<Finding> {
    let mut by_interpreter: BTreeMap<&str, Vec<(&Name, &PythonSource)>> = BTreeMap::new();
    for (model, source) in sources {
        if let Some(interpreter) = &source.interpreter {
            by_interpreter.entry(interpreter).or_default().push((model, source));
        }
    }
    let mut findings = Vec::new();
    for (interpreter, files) in by_interpreter {
        match compile(interpreter, &files) {
            Ok(told) => {
                for ((model, source), told) in files.into_iter().zip(told) {
                    let of_file = judge(source, &told).into_iter();
                    findings.extend(of_file.map(|finding| finding.about(model)));
                }
            }
            Err(error) => findings.extend(files.first().map(|(model, source)| {
                let text = format!(
                    "the source code of {} models was not compiled: '{interpreter}' {error}",
                    files.len()
                );
                Finding::new(Severity::Note, PYTHON_SYNTAX, &source.file, text).about(model)
            })),
        }
    }
    findings
}

fn judge(source: &PythonSource, told: &CompiledFile) -> Vec<Finding> {
    if let Some(error) = &told.error {
        let finding = Finding::new(Severity::Error, PYTHON_SYNTAX, &source.file, error.clone());
        return vec![Finding { line: told.at.0, column: told.at.1.filter(|column| *column > 0), ..finding }];
    }
    if !told.names.iter().any(|name| name == CLASS) {
        if told.dynamic {
            return Vec::new();
        }
        let near = nearest(CLASS, &told.names).cloned();
        let text = format!("the source code has no class '{CLASS}'");
        return vec![Finding::new(Severity::Error, PYTHON_MODEL, &source.file, text).meaning(near)];
    }
    if told.line.is_none() || told.derived || told.dynamic {
        return Vec::new();
    }
    let has = |name: &str| told.methods.iter().any(|(method, ..)| method == name);
    let mut findings = Vec::new();
    for (method, line, column) in &told.methods {
        let near = nearest(method, METHODS).filter(|near| near != method && !has(near));
        if let Some(near) = near {
            let text = format!("nothing calls the method '{method}' of '{CLASS}', did you mean '{near}'?");
            let finding = Finding::new(Severity::Warning, PYTHON_MODEL, &source.file, text);
            let finding = Finding { line: Some(*line), column: Some(*column), ..finding };
            findings.push(finding.meaning(Some(near.to_owned())));
        }
    }
    if !has("execute") {
        let text = format!("'{CLASS}' has no method 'execute'");
        let finding = Finding::new(Severity::Error, PYTHON_MODEL, &source.file, text);
        findings.push(Finding { line: told.line, ..finding });
    }
    findings
}

fn compile(interpreter: &str, files: &[(&Name, &PythonSource)]) -> Result<Vec<CompiledFile>, String> {
    let mut child = Command::new(interpreter)
        .args(["-I", "-S", "-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    let names: Vec<_> = files.iter().map(|(_, source)| source.file.as_os_str().as_bytes()).collect();
    let answer = exchange(&mut child, names.join(&b'\0'));
    // The process has ended, or it takes too long.
    let _ = child.kill();
    let _ = child.wait();
    let told: Vec<CompiledFile> =
        serde_json::from_slice(&answer?).map_err(|error| format!("gave no answer: {error}"))?;
    if told.len() == files.len() { Ok(told) } else { Err("did not answer for each file".to_owned()) }
}

/// Writes to the process, and reads what it says until it ends.
fn exchange(child: &mut Child, names: Vec<u8>) -> Result<Vec<u8>, String> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else { return Err("has no pipes".to_owned()) };
    let (sender, receiver) = mpsc::sync_channel(1);
    // The threads end with the process, which the caller ends.
    thread::spawn(move || stdin.write_all(&names));
    thread::spawn(move || {
        let mut answer = Vec::new();
        let read = stdout.take(MOST_BYTES).read_to_end(&mut answer);
        sender.send(read.map(|_| answer))
    });
    match receiver.recv_timeout(LONGEST) {
        Ok(read) => read.map_err(|error| format!("cannot be read: {error}")),
        Err(_) => Err(format!("took longer than {} s", LONGEST.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Rule, line and suggestion of the findings about a source.
    fn told(source: &str, interpreter: &str) -> Vec<(&'static str, Option<usize>, Option<String>)> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("model.py");
        fs::write(&file, source).expect("a file");
        let source = PythonSource { file, interpreter: Some(interpreter.to_owned()) };
        let findings = check_sources(&[("m".into(), source)]).into_iter();
        findings.map(|finding| (finding.rule.id, finding.line, finding.suggestion)).collect()
    }

    #[test]
    fn source_code_is_compiled_and_not_run() {
        let good = "import os\nos.abort()\nclass TritonPythonModel:\n  def execute(self, requests): pass\n";
        assert_eq!(told(good, "python3"), []);
        assert_eq!(told("class TritonPythonModel(:\n", "python3"), [("python-syntax", Some(1), None)]);
        assert_eq!(
            told("class TritonPytonModel: pass\n", "python3"),
            [("python-model", None, Some("TritonPytonModel".to_owned()))]
        );
        assert_eq!(
            told(
                "class TritonPythonModel:\n  def execute(self): pass\n  def finalise(self): pass\n",
                "python3"
            ),
            [("python-model", Some(3), Some("finalize".to_owned()))]
        );
        assert_eq!(told("from models import *\n", "python3"), []);
        assert_eq!(told("from models import Mine as TritonPythonModel\n", "python3"), []);
        assert_eq!(told("class TritonPythonModel(Base): pass\n", "python3"), []);
    }

    #[test]
    fn an_interpreter_that_is_not_there_gives_a_note() {
        assert_eq!(told("class (", "/no/python"), [("python-syntax", None, None)]);
    }
}
