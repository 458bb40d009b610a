//! The members of an archive of PyTorch, which are listed and bounded before one of them is read.
//!
//! Archives have the format of zip. PyTorch writes members as they are, and other programs may compress them. All
//! members are in one folder, whose name tells nothing.
use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read, Write},
};

use flate2::read::DeflateDecoder;
use rawzip::{
    CompressionMethod, FileReader, ReaderAt, ZipArchive, ZipArchiveEntryWayfinder, ZipFileHeaderRecord,
    ZipLocator,
};

/// A package has some tens of members.
const MOST_MEMBERS: usize = 10_000;

/// Paths of members are short.
const MOST_PATH_BYTES: usize = 1024;

/// PyTorch stores code and weights as they are, and compresses texts only.
const MOST_EXPANSION: u64 = 100;

/// An entry of the list of members must fit.
const BUFFER_BYTES: usize = 1 << 16;

/// Why an archive cannot be used. The text completes "the archive ...".
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ArchiveRefusal {
    /// The list of members is missing, or is no such list.
    #[error("is no archive of PyTorch, or its end is missing: {0}")]
    NoArchive(String),
    /// A rule is broken.
    #[error("{0}")]
    Rule(String),
    /// A member cannot be read.
    #[error("has the member '{path}', which cannot be read: {reason}")]
    Member {
        /// Its path.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

/// An archive within the limits.
///
/// Invariant: the members have different paths, none leads out of a folder, they do not overlap, and together they are
/// at most [`MOST_EXPANSION`] times as large as the file.
#[derive(Debug)]
pub(crate) struct PackageArchive<R = FileReader> {
    archive: ZipArchive<R>,
    members: Vec<ArchiveMember>,
}

/// A file in an archive.
#[derive(Debug, Clone)]
pub(crate) struct ArchiveMember {
    /// Its path below the one folder of all members.
    pub(crate) path: String,
    /// Its bytes.
    pub(crate) size: u64,
    is_compressed: bool,
    place: ZipArchiveEntryWayfinder,
}

impl PackageArchive {
    /// Lists the members of a file. Blocks.
    ///
    /// # Errors
    /// The file is no archive, or breaks a limit.
    pub(crate) fn open(file: File) -> Result<Self, ArchiveRefusal> {
        let size = file.metadata().map_err(|error| ArchiveRefusal::NoArchive(error.to_string()))?.len();
        Self::list(FileReader::from(file), size)
    }
}

impl<R: ReaderAt> PackageArchive<R> {
    /// Lists the members of so many bytes.
    ///
    /// # Errors
    /// As [`PackageArchive::open`].
    pub(crate) fn list(reader: R, size: u64) -> Result<Self, ArchiveRefusal> {
        let no_archive = |error: rawzip::Error| ArchiveRefusal::NoArchive(error.to_string());
        let mut buffer = vec![0; BUFFER_BYTES];
        let located = ZipLocator::new().locate_in_reader(reader, &mut buffer, size);
        let archive = located.map_err(|(_, error)| no_archive(error))?;
        let (mut members, mut stored, mut expanded) = (Vec::new(), 0_u64, 0_u64);
        let mut entries = archive.entries(&mut buffer);
        while let Some(entry) = entries.next_entry().map_err(no_archive)? {
            if members.len() == MOST_MEMBERS {
                return Err(ArchiveRefusal::Rule(format!("has more than {MOST_MEMBERS} members")));
            }
            stored = stored.saturating_add(entry.compressed_size_hint());
            expanded = expanded.saturating_add(entry.uncompressed_size_hint());
            if !entry.is_dir() {
                members.push(member(&entry)?);
            }
        }
        check_sizes(size, stored, expanded)?;
        let mut paths = BTreeSet::new();
        if let Some(twice) = members.iter().find(|member| !paths.insert(member.path.as_str())) {
            return Err(ArchiveRefusal::Rule(format!("has the member '{}' twice", twice.path)));
        }
        Ok(Self { archive, members })
    }

    /// The members.
    pub(crate) fn members(&self) -> &[ArchiveMember] {
        &self.members
    }

    /// The content of a member of at most that many bytes. Blocks.
    ///
    /// # Errors
    /// The member is larger, or its bytes are not those that were written.
    pub(crate) fn read(&self, member: &ArchiveMember, most_bytes: u64) -> Result<Vec<u8>, ArchiveRefusal> {
        if member.size > most_bytes {
            let reason = format!("it has {} bytes, more than {most_bytes}", member.size);
            return Err(ArchiveRefusal::Member { path: member.path.clone(), reason });
        }
        let mut content = Vec::new();
        self.copy(member, &mut content)?;
        Ok(content)
    }

    /// The first bytes of a member, as many as `place` has if the member is as large. Their checksum is not compared.
    ///
    /// # Errors
    /// The bytes cannot be read.
    pub(crate) fn read_first(&self, member: &ArchiveMember, place: &mut [u8]) -> Result<(), ArchiveRefusal> {
        let mut content = self.content(member)?;
        let len = place.len().min(usize::try_from(member.size).unwrap_or(usize::MAX));
        content.read_exact(&mut place[..len]).map_err(|error| unreadable(member, &error))
    }

    /// Writes the content of a member. Blocks.
    ///
    /// # Errors
    /// The bytes are not those that were written, or cannot be copied.
    pub(crate) fn copy(&self, member: &ArchiveMember, target: &mut impl Write) -> Result<(), ArchiveRefusal> {
        // The reader compares size and checksum, and gives no byte beyond the size.
        let copied = io::copy(&mut self.content(member)?, target);
        copied.map(|_| ()).map_err(|error| unreadable(member, &error))
    }

    fn content<'a>(&'a self, member: &ArchiveMember) -> Result<Box<dyn Read + 'a>, ArchiveRefusal> {
        let entry = self.archive.get_entry(member.place).map_err(|error| unreadable(member, &error))?;
        Ok(if member.is_compressed {
            Box::new(entry.verifying_reader(DeflateDecoder::new(entry.reader())))
        } else {
            Box::new(entry.verifying_reader(entry.reader()))
        })
    }
}

fn unreadable(member: &ArchiveMember, error: &dyn std::error::Error) -> ArchiveRefusal {
    ArchiveRefusal::Member { path: member.path.clone(), reason: error.to_string() }
}

/// Reads an entry of the list of members.
fn member(entry: &ZipFileHeaderRecord<'_>) -> Result<ArchiveMember, ArchiveRefusal> {
    let path = entry.file_path();
    let bytes = path.as_bytes();
    if bytes.len() > MOST_PATH_BYTES {
        let text = format!("has a path of {} bytes, more than {MOST_PATH_BYTES}", bytes.len());
        return Err(ArchiveRefusal::Rule(text));
    }
    let refused = |rule: &str| {
        ArchiveRefusal::Rule(format!("has the member '{}', {rule}", String::from_utf8_lossy(bytes)))
    };
    let path = std::str::from_utf8(bytes).map_err(|_| refused("whose path is not in UTF-8"))?;
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\\', '\0']);
    if !path.split('/').all(is_part) {
        return Err(refused("whose path leads out of a folder"));
    }
    if entry.flags().is_encrypted() {
        return Err(refused("which is encrypted"));
    }
    let is_compressed = match entry.compression_method() {
        CompressionMethod::STORE => false,
        CompressionMethod::DEFLATE => true,
        _ => return Err(refused("whose compression is not that of PyTorch")),
    };
    Ok(ArchiveMember {
        path: below_root(path).to_owned(),
        size: entry.uncompressed_size_hint(),
        is_compressed,
        place: entry.wayfinder(),
    })
}

/// The path below the folder of all members. Archives of PyTorch before 2.7 have no such folder.
fn below_root(path: &str) -> &str {
    match path.split_once('/') {
        Some((root, below)) if root != "data" => below,
        _ => path,
    }
}

fn check_sizes(size: u64, stored: u64, expanded: u64) -> Result<(), ArchiveRefusal> {
    if stored > size {
        return Err(ArchiveRefusal::Rule(format!(
            "has members of {stored} bytes, more than the {size} bytes of the file: they overlap"
        )));
    }
    if expanded > size.saturating_mul(MOST_EXPANSION) {
        return Err(ArchiveRefusal::Rule(format!(
            "has {size} bytes and expands to {expanded}, more than {MOST_EXPANSION} times as many"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
