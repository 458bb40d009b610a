//! Where lines go.
use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
};

/// A destination of lines. Others may write to it, too.
pub trait LineOutput: Write {
    /// Its length in bytes, if its end can be removed again.
    fn length(&self) -> Option<u64>;

    /// Removes what is beyond this length.
    ///
    /// # Errors
    /// The system refuses, or the output has no end that can be removed.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl<O: LineOutput + ?Sized> LineOutput for Box<O> {
    fn length(&self) -> Option<u64> {
        (**self).length()
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        (**self).cut(length)
    }
}

impl LineOutput for File {
    fn length(&self) -> Option<u64> {
        self.metadata().ok().filter(std::fs::Metadata::is_file).map(|file| file.len())
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        // A file that is not open for appending would get a hole.
        self.seek(SeekFrom::Start(length)).map(drop)
    }
}
