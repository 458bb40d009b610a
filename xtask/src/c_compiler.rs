//! The C compiler: it makes the plug-ins of the tests, and programs that use the C interfaces.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::{files, process, workspace};

/// The compiler options for the sanitizers of addresses, leaks and undefined behaviour.
pub(crate) const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"];

/// `CC`, or `cc`.
pub(crate) fn compiler() -> String {
    std::env::var("CC").unwrap_or_else(|_| "cc".into())
}

/// Whether the compiler can make a program with its sanitizers.
pub(crate) fn has_sanitizers() -> bool {
    let mut command = Command::new(compiler());
    command.args(SANITIZERS).args(["-shared", "-o", "/dev/null", "-x", "c", "/dev/null"]);
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Compiles a C plug-in of the tests.
pub(crate) fn compile_plugin(source: &str, library: &Path, flags: &[&str]) -> Result<()> {
    files::make_folder(library.parent().context("a library lies in a directory")?)?;
    let source = workspace::root().join("crates/c-api/tests/plugins").join(source).with_extension("c");
    process::run(compile(&source, library).args(["-shared", "-fPIC", "-fvisibility=hidden"]).args(flags))
}

/// Compiles a program in C. What the compiler has to do more is added to the command.
pub(crate) fn compile(source: &Path, target: &Path) -> Command {
    let mut command = Command::new(compiler());
    command.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]);
    command.arg(workspace::root().join("include")).arg(source).arg("-o").arg(target);
    command
}
