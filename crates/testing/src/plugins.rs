//! Tools for tests of the C interfaces: compile C plug-ins and programs against Nereid's header, and list the
//! functions.
use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Compiler flags that turn all warnings into errors.
const STRICT: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

/// The kind of a plug-in, which determines the name of its library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Runs models: `libtriton_<name>.so`.
    Backend,
    /// Keeps responses: `libtritoncache_<name>.so`.
    Cache,
    /// Manages the files of models: `libtritonrepoagent_<name>.so`.
    RepoAgent,
    /// Decides which requests share a batch: `batchstrategy.so`, whatever its name.
    BatchStrategy,
}

impl Kind {
    /// The file name of a library of this kind.
    pub fn library(self, name: &str) -> String {
        match self {
            Self::Backend => format!("libtriton_{name}.so"),
            Self::Cache => format!("libtritoncache_{name}.so"),
            Self::RepoAgent => format!("libtritonrepoagent_{name}.so"),
            Self::BatchStrategy => "batchstrategy.so".to_owned(),
        }
    }
}

/// A test plug-in: one C file of `crates/c-api/tests/plugins`.
#[derive(Debug, Clone)]
pub struct Plugin<'a> {
    source: &'a str,
    kind: Kind,
    name: &'a str,
    flags: Vec<&'a str>,
}

impl<'a> Plugin<'a> {
    /// The file `<source>.c`, with the name of its source.
    pub fn new(kind: Kind, source: &'a str) -> Self {
        Self { source, kind, name: source, flags: Vec::new() }
    }

    /// Sets another name.
    pub fn named(self, name: &'a str) -> Self {
        Self { name, ..self }
    }

    /// Adds flags for the compiler, such as `-fsanitize=address`.
    pub fn with_flags(mut self, flags: &[&'a str]) -> Self {
        self.flags.extend(flags);
        self
    }

    /// Compiles the plug-in into a directory. Returns the path of the library.
    ///
    /// # Errors
    /// The compiler is missing or reports errors. The error then contains the compiler's messages.
    pub fn build(&self, directory: &Path) -> io::Result<PathBuf> {
        let library = directory.join(self.kind.library(self.name));
        let mut command = compiler();
        // The usual flags of plug-ins: the library exports only the functions that the header marks.
        command.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden"]);
        command.args(&self.flags).arg(sources().join(format!("{}.c", self.source)));
        command.arg("-o").arg(&library).arg("-pthread");
        run(command).map(|()| library)
    }
}

/// The path of `libtritonserver.so` that was built with a program of the workspace.
///
/// # Panics
/// It was not built: tests of one package do not build the library, `cargo xtask test` does.
pub fn library_beside(program: &Path) -> PathBuf {
    let library = program.with_file_name("libtritonserver.so");
    assert!(
        library.is_file(),
        "this test needs {}: 'cargo build --package libtritonserver' makes it, and so does 'cargo xtask test'",
        library.display()
    );
    library
}

/// Compiles a C program against Nereid's header and links it with `libtritonserver.so` of a directory, where the
/// program also finds it when it runs. With more flags, such as `-shared` for a program that is a library.
///
/// # Errors
/// As for [`Plugin::build`].
pub fn build_program(
    source: &Path,
    library_directory: &Path,
    program: &Path,
    flags: &[&str],
) -> io::Result<()> {
    let mut command = compiler();
    let mut search = OsString::from("-Wl,-rpath,");
    search.push(library_directory);
    command.args(["-std=c11", "-D_GNU_SOURCE", "-g"]).args(flags).arg(source).arg("-o").arg(program);
    command.arg("-L").arg(library_directory).arg("-ltritonserver").arg("-pthread").arg(search);
    run(command)
}

/// Checks that a source is correct in a language such as `c` or `c++` and a standard such as `c99`.
///
/// # Errors
/// As for [`Plugin::build`].
pub fn check_syntax(source: &Path, language: &str, standard: &str) -> io::Result<()> {
    let mut command = compiler();
    command.args(["-x", language, &format!("-std={standard}"), "-pedantic", "-fsyntax-only"]).arg(source);
    run(command)
}

/// The functions of one side, `server` or `plugin`, that `crates/c-api/abi/functions.txt` lists; sorted.
///
/// # Panics
/// The list is missing.
pub fn functions(side: &str) -> Vec<String> {
    let list = root().join("crates/c-api/abi/functions.txt");
    let list = fs::read_to_string(list).expect("the list of functions lies in the repository");
    let statements = list.lines().filter_map(|line| line.strip_prefix(side)?.strip_prefix(' '));
    let names = statements.filter_map(|statement| statement.split_once('(')?.0.split(' ').next_back());
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort();
    names
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources() -> PathBuf {
    root().join("crates/c-api/tests/plugins")
}

/// `CC`, or `cc`.
fn compiler() -> Command {
    let mut command = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(STRICT).arg("-I").arg(root().join("include"));
    command
}

fn run(mut command: Command) -> io::Result<()> {
    let Output { status, stderr, .. } = command.output().map_err(|error| {
        let name = command.get_program().to_string_lossy();
        io::Error::new(
            error.kind(),
            format!("tests of the C interfaces need a C compiler, and '{name}' cannot be run ({error}); CC names it"),
        )
    })?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the C compiler ended with {status}:\n{}",
        String::from_utf8_lossy(&stderr)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf;

    /// Kind, source, and the number of entries that it defines.
    const ALL: [(Kind, &str); 12] = [
        (Kind::Backend, "identity"),
        (Kind::Backend, "repeat"),
        (Kind::Backend, "failing"),
        (Kind::Backend, "stateful"),
        (Kind::Backend, "iterate"),
        (Kind::Backend, "config"),
        (Kind::Backend, "holding"),
        (Kind::Backend, "tracing"),
        (Kind::Cache, "cache"),
        (Kind::RepoAgent, "agent"),
        (Kind::BatchStrategy, "single_batch"),
        (Kind::BatchStrategy, "volume_batch"),
    ];

    #[test]
    fn every_plug_in_compiles_and_defines_and_needs_only_functions_of_its_side() {
        for (kind, source) in ALL {
            let directory = tempfile::tempdir().unwrap();
            let library = Plugin::new(kind, source).build(directory.path()).unwrap();
            let symbols = elf::Symbols::read(&library).unwrap();
            let (entries, functions) = (functions("plugin"), functions("server"));
            let strange =
                |names: &[String], known: &[String]| names.iter().find(|name| !known.contains(name)).cloned();
            assert_eq!(strange(&symbols.defined, &entries), None, "{source} defines it");
            assert_eq!(strange(&symbols.undefined, &functions), None, "{source} needs it");
            assert!(!symbols.defined.is_empty(), "{source} defines nothing");
        }
    }

    #[test]
    fn the_list_of_functions_has_both_sides() {
        let (server, plugin) = (functions("server"), functions("plugin"));
        assert_eq!((server.len(), plugin.len()), (284, 23));
        assert!(server.contains(&"TRITONCACHE_CacheEntryNew".to_owned()));
        assert!(plugin.contains(&"TRITONBACKEND_ModelInstanceExecute".to_owned()));
    }

    #[test]
    fn a_library_may_be_called_otherwise_and_compiled_with_more_flags() {
        let directory = tempfile::tempdir().unwrap();
        let plugin = Plugin::new(Kind::Cache, "cache").named("other");
        assert_eq!(plugin.build(directory.path()).unwrap(), directory.path().join("libtritoncache_other.so"));
        let error = plugin.with_flags(&["-fno-such-flag"]).build(directory.path()).unwrap_err().to_string();
        assert!(error.contains("no-such-flag"), "{error}");
    }

    #[test]
    fn what_the_compiler_does_not_like_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("x.c");
        fs::write(&source, "int f(void) { return no_such_thing; }\n").unwrap();
        let error = check_syntax(&source, "c", "c99").unwrap_err().to_string();
        assert!(error.contains("no_such_thing"), "{error}");
    }
}
