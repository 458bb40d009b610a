//! The names of the program: the packages install it under several.

use std::ffi::OsStr;
use std::path::Path;

/// The name that the program was started by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramName {
    /// `nereid`, and each name that is none of the others.
    Nereid,
    /// `tritonserver`: the same program under the name that scripts and manifests for Triton have.
    TritonServer,
    /// `serve`: SageMaker starts containers by this name, and gives options as variables.
    Serve,
    /// `nereid-entrypoint`: the entry point of the container image.
    EntryPoint,
}

impl ProgramName {
    /// `program` is the first word of a command line, a name or a path.
    pub fn of(program: &OsStr) -> Self {
        match Path::new(program).file_name().and_then(OsStr::to_str) {
            Some("tritonserver") => Self::TritonServer,
            Some("serve") => Self::Serve,
            Some("nereid-entrypoint") => Self::EntryPoint,
            Some(_) | None => Self::Nereid,
        }
    }

    /// Gives the process the name that tools look for where Triton runs, such as `pgrep tritonserver`. Call it on the main
    /// thread. A process that was started as `nereid` keeps its name.
    pub fn name_process(self) {
        match self {
            Self::Nereid => {}
            Self::TritonServer | Self::Serve | Self::EntryPoint => {
                // A sandbox may refuse it. The server works under any name.
                let _ = rustix::thread::set_name(c"tritonserver");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_the_name_of_its_file() {
        for (program, name) in [
            ("nereid", ProgramName::Nereid),
            ("/usr/bin/nereid", ProgramName::Nereid),
            ("/opt/tritonserver/bin/tritonserver", ProgramName::TritonServer),
            ("serve", ProgramName::Serve),
            ("/usr/bin/nereid-entrypoint", ProgramName::EntryPoint),
            ("", ProgramName::Nereid),
        ] {
            assert_eq!(ProgramName::of(OsStr::new(program)), name, "{program}");
        }
    }
}
