//! The exported symbols of the program and of the library: every function that Triton's interfaces offer to plug-ins
//! and programs, and no other name of these interfaces. The loader binds all symbols of a plug-in at once, so one
//! missing name prevents its loading. If the program exported an entry point of plug-ins, the loader would find it
//! instead of the plug-in's own.
use std::path::Path;

use testing::{
    elf::Symbols,
    plugins::{functions, library_beside},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_nereid");

/// Names that only one list contains: `+` marks an exported name, `-` a missing one.
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
    let library = library_beside(Path::new(PROGRAM));
    let symbols = Symbols::read(&library).unwrap();
    assert_eq!(symbols.soname.as_deref(), Some("libtritonserver.so"));
    assert_eq!(differences(&symbols.defined), Vec::<String>::new());
}
