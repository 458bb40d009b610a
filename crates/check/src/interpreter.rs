//! Runs the interpreters of models in Python, under a limit of time and of bytes.
//!
//! They run in a directory that no repository has, and import nothing from where they run.
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fmt,
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf, absolute},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde::Deserialize;

/// Compiles files, and tells their names.
const COMPILING: &str = include_str!("python.py");

/// Imports NumPy.
const IMPORTING: &str = include_str!("numpy.py");

/// Looks for modules.
const LOOKING: &str = include_str!("modules.py");

/// How long an interpreter may take for all its files.
const LONGEST: Duration = Duration::from_secs(60);

/// The most bytes of an interpreter's answer.
const MOST_BYTES: u64 = 256 << 20;

/// What an interpreter tells of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CompiledFile {
    pub(crate) error: Option<String>,
    pub(crate) at: (Option<usize>, Option<usize>),
    /// Code may make names that are not in the source.
    pub(crate) dynamic: bool,
    /// All names that the code may bind, in any scope.
    pub(crate) names: Vec<String>,
    /// Attributes that the code sets or deletes.
    pub(crate) attributes: Vec<String>,
    /// The modules that running the file surely imports, without their submodules, each with its line.
    pub(crate) imports: Vec<(String, usize)>,
    /// The line of the class, if there is one such class, in the module itself.
    pub(crate) line: Option<usize>,
    /// The class has base classes, or decorators.
    pub(crate) derived: bool,
    /// The functions in the body of the class.
    pub(crate) methods: Vec<CompiledMethod>,
    /// All names that the body of the class may bind.
    pub(crate) members: Vec<String>,
}

/// A function in the body of the class.
#[derive(Debug, Deserialize)]
pub(crate) struct CompiledMethod {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// The smallest and the largest number of arguments that a caller may give; `None` if the source does not tell.
    pub(crate) arguments: Option<(i64, i64)>,
}

impl CompiledFile {
    /// Whether the method of the class is the one of this definition, and no other.
    pub(crate) fn is_certain(&self, method: &str) -> bool {
        let named = |names: &[String]| names.iter().filter(|name| *name == method).count();
        named(&self.members) <= 1 && named(&self.attributes) == 0
    }
}

/// Why an interpreter tells nothing, as the end of a sentence about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InterpreterFailure {
    /// It does not start, here as in a server.
    Missing(String),
    /// It has not answered as it should.
    Silent(String),
}

impl fmt::Display for InterpreterFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(text) | Self::Silent(text) => out.write_str(text),
        }
    }
}

impl From<String> for InterpreterFailure {
    fn from(text: String) -> Self {
        Self::Silent(text)
    }
}

/// What an interpreter tells of the source code in files, which it does not run.
///
/// # Errors
/// Why it tells nothing.
pub(crate) fn compiled(interpreter: &str, files: &[&Path]) -> Result<Vec<CompiledFile>, InterpreterFailure> {
    let files: Vec<_> = files.iter().map(|file| absolute(file).unwrap_or_else(|_| file.into())).collect();
    let names: Vec<_> = files.iter().map(|file| file.as_os_str().as_bytes()).collect();
    let answer = answer(interpreter, ["-I", "-S", "-c", COMPILING].map(OsStr::new), names.join(&b'\0'))?;
    let told: Vec<CompiledFile> =
        serde_json::from_slice(&answer).map_err(|error| format!("gave no answer: {error}"))?;
    if told.len() == files.len() {
        Ok(told)
    } else {
        Err(InterpreterFailure::Silent("did not answer for each file".to_owned()))
    }
}

/// The error of importing NumPy, in the words of a worker. `None` if the interpreter has NumPy.
///
/// # Errors
/// Why it tells nothing.
pub(crate) fn without_numpy(interpreter: &str) -> Result<Option<String>, InterpreterFailure> {
    let answer = answer(interpreter, ["-c", IMPORTING].map(OsStr::new), Vec::new())?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Which of these modules the interpreter does not find. Imports none of them.
///
/// # Errors
/// Why it tells nothing.
pub(crate) fn absent_modules(
    interpreter: &str,
    names: &BTreeSet<&str>,
) -> Result<BTreeSet<String>, InterpreterFailure> {
    let names: Vec<_> = names.iter().map(|name| name.as_bytes()).collect();
    let answer = answer(interpreter, ["-c", LOOKING].map(OsStr::new), names.join(&b'\0'))?;
    serde_json::from_slice(&answer).map_err(|error| format!("gave no answer: {error}").into())
}

/// What an interpreter writes that reads `input`.
fn answer<'a>(
    interpreter: &str,
    arguments: impl IntoIterator<Item = &'a OsStr>,
    input: Vec<u8>,
) -> Result<Vec<u8>, InterpreterFailure> {
    let mut child = Command::new(program(interpreter))
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| InterpreterFailure::Missing(format!("cannot be started: {error}")))?;
    let answer = exchange(&mut child, input);
    // The process has ended, or it takes too long.
    let _ = child.kill();
    let _ = child.wait();
    answer.map_err(InterpreterFailure::Silent)
}

/// The path of a program, which may be relative to the directory of this process. A name without a directory is one in `PATH`.
fn program(interpreter: &str) -> PathBuf {
    let path = Path::new(interpreter);
    if interpreter.contains('/') { absolute(path).unwrap_or_else(|_| path.into()) } else { path.into() }
}

/// Writes to the process, and reads what it says until it ends.
fn exchange(child: &mut Child, input: Vec<u8>) -> Result<Vec<u8>, String> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else { return Err("has no pipes".to_owned()) };
    let (sender, receiver) = mpsc::sync_channel(1);
    // The threads end with the process, which the caller ends.
    thread::spawn(move || stdin.write_all(&input));
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
