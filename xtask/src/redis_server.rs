//! Redis, the store of the response cache of that name: the program of the system, or that of Debian's package.
//!
//! A machine that has neither skips the tests that need it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::{debian, process, workspace};

/// The environment variable that tells the tests where the program is.
pub(crate) const VARIABLE: &str = "NEREID_TEST_REDIS_SERVER";

const PROGRAM: &str = "redis-server";

/// Starts the unpacked program with the unpacked libraries, in the same process.
const SCRIPT: &str = r#"#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
for libraries in "$here"/usr/lib/*-linux-gnu*; do
    LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
done
export LD_LIBRARY_PATH
exec "$here/usr/bin/redis-server" "$@"
"#;

/// Downloads the program unless it is there, and returns it.
///
/// # Errors
/// The system has no `apt-get`, or the package cannot be downloaded.
pub(crate) fn fetch() -> Result<PathBuf> {
    let installed =
        Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if installed.is_ok_and(|status| status.success()) {
        return Ok(PROGRAM.into());
    }
    let folder = workspace::target().join(PROGRAM);
    let program = folder.join(PROGRAM);
    if !folder.exists() {
        let unfinished = folder.with_added_extension("part");
        debian::unpack_with_dependencies(PROGRAM, &unfinished)?;
        ensure!(unfinished.join("usr/bin").join(PROGRAM).exists(), "the package has no program {PROGRAM}");
        let script = unfinished.join(PROGRAM);
        fs::write(&script, SCRIPT)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        fs::rename(&unfinished, &folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    process::run(Command::new(&program).arg("--version"))?;
    Ok(program)
}
