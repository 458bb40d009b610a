//! What the program and the library export: every function that Triton's interfaces give to plug-ins and programs, and
//! no other name of theirs. A plug-in is opened with all its symbols bound at once, so one missing name keeps it out;
//! an entry of plug-ins that we exported would be found instead of theirs.
use std::path::Path;

use testing::{
    elf::Symbols,
    plugins::{functions, library_beside},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_nereid");

/// Names that only one of the lists has, marked with `+` if exported and `-` if missing.
fn differences(exported: &[String]) -> Vec<String> {
    let expected = functions("server");
    let extra = exported.iter().filter(|name| !expected.contains(name)).map(|name| format!("+{name}"));
    let missing = expected.iter().filter(|name| !exported.contains(name)).map(|name| format!("-{name}"));
    extra.chain(missing).collect()
}

#[test]
fn the_program_exports_what_plug_ins_need() {
    let symbols = Symbols::read(Path::new(PROGRAM)).unwrap();
    assert_eq!(differences(&symbols.defined), Vec::<String>::new());
}

#[test]
fn the_library_exports_what_plug_ins_and_programs_need() {
    let Some(library) = library_beside(Path::new(PROGRAM)) else { return };
    let symbols = Symbols::read(&library).unwrap();
    assert_eq!(symbols.soname.as_deref(), Some("libtritonserver.so"));
    assert_eq!(differences(&symbols.defined), Vec::<String>::new());
}
