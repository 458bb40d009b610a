//! Conversations with the C program `shell.c`, and the directories of its server.
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout, Stdio},
};

use tempfile::TempDir;
use testing::{
    TestProcess, command,
    plugins::{Kind, Plugin, build_program, library_beside, root},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_nereid");

/// The answer to a command that succeeds and says no more.
pub(crate) const OK: &str = "ok";

/// `TRITONSERVER_MODEL_CONTROL_POLL`.
pub(crate) const POLL: &str = "mode=1";
/// `TRITONSERVER_MODEL_CONTROL_EXPLICIT`.
pub(crate) const EXPLICIT: &str = "mode=2";

/// A configuration without its end: OUTPUT0 = INPUT0.
const CONFIG: &str = "backend: 'identity' max_batch_size: 8
    input { name: 'INPUT0' data_type: TYPE_INT32 dims: [ 1 ] }
    output { name: 'OUTPUT0' data_type: TYPE_INT32 dims: [ 1 ] label_filename: 'labels.txt' }\n";

/// The same for a load request, with another batch size.
pub(crate) const JSON: &str = r#"{"backend":"identity","max_batch_size":3,"input":[{"name":"INPUT0","data_type":"TYPE_INT32","dims":[1]}],"output":[{"name":"OUTPUT0","data_type":"TYPE_INT32","dims":[1],"label_filename":"labels.txt"}]}"#;

/// A directory with repositories, plug-ins and a gate.
pub(crate) struct Place {
    directory: TempDir,
    library: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let library = library_beside(Path::new(PROGRAM));
        let directory = tempfile::tempdir().unwrap();
        let plugins = [
            (Kind::Backend, "backends", "identity"),
            (Kind::Backend, "backends", "failing"),
            (Kind::Cache, "caches", "cache"),
            (Kind::RepoAgent, "agents", "agent"),
        ];
        for (kind, place, source) in plugins {
            let plugin = directory.path().join(place).join(source);
            fs::create_dir_all(&plugin).unwrap();
            Plugin::new(kind, source).build(&plugin).unwrap();
        }
        for name in ["models", "gate"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory, library }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The library.
    pub(crate) fn library(&self) -> &Path {
        &self.library
    }

    /// Compiles a program of this directory. It is not linked with the library if `flags` says so.
    pub(crate) fn program(&self, name: &str, flags: &[&str]) -> PathBuf {
        let program = self.path(name);
        let source = root().join("crates/server/tests/server/library").join(format!("{name}.c"));
        build_program(&source, self.library.parent().unwrap(), &program, flags).unwrap();
        program
    }

    /// Adds a model to the repository `models`, with this label.
    pub(crate) fn model(&self, name: &str, label: &str, more: &str) {
        self.model_in("models", name, label, more);
    }

    /// Adds a model to a repository. `more` is added to its configuration.
    pub(crate) fn model_in(&self, repository: &str, name: &str, label: &str, more: &str) {
        let directory = self.path(repository).join(name);
        fs::create_dir_all(directory.join("1")).unwrap();
        fs::write(directory.join("labels.txt"), label).unwrap();
        fs::write(directory.join("config.pbtxt"), format!("{CONFIG}{more}")).unwrap();
    }

    /// The part of a configuration that makes the load of a model wait for [`Place::release`].
    pub(crate) fn held(&self, hold: usize) -> String {
        let parameter = |key: &str, value: &str| {
            format!("parameters {{ key: '{key}' value {{ string_value: '{value}' }} }}\n")
        };
        let gate = self.path("gate");
        parameter("gate", gate.to_str().unwrap()) + &parameter("load_hold", &hold.to_string())
    }

    /// Whether a load has begun to wait.
    pub(crate) fn is_waiting(&self, hold: usize) -> bool {
        self.path("gate").join(format!("{hold}.running")).exists()
    }

    pub(crate) fn release(&self, hold: usize) {
        fs::write(self.path("gate").join(hold.to_string()), "").unwrap();
    }

    /// Starts the program.
    pub(crate) fn shell(&self) -> Shell {
        let program = self.program("shell", &["-rdynamic"]);
        let mut command = command(program);
        let mut child = TestProcess::start(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Shell { child, input, output: BufReader::new(output) }
    }

    /// Starts the program, and in it a server of the repository `models` with these settings.
    pub(crate) fn server(&self, settings: &[&str]) -> Shell {
        let mut shell = self.shell();
        assert_eq!(shell.new_server(self, settings), OK);
        shell
    }
}

/// The program, which obeys commands. It ends with this value.
pub(crate) struct Shell {
    child: TestProcess,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    pub(crate) fn send(&mut self, words: &[&str]) {
        writeln!(self.input, "{}", words.join("\t")).unwrap();
    }

    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the program has ended after '{line}'");
        line.trim_end_matches('\n').to_owned()
    }

    pub(crate) fn ask(&mut self, words: &[&str]) -> String {
        self.send(words);
        self.answer()
    }

    pub(crate) fn new_server(&mut self, place: &Place, settings: &[&str]) -> String {
        let repository = format!("repository={}", place.path("models").display());
        let backends = format!("backends={}", place.path("backends").display());
        self.ask(&[&["new", &repository, &backends], settings].concat())
    }

    /// Whether a load that `begin-load` has begun still waits in the library.
    pub(crate) fn has_loaders(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        tasks
            .flatten()
            .any(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "loader\n"))
    }

    /// The models that are ready, by name and version.
    pub(crate) fn ready(&mut self) -> Vec<String> {
        let answer = self.ask(&["index", "1"]);
        let index: serde_json::Value = serde_json::from_str(answer.strip_prefix("ok ").unwrap()).unwrap();
        let line = |line: &serde_json::Value| {
            format!("{} {}", line["name"].as_str().unwrap(), line["version"].as_str().unwrap())
        };
        index.as_array().unwrap().iter().map(line).collect()
    }

    /// The number of threads that were started and not joined so far, and the number that the kernel shows.
    pub(crate) fn threads(&mut self) -> (usize, usize) {
        let answer = self.ask(&["threads"]);
        let numbers: Vec<usize> = answer.split(' ').skip(1).map(|number| number.parse().unwrap()).collect();
        let [started, joined, tasks] = numbers[..] else { panic!("{answer}") };
        (started - joined, tasks)
    }
}
