//! The thread that formats traces and writes files.
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

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
    path: PathBuf,
    file: File,
    has_elements: bool,
}

impl FileThread {
    pub(super) fn new(path: PathBuf, held_bytes: usize, counters: Arc<TraceCounters>) -> Self {
        Self { path, held_bytes, counters, collected: BTreeMap::new(), whole: None, next_number: 0 }
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
        let written = match &mut self.whole {
            Some(whole) => whole.append(&text),
            None => OpenArray::create(self.path.clone()).and_then(|mut whole| {
                let written = whole.append(&text);
                self.whole = Some(whole);
                written
            }),
        };
        self.count(held, &self.path.clone(), written);
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
        let path = part.as_ref().map_or_else(|_| self.path.clone(), |part| part.path.clone());
        let written = part.and_then(|mut part| {
            part.append(&text)?;
            if completes {
                part.close()?;
            } else {
                collected.part = Some(part);
            }
            Ok(())
        });
        if completes {
            collected.traces = 0;
        }
        self.count(held, &path, written);
    }

    fn close(&self, array: OpenArray) {
        let path = array.path.clone();
        if let Err(error) = array.close() {
            self.counters.failed(0, &format!("failed to write traces to '{}': {error}", path.display()));
        }
    }

    fn count(&self, traces: u64, path: &Path, written: io::Result<()>) {
        match written {
            Ok(()) => {
                self.counters.exported(traces);
                self.counters.works(&format!("'{}'", path.display()));
            }
            Err(error) => {
                let why = format!("failed to write traces to '{}': {error}", path.display());
                self.counters.failed(traces, &why);
            }
        }
    }
}

impl OpenArray {
    fn create(path: PathBuf) -> io::Result<Self> {
        Ok(Self { file: File::create(&path)?, path, has_elements: false })
    }

    /// Adds elements, which are separated and not empty.
    fn append(&mut self, elements: &[u8]) -> io::Result<()> {
        if elements.is_empty() {
            return Ok(());
        }
        self.file.write_all(if self.has_elements { b"," } else { b"[" })?;
        self.has_elements = true;
        self.file.write_all(elements)
    }

    fn close(mut self) -> io::Result<()> {
        self.file.write_all(if self.has_elements { b"]" } else { b"[]" })
    }
}

#[cfg(test)]
#[path = "thread_tests.rs"]
mod tests;
