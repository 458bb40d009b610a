//! Compiles models in Python. One process of each interpreter compiles all its files, and runs none of them. Others tell
//! whether the interpreter has NumPy, and the modules that the files import.
//!
//! A repository may come from somebody whose programs must not run here. So a program that a model names is started only if
//! the caller says so. Otherwise the operator's interpreter compiles the file, whose version may be another one.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use inference::{backend::PythonSource, nearest};
use vocabulary::Name;

use crate::{
    Finding, Severity,
    interpreter::{
        CompiledFile, CompiledMethod, InterpreterFailure, absent_modules, compiled, without_numpy,
    },
    rules::{PYTHON_ENVIRONMENT, PYTHON_MODEL, PYTHON_SYNTAX},
};

/// The class of a model.
const CLASS: &str = "TritonPythonModel";

/// The methods of a model that the server calls.
const METHODS: [&str; 5] = ["auto_complete_config", "execute", "finalize", "initialize", "is_ready"];

/// Modules that workers have, or that are looked for otherwise.
const KNOWN_MODULES: [&str; 3] = ["triton_python_backend_utils", "c_python_backend_utils", "numpy"];

/// How the source code of models is checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceChecks {
    /// The server calls `auto_complete_config`.
    pub(crate) completes: bool,
    /// The interpreters that models name are started.
    pub(crate) runs_own_interpreters: bool,
}

impl SourceChecks {
    fn interpreter<'a>(&self, source: &'a PythonSource) -> Option<&'a str> {
        let own = source.own_interpreter.as_deref().filter(|_| self.runs_own_interpreters);
        own.or(source.interpreter.as_deref())
    }

    /// The interpreter that would run the model and is not started.
    fn other_interpreter<'a>(&self, source: &'a PythonSource) -> Option<&'a str> {
        source.own_interpreter.as_deref().filter(|_| !self.runs_own_interpreters)
    }
}

/// Findings about the source code of models.
pub(crate) fn check_sources(sources: &[(Name, PythonSource)], checks: SourceChecks) -> Vec<Finding> {
    let mut by_interpreter: BTreeMap<&str, Vec<(&Name, &PythonSource)>> = BTreeMap::new();
    for (model, source) in sources {
        if let Some(interpreter) = checks.interpreter(source) {
            by_interpreter.entry(interpreter).or_default().push((model, source));
        }
    }
    let mut findings = Vec::new();
    for (interpreter, files) in by_interpreter {
        let names: Vec<_> = files.iter().map(|(_, source)| source.file.as_path()).collect();
        match compiled(interpreter, &names) {
            Ok(told) => {
                findings.extend(check_environment(interpreter, &files, checks));
                findings.extend(check_imports(interpreter, &files, &told, checks));
                for ((model, source), told) in files.into_iter().zip(told) {
                    let of_file = judge(source, &told, checks).into_iter();
                    findings.extend(of_file.map(|finding| finding.about(model)));
                }
            }
            Err(InterpreterFailure::Missing(why)) => {
                findings.extend(without_interpreter(interpreter, &why, &files, checks));
            }
            Err(InterpreterFailure::Silent(error)) => {
                findings.extend(files.first().map(|(model, source)| {
                    let text = format!(
                        "the source code of {} models was not compiled: '{interpreter}' {error}",
                        files.len()
                    );
                    Finding::new(Severity::Note, PYTHON_SYNTAX, &source.file, text).about(model)
                }));
            }
        }
    }
    findings
}

/// Findings about models whose interpreter does not start: the server would refuse those that it would run.
fn without_interpreter(
    interpreter: &str,
    why: &str,
    files: &[(&Name, &PythonSource)],
    checks: SourceChecks,
) -> Vec<Finding> {
    let finding = |(model, source): &(&Name, &PythonSource)| {
        let severity = if is_run_by(source, checks) { Severity::Error } else { Severity::Note };
        let text = format!(
            "'{interpreter}' {why}; PYTHON_EXECUTABLE in config.pbtxt or NEREID_PYTHON names another interpreter"
        );
        Finding::new(severity, PYTHON_ENVIRONMENT, &source.file, text).about(model)
    };
    files.iter().map(finding).collect()
}

/// Whether the server would run the model with the interpreter that checks it.
fn is_run_by(source: &PythonSource, checks: SourceChecks) -> bool {
    !source.server_makes_environment && checks.other_interpreter(source).is_none()
}

/// Findings about models whose interpreter has no NumPy.
fn check_environment(
    interpreter: &str,
    files: &[(&Name, &PythonSource)],
    checks: SourceChecks,
) -> Vec<Finding> {
    let concerned: Vec<_> = files.iter().filter(|(_, source)| is_run_by(source, checks)).collect();
    if concerned.is_empty() {
        return Vec::new();
    }
    let (severity, text) = match without_numpy(interpreter) {
        Ok(None) => return Vec::new(),
        Ok(Some(text)) => (Severity::Error, text),
        Err(why) => (Severity::Note, format!("whether '{interpreter}' has NumPy is not known: it {why}")),
    };
    let finding = |(model, source): &(&Name, &PythonSource)| {
        Finding::new(severity, PYTHON_ENVIRONMENT, &source.file, text.clone()).about(model)
    };
    concerned.into_iter().map(finding).collect()
}

/// Warnings about modules that models import and that the interpreter does not find. A server may have other search paths.
fn check_imports(
    interpreter: &str,
    files: &[(&Name, &PythonSource)],
    told: &[CompiledFile],
    checks: SourceChecks,
) -> Vec<Finding> {
    let concerned = files.iter().zip(told).filter(|((_, source), _)| is_run_by(source, checks));
    let imports: Vec<_> = concerned
        .flat_map(|((model, source), told)| told.imports.iter().map(move |import| (*model, *source, import)))
        .filter(|(_, source, (module, _))| !is_beside(source, module))
        .collect();
    let names: BTreeSet<_> = imports.iter().map(|(.., (module, _))| module.as_str()).collect();
    if names.is_empty() {
        return Vec::new();
    }
    // A failure is told once, where NumPy is looked for.
    let absent = absent_modules(interpreter, &names).unwrap_or_default();
    let missing = imports.into_iter().filter(|(.., (module, _))| absent.contains(module));
    let finding = |(model, source, (module, line)): (&Name, &PythonSource, &(String, usize))| {
        let text = format!("'{interpreter}' has no module '{module}', which the model imports");
        let finding = Finding::new(Severity::Warning, PYTHON_ENVIRONMENT, &source.file, text);
        Finding { line: Some(*line), ..finding }.about(model)
    };
    missing.map(finding).collect()
}

/// Whether a worker has the module itself, or finds it in the directory of the version or of the model.
fn is_beside(source: &PythonSource, module: &str) -> bool {
    let mut directories = source.file.ancestors().skip(1).take(2);
    let has = |directory: &Path| {
        directory.join(module).is_dir()
            || directory.read_dir().is_ok_and(|mut entries| {
                entries.any(|entry| {
                    let name = entry.map(|entry| entry.file_name()).unwrap_or_default();
                    let name = name.to_string_lossy();
                    name.strip_prefix(module).is_some_and(|rest| rest.starts_with('.'))
                })
            })
    };
    KNOWN_MODULES.contains(&module) || directories.any(has)
}

fn judge(source: &PythonSource, told: &CompiledFile, checks: SourceChecks) -> Vec<Finding> {
    if let Some(error) = &told.error {
        let (severity, text) = match checks.other_interpreter(source) {
            None => (Severity::Error, error.clone()),
            // Another version may accept it.
            Some(other) => (
                Severity::Warning,
                format!("{error} (the model's own interpreter '{other}' was not started)"),
            ),
        };
        let finding = Finding::new(severity, PYTHON_SYNTAX, &source.file, text);
        return vec![Finding { line: told.at.0, column: told.at.1.filter(|column| *column > 0), ..finding }];
    }
    let is_class = |name: &String| name == CLASS;
    if !told.names.iter().chain(&told.attributes).any(is_class) {
        if told.dynamic {
            return Vec::new();
        }
        let near = nearest(CLASS, &told.names).cloned();
        let text = format!("the source code has no class '{CLASS}'");
        return vec![Finding::new(Severity::Error, PYTHON_MODEL, &source.file, text).meaning(near)];
    }
    // What binds the name of the class again, or changes the class, is not known.
    let is_bound_again = told.names.iter().filter(|name| is_class(name)).count() > 1;
    if told.line.is_none() || told.derived || told.dynamic || is_bound_again {
        return Vec::new();
    }
    let mut findings = misspelt_methods(source, told);
    findings.extend(
        told.methods.iter().filter_map(|method| wrong_arguments(source, told, method, checks.completes)),
    );
    let is_set = |names: &[String]| names.iter().any(|name| name == "execute");
    if !is_set(&told.members) && !is_set(&told.attributes) {
        let text = format!("'{CLASS}' has no method 'execute': each request would fail");
        let finding = Finding::new(Severity::Warning, PYTHON_MODEL, &source.file, text);
        findings.push(Finding { line: told.line, ..finding });
    }
    findings
}

/// Warnings about methods that nothing calls because of their names.
fn misspelt_methods(source: &PythonSource, told: &CompiledFile) -> Vec<Finding> {
    let has = |name: &str| told.methods.iter().any(|method| method.name == name);
    let mut findings = Vec::new();
    for method in &told.methods {
        let name = &method.name;
        if let Some(near) = nearest(name, METHODS).filter(|near| near != name && !has(near)) {
            let text = format!("nothing calls the method '{name}' of '{CLASS}', did you mean '{near}'?");
            let finding = Finding::new(Severity::Warning, PYTHON_MODEL, &source.file, text);
            let finding = Finding { line: Some(method.line), column: Some(method.column), ..finding };
            findings.push(finding.meaning(Some(near.to_owned())));
        }
    }
    findings
}

/// The finding about a method that cannot have the arguments that the server gives.
fn wrong_arguments(
    source: &PythonSource,
    told: &CompiledFile,
    method: &CompiledMethod,
    completes: bool,
) -> Option<Finding> {
    let (given, severity, what) = match method.name.as_str() {
        "__init__" => (0, Severity::Error, "without arguments"),
        "initialize" => (1, Severity::Error, "with the arguments of the model"),
        "auto_complete_config" if completes => (1, Severity::Error, "of the class, with the configuration"),
        // The model is served.
        "execute" => (1, Severity::Warning, "with the requests"),
        "finalize" => (0, Severity::Warning, "without arguments"),
        _ => return None,
    };
    let (least, most) = method.arguments.filter(|_| told.is_certain(&method.name))?;
    if (least..=most).contains(&given) {
        return None;
    }
    let text = format!("the server calls '{}' {what}, which the definition does not allow", method.name);
    let finding = Finding::new(severity, PYTHON_MODEL, &source.file, text);
    Some(Finding { line: Some(method.line), column: Some(method.column), ..finding })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    const CHECKS: SourceChecks = SourceChecks { completes: true, runs_own_interpreters: false };

    type ToldFindings = Vec<(&'static str, &'static str, Option<usize>)>;

    /// Severity, rule and line of the findings about each source.
    fn told_each(codes: &[&[u8]], interpreter: &str) -> Vec<ToldFindings> {
        let directory = tempfile::tempdir().expect("a directory");
        let source = |(number, code): (usize, &&[u8])| {
            let file = directory.path().join(format!("{number}.py"));
            fs::write(&file, code).expect("a file");
            // So NumPy is not looked for.
            let interpreter = Some(interpreter.to_owned());
            let source =
                PythonSource { file, interpreter, own_interpreter: None, server_makes_environment: true };
            (Name::new(&number.to_string()), source)
        };
        let sources: Vec<_> = codes.iter().enumerate().map(source).collect();
        let findings = check_sources(&sources, CHECKS);
        let of_source = |(name, _): &(Name, PythonSource)| {
            let own = findings.iter().filter(|finding| finding.model.as_deref() == Some(name));
            own.map(|finding| (finding.severity.as_str(), finding.rule.id, finding.line)).collect()
        };
        sources.iter().map(of_source).collect()
    }

    fn python(codes: &[&str]) -> Vec<ToldFindings> {
        let codes: Vec<_> = codes.iter().map(|code| code.as_bytes()).collect();
        told_each(&codes, "python3")
    }

    const EXECUTE: &str = "  def execute(self, requests): return []\n";

    #[test]
    fn source_code_is_compiled_and_not_run() {
        let codes = [
            format!("import os\nos.abort()\nclass TritonPythonModel:\n{EXECUTE}"),
            "class TritonPythonModel(:\n".to_owned(),
            "class TritonPytonModel: pass\n".to_owned(),
            format!("class TritonPythonModel:\n{EXECUTE}  def finalise(self): pass\n"),
        ];
        let wanted = [
            vec![],
            vec![("error", "python-syntax", Some(1))],
            vec![("error", "python-model", None)],
            vec![("warning", "python-model", Some(3))],
        ];
        assert_eq!(python(&codes.each_ref().map(String::as_str)), wanted);
        let latin = [b"# -*- coding: latin-1 -*-\nclass TritonPythonModel: # caf\xe9\n", EXECUTE.as_bytes()];
        assert_eq!(told_each(&[&latin.concat()], "python3"), [vec![]]);
    }

    #[test]
    fn what_only_running_the_code_tells_is_no_error() {
        let codes = [
            "from models import *\n",
            "from models import Mine as TritonPythonModel\n",
            "class TritonPythonModel(Base): pass\n",
            "class TritonPythonModel:\n  execute = lambda self, requests: []\n",
            "def run(self, requests): return []\nclass TritonPythonModel:\n  execute = run\n",
            "class TritonPythonModel: pass\nTritonPythonModel.execute = lambda self, requests: []\n",
            "class TritonPythonModel:\n  if True:\n    def execute(self, requests): return []\n",
            "if True:\n  class TritonPythonModel: pass\n",
            "def __getattr__(name): return type('T', (), {'execute': lambda self, requests: []})\n",
            "import sys\nsys.modules[__name__].TritonPythonModel = type('T', (), {})\n",
            "try:\n  pass\nexcept Exception as TritonPythonModel:\n  pass\n",
            "def TritonPythonModel(): pass\n",
            "class TritonPythonModel: pass\nTritonPythonModel = type('T', (), {})\n",
        ];
        for (code, told) in codes.iter().zip(python(&codes)) {
            assert_eq!(told, [], "{code}");
        }
        // The server loads such a model, and its requests fail.
        let without = "class TritonPythonModel: pass\n";
        assert_eq!(python(&[without]), [vec![("warning", "python-model", Some(1))]]);
    }

    #[test]
    fn methods_have_the_arguments_that_the_server_gives() {
        let methods = [
            ("def __init__(self, x): pass", "error"),
            ("def __init__(self, x=1): pass", ""),
            ("def __init__(self, *, x): pass", "error"),
            ("def initialize(self): pass", "error"),
            ("def initialize(*arguments): pass", ""),
            ("@staticmethod\n  def initialize(arguments): pass", ""),
            ("@other\n  def initialize(self): pass", ""),
            ("def auto_complete_config(self, config): return config", "error"),
            ("def auto_complete_config(config): return config", ""),
            ("@staticmethod\n  def auto_complete_config(): return 1", "error"),
            ("@staticmethod\n  def auto_complete_config(config): return config", ""),
            ("@classmethod\n  def auto_complete_config(cls, config): return config", ""),
            ("def finalize(self, x): pass", "warning"),
            ("def initialize(self): pass\n  initialize = run", ""),
            ("def execute(self): pass", "warning"),
        ];
        let code = |(method, _): (&str, &str)| {
            let execute = if method.starts_with("def execute") { "" } else { EXECUTE };
            format!("class TritonPythonModel:\n{execute}  {method}\n")
        };
        let codes = methods.map(code);
        let told = python(&codes.each_ref().map(String::as_str));
        for ((method, severity), told) in methods.into_iter().zip(told) {
            let told: Vec<_> = told.into_iter().map(|(severity, ..)| severity).collect();
            let wanted: Vec<_> = Some(severity).filter(|severity| !severity.is_empty()).into_iter().collect();
            assert_eq!(told, wanted, "{method}");
        }
    }

    #[test]
    fn an_interpreter_that_is_not_there_is_an_error_of_the_models_that_it_would_run() {
        assert_eq!(told_each(&[b"class ("], "/no/python"), [vec![("note", "python-environment", None)]]);
        // The server would run it with this interpreter.
        let source = PythonSource {
            file: "model.py".into(),
            interpreter: Some("/no/python".to_owned()),
            own_interpreter: None,
            server_makes_environment: false,
        };
        let findings = check_sources(&[(Name::new("m"), source)], CHECKS);
        assert_eq!((findings.len(), findings[0].severity), (1, Severity::Error));
        assert!(findings[0].text.contains("'/no/python' cannot be started"), "{}", findings[0].text);
    }

    #[test]
    fn a_module_that_the_interpreter_does_not_find_is_told_with_its_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let version = directory.path().join("m/1");
        fs::create_dir_all(version.join("parts")).expect("a directory");
        fs::write(version.join("beside.py"), "").expect("a file");
        let file = version.join("model.py");
        let told = |code: &str| {
            fs::write(&file, code).expect("a file");
            let interpreter = Some("python3".to_owned());
            let file = file.clone();
            let server_makes_environment = false;
            let source = PythonSource { file, interpreter, own_interpreter: None, server_makes_environment };
            let findings = check_sources(&[("m".into(), source)], CHECKS).into_iter();
            // Whether this Python has NumPy does not matter here.
            let mut findings = findings.filter(|finding| !finding.text.contains("numpy"));
            let told = findings.next().map(|finding| (finding.severity, finding.line, finding.text));
            assert_eq!(findings.next(), None);
            told
        };
        let class = format!("class TritonPythonModel:\n{EXECUTE}");
        let text = "'python3' has no module 'no_such_module', which the model imports".to_owned();
        for code in ["import os, no_such_module.part\n", "from no_such_module import x\n"] {
            assert_eq!(told(&format!("{code}{class}")), Some((Severity::Warning, Some(1), text.clone())));
        }
        for code in [
            "import beside, parts.x, json, triton_python_backend_utils as pb_utils\n",
            "try:\n  import no_such_module\nexcept ImportError:\n  pass\n",
            "if False:\n  import no_such_module\n",
            "import sys\nsys.path.append('/x')\nimport no_such_module\n",
            "def f():\n  import no_such_module\n",
        ] {
            assert_eq!(told(&format!("{code}{class}")), None, "{code}");
        }
    }

    /// A program that starts `python3` with this environment and without the packages of the system.
    fn interpreter(directory: &Path, variables: &str) -> String {
        let program = directory.join("python");
        fs::write(&program, format!("#!/bin/sh\n{variables} exec python3 -S -s \"$@\"\n")).expect("a file");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
        program.display().to_string()
    }

    #[test]
    fn an_interpreter_without_numpy_is_an_error_of_each_of_its_models() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("model.py");
        fs::write(&file, format!("class TritonPythonModel:\n{EXECUTE}")).expect("a file");
        let errors = |variables: &str, server_makes_environment: bool| {
            let interpreter = Some(interpreter(directory.path(), variables));
            let file = file.clone();
            let source = PythonSource { file, interpreter, own_interpreter: None, server_makes_environment };
            let sources = [("one".into(), source.clone()), ("two".into(), source)];
            check_sources(&sources, CHECKS)
        };
        let found = errors("PYTHONPATH=", false);
        let told: Vec<_> = found.iter().map(|finding| (finding.model.as_deref(), finding.rule.id)).collect();
        assert_eq!(told, [(Some("one"), "python-environment"), (Some("two"), "python-environment")]);
        assert!(found[0].text.starts_with("ModuleNotFoundError: No module named 'numpy' (interpreter "));
        assert_eq!(errors("PYTHONPATH=", true), []);
        fs::create_dir(directory.path().join("packages")).expect("a directory");
        fs::write(directory.path().join("packages/numpy.py"), "").expect("a file");
        assert_eq!(errors(&format!("PYTHONPATH={}/packages", directory.path().display()), false), []);
    }

    #[test]
    fn a_program_that_a_model_names_is_not_started_unless_asked_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("model.py");
        fs::write(&file, "class (").expect("a file");
        let started = directory.path().join("started");
        let own = interpreter(directory.path(), &format!("touch '{}';", started.display()));
        let source = PythonSource {
            file,
            interpreter: Some("python3".to_owned()),
            own_interpreter: Some(own.clone()),
            server_makes_environment: false,
        };
        let sources = [("m".into(), source)];
        let [finding] = &check_sources(&sources, CHECKS)[..] else { panic!("the file is compiled") };
        let told = format!(" (the model's own interpreter '{own}' was not started)");
        assert!(finding.severity == Severity::Warning && finding.text.ends_with(&told), "{}", finding.text);
        assert!(!started.exists());
        let found = check_sources(&sources, SourceChecks { runs_own_interpreters: true, ..CHECKS });
        assert!(started.exists() && found.iter().any(|finding| finding.severity == Severity::Error));
    }

    #[test]
    fn no_module_beside_the_checker_is_imported() {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join("where");
        fs::write(&program, "#!/bin/sh\npwd >&2; pwd\n").expect("a file");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
        let told = crate::interpreter::without_numpy(&program.display().to_string());
        assert_eq!(told, Ok(Some("/\n".to_owned())));
    }
}
