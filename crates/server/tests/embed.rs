//! The example of a server inside a C program does what it says.
use std::{fs, path::Path, process::Command};

use testing::plugins::{Kind, Plugin, build_program, library_beside, root};

const PROGRAM: &str = env!("CARGO_BIN_EXE_nereid");

#[test]
fn a_c_program_serves_a_model_in_its_own_process() {
    let Some(library) = library_beside(Path::new(PROGRAM)) else { return };
    let directory = tempfile::tempdir().unwrap();
    let backends = directory.path().join("backends");
    fs::create_dir_all(backends.join("identity")).unwrap();
    Plugin::new(Kind::Backend, "identity").build(&backends.join("identity")).unwrap();

    let example = root().join("examples/embed");
    let program = directory.path().join("embed");
    build_program(&example.join("embed.c"), library.parent().unwrap(), &program).unwrap();
    let output = Command::new(program).arg(example.join("models")).arg(&backends).output().unwrap();

    let (said, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{log}");
    assert!(said.contains("response of identity, version 1\nOUTPUT0 INT32: 3 1 4\n"), "{said}{log}");
}
