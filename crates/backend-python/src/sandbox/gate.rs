//! The shell that stands before the interpreter: it sets limits, and waits until the server lets it go on.
use std::{
    path::Path,
    process::{Command, ExitStatus},
};

use rustix::process::{Resource, getrlimit};

use super::settings::SandboxSettings;

/// The gate. Shells name the limit on processes differently. What follows the limits is the command.
const GATE: &str = "ulimit -c 0 && ulimit -n \"$1\" && { ulimit -u \"$2\" 2>/dev/null || ulimit -p \"$2\"; } && \
                    { [ \"$3\" = - ] || ulimit -d \"$3\"; } || exit 125\nshift 3\nread -r line || exit 125\nexec \"$@\"";

/// The line that the gate waits for, on the worker's socket.
pub(crate) const OPEN_GATE: &[u8] = b"\n";

/// The command behind the gate, with the folder for its files.
pub(super) fn gated(settings: &SandboxSettings, command: &Command, scratch: &Path) -> Command {
    let most =
        |resource: Resource, wanted: u64| getrlimit(resource).maximum.map_or(wanted, |most| most.min(wanted));
    let memory = settings.memory_bytes.map(|bytes| (most(Resource::Data, bytes) >> 10).max(1).to_string());
    let mut gated = Command::new("/bin/sh");
    gated.args(["-c", GATE, "sh"]);
    gated.arg(most(Resource::Nofile, settings.open_files).to_string());
    gated.arg(most(Resource::Nproc, settings.processes).to_string());
    gated.arg(memory.as_deref().unwrap_or("-"));
    gated.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => gated.env(name, value),
            None => gated.env_remove(name),
        };
    }
    gated.env("TMPDIR", scratch).env("HOME", scratch);
    gated
}

/// What a process that ended before it was an interpreter tells by its status.
pub(crate) fn gate_failure(status: Option<ExitStatus>) -> Option<&'static str> {
    match status?.code()? {
        125 => Some("its limits cannot be set"),
        126 => Some("the user of the sandbox may not run it"),
        127 => Some("it is not there, or the user of the sandbox may not reach it"),
        _ => None,
    }
}
