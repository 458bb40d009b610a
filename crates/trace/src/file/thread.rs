//! The thread that formats traces and writes files.
use std::{collections::BTreeMap, ffi::OsString, fs::File, io, path::PathBuf, sync::Arc, time::Instant};

use line_writer::{LineAccount, LineWriter};
use vocabulary::log_target;

use super::{
    format,
    queue::{FileMessage, FileQueue},
};
use crate::{metrics::TraceCounters, record::FinishedTrace};

/// The state of the thread.
pub(super) struct FileThread {
    path: PathBuf,
    /// The most bytes of text that are held.
    held_bytes: usize,
    counters: Arc<TraceCounters>,
    account: LineAccount,
    /// The texts of settings that have not been written, by the number of the settings.
    collected: BTreeMap<u64, CollectedText>,
    /// The file without a number. It gets the traces of all settings without a log frequency.
    whole: Option<OpenArray>,
    /// The number of the next file with a number.
    next_number: u64,
}

/// The traces of one setting for its next file.
#[derive(Default)]
struct CollectedText {
    text: Vec<u8>,
    /// How many traces the text has.
    held: u64,
    /// How many traces the next file has so far, the text included.
    traces: u64,
    /// The traces go to files with numbers.
    is_numbered: bool,
    /// The numbered file, if a part of it has been written.
    part: Option<OpenArray>,
}

/// A file with a part of a JSON array.
struct OpenArray {
    writer: LineWriter<File>,
    has_elements: bool,
}

impl FileThread {
    pub(super) fn new(path: PathBuf, held_bytes: usize, counters: Arc<TraceCounters>) -> Self {
        let what = format!("traces for the file '{}'", path.display());
        let account = LineAccount::new(what, counters.exports().clone());
        Self { path, held_bytes, counters, account, collected: BTreeMap::new(), whole: None, next_number: 0 }
    }

    /// Works until the queue ends, and completes all files.
    pub(super) fn run(mut self, queue: &FileQueue) {
        while let Some(messages) = queue.take() {
            for message in messages {
                match message {
                    FileMessage::Trace(trace) => self.add(&trace),
                    FileMessage::SettingEnded(setting) => self.end_setting(setting),
                }
            }
        }
        for setting in self.collected.keys().copied().collect::<Vec<_>>() {
            self.end_setting(setting);
        }
        if let Some(whole) = self.whole.take() {
            self.close(whole);
        }
        let report = self.account.last_report();
        tell(report);
    }

    fn add(&mut self, trace: &FinishedTrace) {
        let collected = self.collected.entry(trace.setting).or_default();
        format::append_trace(&mut collected.text, &trace.requests);
        collected.held += 1;
        collected.traces += 1;
        collected.is_numbered = trace.log_frequency > 0;
        let is_full = trace.log_frequency > 0 && collected.traces >= u64::from(trace.log_frequency);
        // As Triton: if the count is used up, the traces go to a file with a number.
        if is_full || trace.is_last {
            self.write_numbered(trace.setting, true);
        } else if self.collected.values().map(|collected| collected.text.len()).sum::<usize>()
            > self.held_bytes
        {
            self.write_part(trace);
        }
    }

    /// Writes what is held for a setting, before its file is complete.
    fn write_part(&mut self, trace: &FinishedTrace) {
        if trace.log_frequency > 0 {
            self.write_numbered(trace.setting, false);
        } else {
            self.write_whole(trace.setting);
        }
    }

    fn end_setting(&mut self, setting: u64) {
        let has_rest = |collected: &CollectedText| {
            collected.part.is_some() || (collected.is_numbered && collected.held > 0)
        };
        if self.collected.get(&setting).is_some_and(has_rest) {
            self.write_numbered(setting, true);
        }
        self.write_whole(setting);
        self.collected.remove(&setting);
    }

    /// Writes to the file without a number. Traces that could not be written are lost.
    fn write_whole(&mut self, setting: u64) {
        let Some(collected) = self.collected.get_mut(&setting).filter(|collected| collected.held > 0) else {
            return;
        };
        let (text, held) = (std::mem::take(&mut collected.text), std::mem::take(&mut collected.held));
        collected.traces = 0;
        let whole = match self.whole.take() {
            Some(whole) => Ok(whole),
            None => OpenArray::create(self.path.clone()),
        };
        self.whole = self.append(whole, text, held);
    }

    /// Writes to a file with a number, which is then complete or not.
    fn write_numbered(&mut self, setting: u64, completes: bool) {
        let Some(collected) = self.collected.get_mut(&setting) else { return };
        let (text, held) = (std::mem::take(&mut collected.text), std::mem::take(&mut collected.held));
        let part = match collected.part.take() {
            Some(part) => Ok(part),
            None => {
                let mut name = OsString::from(&self.path);
                name.push(format!(".{}", self.next_number));
                self.next_number += 1;
                OpenArray::create(name.into())
            }
        };
        if completes {
            collected.traces = 0;
        }
        match self.append(part, text, held) {
            Some(part) if completes => self.close(part),
            part => self.collected.entry(setting).or_default().part = part,
        }
    }

    /// Adds traces to a file. If the file could not be opened, they are lost.
    fn append(&mut self, array: io::Result<OpenArray>, text: Vec<u8>, traces: u64) -> Option<OpenArray> {
        let array = match array {
            Ok(mut array) => {
                if array.append(text, traces, &mut self.account) {
                    self.counters.export_works();
                }
                Some(array)
            }
            Err(error) => {
                self.account.lose(traces, &error);
                None
            }
        };
        tell(self.account.due_report(Instant::now()));
        array
    }

    fn close(&mut self, array: OpenArray) {
        array.close(&mut self.account);
    }
}

fn tell(report: Option<String>) {
    if let Some(report) = report {
        log::error!(target: log_target::STDERR, "{report} (counted in nereid_trace_export_failures)");
    }
}

impl OpenArray {
    fn create(path: PathBuf) -> io::Result<Self> {
        Ok(Self { writer: LineWriter::new(File::create(path)?), has_elements: false })
    }

    /// Adds elements, which are separated and not empty, of so many traces. Returns whether the file has them.
    fn append(&mut self, mut elements: Vec<u8>, traces: u64, account: &mut LineAccount) -> bool {
        if elements.is_empty() {
            return true;
        }
        elements.insert(0, if self.has_elements { b',' } else { b'[' });
        let is_written = self.writer.write(&elements, traces, account);
        self.has_elements |= is_written;
        is_written
    }

    /// Ends the array. Its traces are in the file, whether or not this works.
    fn close(mut self, account: &mut LineAccount) {
        let end: &[u8] = if self.has_elements { b"]" } else { b"[]" };
        self.writer.write(end, 0, account);
    }
}

#[cfg(test)]
#[path = "thread_tests.rs"]
mod tests;
