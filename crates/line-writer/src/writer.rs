//! Writes whole lines to one output.
use std::io::{self, ErrorKind};

use super::{LineAccount, LineOutput};

/// So many bytes are collected before they are written.
const COLLECTED_BYTES: usize = 1 << 16;

/// Writes whole lines to an output. What a write has taken of a line whose rest it refuses is removed again, so that a
/// file has whole lines only. If it cannot be removed, the next line begins on a line of its own.
#[derive(Debug)]
pub struct LineWriter<O> {
    output: O,
    /// Lines that the output does not have yet.
    collected: Vec<u8>,
    /// For each piece of `collected`, its end and its number of lines.
    ends: Vec<(usize, u64)>,
    /// The output ends within a line.
    is_torn: bool,
}

impl<O: LineOutput> LineWriter<O> {
    /// A writer for an output that ends with a whole line, or has none.
    pub fn new(output: O) -> Self {
        Self { output, collected: Vec::new(), ends: Vec::new(), is_torn: false }
    }

    /// Where the lines go.
    pub fn output(&self) -> &O {
        &self.output
    }

    /// Writes a piece with so many lines at once, after what was collected. Returns whether the output has the piece. If
    /// not, the output has nothing of it, and the account says that it is lost.
    pub fn write(&mut self, piece: &[u8], lines: u64, account: &mut LineAccount) -> bool {
        self.flush(account);
        self.put(piece, &[(piece.len(), lines)], account)
    }

    /// Collects a piece with so many lines, and writes if many bytes are collected.
    pub fn collect(&mut self, piece: &[u8], lines: u64, account: &mut LineAccount) {
        self.collected.extend_from_slice(piece);
        self.ends.push((self.collected.len(), lines));
        if self.collected.len() >= COLLECTED_BYTES {
            self.flush(account);
        }
    }

    /// Writes what was collected.
    pub fn flush(&mut self, account: &mut LineAccount) {
        if self.ends.is_empty() {
            return;
        }
        let (mut collected, mut ends) = (std::mem::take(&mut self.collected), std::mem::take(&mut self.ends));
        self.put(&collected, &ends, account);
        // The memory is used again.
        collected.clear();
        ends.clear();
        (self.collected, self.ends) = (collected, ends);
    }

    /// Writes pieces, and counts those that the output has. Returns whether it has all.
    fn put(&mut self, pieces: &[u8], ends: &[(usize, u64)], account: &mut LineAccount) -> bool {
        let (taken, written) = match self.end_torn_line() {
            Ok(()) => self.write_bytes(pieces),
            Err(error) => (0, Err(error)),
        };
        let whole = ends.partition_point(|(end, _)| *end <= taken);
        let lines = |ends: &[(usize, u64)]| ends.iter().map(|(_, lines)| lines).sum::<u64>();
        account.counts().add_written(lines(&ends[..whole]));
        let Err(error) = written else { return true };
        account.lose(lines(&ends[whole..]), &error);
        let kept = ends[..whole].last().map_or(0, |(end, _)| *end);
        if taken > kept {
            self.is_torn = self.remove(taken - kept).is_err();
        }
        false
    }

    fn end_torn_line(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.write_bytes(b"\n").1?;
            self.is_torn = false;
        }
        Ok(())
    }

    /// Writes as many bytes as the output takes. Returns their number, and the error if they are not all.
    fn write_bytes(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut taken = 0;
        while taken < bytes.len() {
            match self.output.write(&bytes[taken..]) {
                Ok(0) => return (taken, Err(ErrorKind::WriteZero.into())),
                Ok(count) => taken += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return (taken, Err(error)),
            }
        }
        (taken, self.output.flush())
    }

    /// Removes the last bytes, which this writer has written.
    fn remove(&mut self, bytes: usize) -> io::Result<()> {
        let length = self.output.length().and_then(|length| length.checked_sub(bytes as u64));
        self.output.cut(length.ok_or(ErrorKind::Unsupported)?)
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, sync::Arc};

    use super::*;
    use crate::LineCounts;

    /// A disk that is full after so many bytes.
    #[derive(Default)]
    struct FullDisk {
        content: Vec<u8>,
        room: usize,
        has_no_end: bool,
    }

    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room).min(3);
            if count == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.content.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl LineOutput for FullDisk {
        fn length(&self) -> Option<u64> {
            (!self.has_no_end).then_some(self.content.len() as u64)
        }

        fn cut(&mut self, length: u64) -> io::Result<()> {
            self.content.truncate(usize::try_from(length).unwrap());
            Ok(())
        }
    }

    fn started(room: usize, has_no_end: bool) -> (LineWriter<FullDisk>, LineAccount, Arc<LineCounts>) {
        let counts = Arc::<LineCounts>::default();
        let output = FullDisk { room, has_no_end, ..FullDisk::default() };
        (LineWriter::new(output), LineAccount::new("lines", counts.clone()), counts)
    }

    fn text(writer: &LineWriter<FullDisk>) -> &str {
        std::str::from_utf8(&writer.output.content).unwrap()
    }

    #[test]
    fn a_full_disk_has_whole_lines_and_as_many_as_are_counted() {
        let (mut writer, mut account, counts) = started(10, false);
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            writer.collect(line.as_bytes(), 1, &mut account);
        }
        assert_eq!((text(&writer), counts.written()), ("", 0), "a line is counted when the file has it");
        writer.flush(&mut account);
        assert_eq!(text(&writer), "one\ntwo\n");
        assert_eq!((counts.written(), counts.lost()), (2, 2));
        assert!(!writer.write(b"five\n", 1, &mut account));
        writer.output.room = 100;
        assert!(writer.write(b"six\n", 1, &mut account));
        assert_eq!(text(&writer), "one\ntwo\nsix\n");
        assert_eq!((counts.written(), counts.lost()), (3, 3));
    }

    #[test]
    fn a_piece_counts_as_many_lines_as_it_has_and_is_there_whole_or_not_at_all() {
        let (mut writer, mut account, counts) = started(8, false);
        assert!(writer.write(b"[1,2", 2, &mut account));
        assert!(!writer.write(b",3,4,5", 3, &mut account));
        assert_eq!(text(&writer), "[1,2");
        assert_eq!((counts.written(), counts.lost()), (2, 3));
    }

    #[test]
    fn behind_a_part_that_cannot_be_removed_a_line_begins_on_its_own() {
        let (mut writer, mut account, counts) = started(5, true);
        assert!(!writer.write(b"abcdefg\n", 1, &mut account));
        assert!(!writer.write(b"lost\n", 1, &mut account));
        writer.output.room = 100;
        assert!(writer.write(b"next\n", 1, &mut account));
        assert!(writer.write(b"last\n", 1, &mut account));
        assert_eq!(text(&writer), "abcde\nnext\nlast\n");
        assert_eq!((counts.written(), counts.lost()), (2, 2));
    }

    #[test]
    fn many_bytes_are_not_collected_without_end() {
        let (mut writer, mut account, counts) = started(usize::MAX, false);
        let line = [&[b'x'; COLLECTED_BYTES / 4 - 1][..], b"\n"].concat();
        (0..6).for_each(|_| writer.collect(&line, 1, &mut account));
        assert_eq!(counts.written(), 4);
    }

    #[test]
    fn the_part_of_a_line_is_removed_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(b"one\ntw").unwrap();
        let length = file.length().unwrap();
        file.cut(length - 2).unwrap();
        file.write_all(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "one\nthree\n");
    }

    #[test]
    fn a_device_that_takes_nothing_loses_every_line() {
        let (_, mut account, counts) = started(0, false);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(full.length(), None, "not a regular file");
        let mut writer = LineWriter::new(full);
        assert!(!writer.write(b"one\n", 1, &mut account));
        assert_eq!((counts.written(), counts.lost()), (0, 1));
        let report = account.due_report(std::time::Instant::now()).unwrap();
        assert_eq!(report, "lost lines: 1 (No space left on device (os error 28))");
    }
}
