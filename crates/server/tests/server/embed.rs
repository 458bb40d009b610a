//! The example of a server inside a C program behaves as documented, however the program loads the library.
use std::{
    fs,
    path::{Path, PathBuf},
};

use testing::plugins::{Kind, Plugin, build_program, library_beside, root};

const PROGRAM: &str = env!("CARGO_BIN_EXE_nereid");

/// A program that loads the given library with local symbols, and runs the program in it.
const SHELL: &str = "
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
  void *library = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
  int (*program)(int, char **) = library == NULL ? NULL : (int (*)(int, char **))dlsym(library, \"main\");
  if (program == NULL) {
    fprintf(stderr, \"%s\\n\", dlerror());
    return 1;
  }
  return program(argc - 1, argv);
}
";

/// A directory with the backend of the example.
fn backends(directory: &Path, flags: &[&str]) -> PathBuf {
    let backends = directory.join("backends");
    fs::create_dir_all(backends.join("identity")).unwrap();
    Plugin::new(Kind::Backend, "identity").with_flags(flags).build(&backends.join("identity")).unwrap();
    backends
}

/// Runs the example and checks its output.
fn run(program: &Path, backends: &Path, more: &[&Path]) {
    let models = root().join("examples/embed/models");
    let output = testing::command(program).arg(models).arg(backends).args(more).output().unwrap();
    let (said, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{log}");
    assert!(said.contains("response of identity, version 1\nOUTPUT0 INT32: 3 1 4\n"), "{said}{log}");
}

#[test]
fn a_c_program_serves_a_model_in_its_own_process() {
    let library = library_beside(Path::new(PROGRAM));
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("embed");
    let source = root().join("examples/embed/embed.c");
    build_program(&source, library.parent().unwrap(), &program, &[]).unwrap();
    run(&program, &backends(directory.path(), &[]), &[]);
}

/// Runs the example in a process where only the example sees the library's symbols. The backend is compiled with these
/// flags.
fn run_alone(library: &Path, flags: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let (example, shell) = (directory.path().join("libembed.so"), directory.path().join("shell"));
    let source = root().join("examples/embed/embed.c");
    let own = library.parent().unwrap();
    build_program(&source, own, &example, &["-shared", "-fPIC"]).unwrap();
    fs::write(shell.with_extension("c"), SHELL).unwrap();
    build_program(&shell.with_extension("c"), own, &shell, &["-Wl,--as-needed"]).unwrap();
    run(&shell, &backends(directory.path(), flags), &[&example]);
}

#[test]
fn a_program_may_open_the_library_for_itself_alone() {
    let library = library_beside(Path::new(PROGRAM));
    run_alone(&library, &[]);
}

#[test]
fn a_backend_that_names_the_library_finds_one_that_was_opened_for_the_program_alone() {
    let library = library_beside(Path::new(PROGRAM));
    let search = format!("-L{}", library.parent().unwrap().display());
    run_alone(&library, &[&search, "-Wl,--no-as-needed", "-ltritonserver"]);
}
