//! Processes that end with the test that starts them, whatever the test does.
use std::{
    ffi::OsStr,
    io,
    ops::{Deref, DerefMut},
    process::{Child, Command},
};

/// A command whose process does not outlive the thread that starts it: the kernel then kills the process, also if the
/// thread ends because somebody kills the test. So the thread of the test itself must start it.
///
/// `setpriv` (util-linux) asks the kernel for this, and then becomes the program, with the same process id.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// A running process. Drop kills it and waits for its end.
#[derive(Debug)]
pub struct TestProcess(Child);

impl TestProcess {
    /// Starts a command that [`command`] has made.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self)
    }
}

impl Deref for TestProcess {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for TestProcess {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, process::Stdio, thread};

    use super::*;
    use crate::eventually;

    /// A process that would run for ever, with its name once it is the program.
    fn endless() -> TestProcess {
        let process = TestProcess::start(command("sleep").arg("infinity").stdin(Stdio::null())).unwrap();
        let name = format!("/proc/{}/comm", process.id());
        eventually("the program", || fs::read_to_string(&name).is_ok_and(|name| name == "sleep\n"));
        process
    }

    #[test]
    fn a_process_ends_with_its_value() {
        let process = endless();
        let place = format!("/proc/{}", process.id());
        drop(process);
        assert!(!Path::new(&place).exists());
    }

    #[test]
    fn a_process_ends_with_the_thread_that_has_started_it() {
        let mut process = thread::spawn(endless).join().unwrap();
        let status = process.wait().unwrap();
        assert!(!status.success(), "{status}");
    }
}
