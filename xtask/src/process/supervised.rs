//! A program in a process group of its own, with its output in a file and a limit of its time.
//!
//! The file is shown while the program runs. A pipe would end only when every process that has inherited it ends; a file
//! can be read whatever the program leaves, and stays for a reader afterwards.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::descendants;
use super::program::line;

/// How long nobody looks whether something has ended.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);
/// At its limit, a program may take as long as its own descendants may take, and a little longer.
const GRACE: Duration = descendants::GRACE.saturating_add(Duration::from_secs(5));

/// How a program has ended.
#[derive(Debug)]
pub(crate) enum End {
    /// By itself.
    Exited(ExitStatus),
    /// It was ended at its limit, which is here.
    AtLimit(Duration),
}

/// A program that runs. It must be followed to its end.
pub(crate) struct Supervised {
    child: Child,
    log: PathBuf,
    output: File,
    started: Instant,
    limit: Duration,
    /// How long it ran, once its end has been seen.
    time: Option<Duration>,
}

impl Supervised {
    /// Starts a program. The limit counts from now.
    ///
    /// # Errors
    /// The program cannot be started, or the log cannot be written.
    pub(crate) fn start(command: &mut Command, log: PathBuf, limit: Duration) -> Result<Supervised> {
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let output = File::open(&log).with_context(|| format!("cannot read {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {}", line(command)))?;
        Ok(Supervised { child, log, output, started: Instant::now(), limit, time: None })
    }

    /// From the start of the program until its end was seen, or until now.
    pub(crate) fn time(&self) -> Duration {
        self.time.unwrap_or_else(|| self.started.elapsed())
    }

    /// Whether nothing is to be waited for: the program has ended, or must be ended.
    pub(crate) fn is_over(&mut self) -> bool {
        // An error is told by who follows the program.
        let is_over = !matches!(self.child.try_wait(), Ok(None)) || self.started.elapsed() >= self.limit;
        if is_over {
            self.time.get_or_insert_with(|| self.started.elapsed());
        }
        is_over
    }

    /// Shows the output from its beginning until the program ends, and calls `meanwhile` again and again. Ends the program,
    /// and everything that it has started, at its limit.
    ///
    /// # Errors
    /// The output cannot be read or shown.
    pub(crate) fn follow(&mut self, shown: &mut dyn Write, mut meanwhile: impl FnMut()) -> Result<End> {
        loop {
            let status = self.child.try_wait()?;
            // What was written before the end is read after it.
            self.show(shown)?;
            if let Some(status) = status {
                self.time.get_or_insert_with(|| self.started.elapsed());
                return Ok(End::Exited(status));
            }
            if self.started.elapsed() >= self.limit {
                descendants::end(self.child.id(), GRACE);
                self.child.wait()?;
                self.time = Some(self.started.elapsed());
                self.show(shown)?;
                return Ok(End::AtLimit(self.limit));
            }
            meanwhile();
            sleep(PAUSE);
        }
    }

    fn show(&mut self, shown: &mut dyn Write) -> Result<()> {
        let mut text = Vec::new();
        self.output.read_to_end(&mut text).with_context(|| format!("cannot read {}", self.log.display()))?;
        shown.write_all(&text)?;
        shown.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::last_lines;
    use crate::process::tree::is_running;

    fn shell(script: &str, limit: Duration) -> (tempfile::TempDir, Supervised) {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let started = Supervised::start(Command::new("sh").args(["-c", script]), log, limit).unwrap();
        (folder, started)
    }

    #[test]
    fn the_output_is_shown_and_stays() {
        let (_folder, mut program) = shell("echo one; echo two >&2; exit 3", Duration::from_secs(60));
        let mut shown = Vec::new();
        let end = program.follow(&mut shown, || ()).unwrap();
        assert!(matches!(end, End::Exited(status) if status.code() == Some(3)), "{end:?}");
        assert_eq!(shown, b"one\ntwo\n");
        assert_eq!(last_lines(&program.log, 1), "two");
        assert_eq!(last_lines(&program.log, 5), "one\ntwo");
    }

    #[test]
    fn a_program_and_what_it_has_started_end_at_its_limit() {
        // The second process ignores SIGTERM, and has a session of its own.
        let script = "setsid sh -c 'trap \"\" TERM; echo $$; sleep 600' & wait";
        let (_folder, mut program) = shell(script, Duration::from_secs(1));
        let mut shown = Vec::new();
        let end = program.follow(&mut shown, || ()).unwrap();
        assert!(matches!(end, End::AtLimit(_)), "{end:?}");
        let second = String::from_utf8(shown).unwrap().trim().parse().unwrap();
        while is_running(second) {
            std::thread::yield_now();
        }
        assert!(!is_running(program.child.id()));
    }

    #[test]
    fn a_process_that_keeps_the_output_does_not_delay_the_end() {
        let (_folder, mut program) = shell("sleep 600 & echo $!", Duration::from_secs(60));
        let mut shown = Vec::new();
        assert!(
            matches!(program.follow(&mut shown, || ()).unwrap(), End::Exited(status) if status.success())
        );
        let kept = String::from_utf8(shown).unwrap().trim().parse().unwrap();
        assert!(is_running(kept));
        descendants::end(kept, Duration::ZERO);
    }
}
