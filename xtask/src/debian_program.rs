//! Programs that tests use: those of the system, or those of Debian's packages.
//!
//! A machine that has neither skips the tests that need them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::{debian, process, workspace};

/// All of them.
pub(crate) const ALL: [DebianProgram; 5] = [
    // The store of the response cache `redis`.
    DebianProgram {
        name: "redis-server",
        package: "redis-server",
        variable: "NEREID_TEST_REDIS_SERVER",
        path: "usr/bin/redis-server",
    },
    // It checks the text of metrics.
    DebianProgram {
        name: "promtool",
        package: "prometheus",
        variable: "NEREID_TEST_PROMTOOL",
        path: "usr/bin/promtool",
    },
    // Shells whose completions are tested.
    DebianProgram { name: "zsh", package: "zsh", variable: "NEREID_TEST_ZSH", path: "bin/zsh" },
    DebianProgram { name: "fish", package: "fish", variable: "NEREID_TEST_FISH", path: "usr/bin/fish" },
    // A browser without a window.
    DebianProgram {
        name: "chromium-headless-shell",
        package: "chromium-headless-shell",
        variable: "NEREID_TEST_BROWSER",
        path: "usr/lib/chromium/chromium-headless-shell",
    },
];

/// A program of a package.
pub(crate) struct DebianProgram {
    /// The name of the program.
    pub(crate) name: &'static str,
    package: &'static str,
    /// The environment variable that tells the tests where the program is.
    pub(crate) variable: &'static str,
    /// Where the package has the program.
    path: &'static str,
}

impl DebianProgram {
    /// Downloads the program unless it is there, and returns it.
    ///
    /// # Errors
    /// The system has no `apt-get`, or the package cannot be downloaded.
    pub(crate) fn fetch(&self) -> Result<PathBuf> {
        let name = self.name;
        let installed =
            Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if installed.is_ok_and(|status| status.success()) {
            return Ok(name.into());
        }
        let folder = workspace::target().join(name);
        let program = folder.join(name);
        if !folder.exists() {
            let unfinished = folder.with_added_extension("part");
            debian::unpack_with_dependencies(self.package, &unfinished)?;
            ensure!(unfinished.join(self.path).exists(), "the package has no program {}", self.path);
            let script = unfinished.join(name);
            fs::write(&script, self.script())?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
            fs::rename(&unfinished, &folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        process::run(Command::new(&program).arg("--version"))?;
        Ok(program)
    }

    /// Starts the unpacked program with the unpacked libraries, in the same process.
    fn script(&self) -> String {
        format!(
            r#"#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
for libraries in "$here"/usr/lib/*-linux-gnu* "$here"/usr/lib/*-linux-gnu*/pulseaudio; do
    LD_LIBRARY_PATH="$libraries${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
done
export LD_LIBRARY_PATH
exec "$here/{}" "$@"
"#,
            self.path
        )
    }
}
