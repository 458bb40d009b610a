//! Reads the facts about an ELF shared object that are needed to open a plug-in: its dependencies and search paths.
use std::path::{Path, PathBuf};

/// The contents of the dynamic section of a library.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Dynamic {
    /// Names of the libraries it needs (`DT_NEEDED`).
    pub(super) needed: Vec<String>,
    /// The directories in which it searches for them (`DT_RUNPATH`, else `DT_RPATH`), not expanded.
    search: Vec<String>,
    /// Whether the libraries it needs search there, too: true of `DT_RPATH`.
    is_inherited: bool,
}

/// A 64-bit little-endian object.
const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

/// Reads a 64-bit little-endian library; `None` if the bytes are not such a library.
pub(super) fn dynamic(file: &[u8]) -> Option<Dynamic> {
    if !file.starts_with(MAGIC) {
        return None;
    }
    let segments = segments(file)?;
    let section = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
    let mut entries = Vec::new();
    for index in 0..section.size / 16 {
        let at = section.offset.checked_add(index * 16)?;
        let (tag, value) = (u64_at(file, at)?, u64_at(file, at + 8)?);
        if tag == 0 {
            break;
        }
        entries.push((tag, value));
    }
    let (_, strings) = entries.iter().find(|(tag, _)| *tag == DT_STRTAB)?;
    let strings = offset_of(&segments, *strings)?;
    let texts = |wanted: u64| {
        let offsets = entries.iter().filter(move |(tag, _)| *tag == wanted).map(|(_, offset)| *offset);
        offsets.filter_map(move |offset| text_at(file, strings.checked_add(offset)?))
    };
    let has_runpath = entries.iter().any(|(tag, _)| *tag == DT_RUNPATH);
    let search = texts(if has_runpath { DT_RUNPATH } else { DT_RPATH });
    let search = search.flat_map(|list| list.split(':').map(str::to_owned).collect::<Vec<_>>());
    Some(Dynamic {
        needed: texts(DT_NEEDED).collect(),
        search: search.filter(|path| !path.is_empty()).collect(),
        is_inherited: !has_runpath,
    })
}

/// Whether the bytes begin as a library and end before its last segment does. The loader maps such a file, and the
/// process ends when it reads beyond the end.
pub(super) fn is_cut_off(file: &[u8]) -> bool {
    let is_inside = |segment: &Segment| {
        let end = segment.offset.checked_add(segment.size);
        end.is_some_and(|end| end <= file.len() as u64)
    };
    file.starts_with(MAGIC)
        && !segments(file)
            .is_some_and(|segments| segments.iter().filter(|segment| segment.kind == PT_LOAD).all(is_inside))
}

impl Dynamic {
    /// The directories in which this library searches, and those that its dependencies inherit. `inherited` are the
    /// directories that this library inherits from the library that needs it.
    pub(super) fn places(&self, origin: &Path, inherited: &[PathBuf]) -> Places {
        let origin = origin.to_string_lossy();
        let expand = |path: &String| path.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin).into();
        let own: Vec<PathBuf> = self.search.iter().map(expand).collect();
        if self.is_inherited {
            let all = [&own, inherited].concat();
            Places { own: all.clone(), passed_on: all }
        } else {
            Places { own, passed_on: inherited.to_vec() }
        }
    }
}

/// The directories in which a library and its dependencies search for libraries.
#[derive(Debug)]
pub(super) struct Places {
    own: Vec<PathBuf>,
    pub(super) passed_on: Vec<PathBuf>,
}

impl Places {
    /// The path of the needed library of that name.
    pub(super) fn find(&self, name: &str) -> Option<PathBuf> {
        self.own.iter().map(|directory| directory.join(name)).find(|path| path.is_file())
    }
}

fn segments(file: &[u8]) -> Option<Vec<Segment>> {
    let table = u64_at(file, 32)?;
    let (size, count) = (u64::from(u16_at(file, 54)?), u64::from(u16_at(file, 56)?));
    (0..count)
        .map(|index| {
            let at = table.checked_add(index * size)?;
            Some(Segment {
                kind: u32::from_le_bytes(bytes_at(file, at)?),
                offset: u64_at(file, at + 8)?,
                address: u64_at(file, at + 16)?,
                size: u64_at(file, at + 32)?,
            })
        })
        .collect()
}

/// The offset in the file of an address in memory.
fn offset_of(segments: &[Segment], address: u64) -> Option<u64> {
    let holds = |segment: &&Segment| {
        segment.kind == PT_LOAD && (segment.address..segment.address + segment.size).contains(&address)
    };
    segments.iter().find(holds).map(|segment| segment.offset + (address - segment.address))
}

fn bytes_at<const N: usize>(file: &[u8], offset: u64) -> Option<[u8; N]> {
    let start = usize::try_from(offset).ok()?;
    file.get(start..start.checked_add(N)?)?.try_into().ok()
}

fn u16_at(file: &[u8], offset: u64) -> Option<u16> {
    bytes_at(file, offset).map(u16::from_le_bytes)
}

fn u64_at(file: &[u8], offset: u64) -> Option<u64> {
    bytes_at(file, offset).map(u64::from_le_bytes)
}

fn text_at(file: &[u8], offset: u64) -> Option<String> {
    let rest = file.get(usize::try_from(offset).ok()?..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_the_c_library() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needed = dynamic(&program).unwrap().needed;
        assert!(needed.iter().any(|name| name.starts_with("libc.so")), "{needed:?}");
    }

    #[test]
    fn what_is_no_library_or_is_cut_off_is_nothing() {
        assert_eq!(dynamic(b"#!/bin/sh"), None);
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_cut_off(&program) && !is_cut_off(b"#!/bin/sh"));
        for length in [6, 20, 63, 64, 100, 500] {
            assert_eq!(dynamic(&program[..length]), None, "{length}");
            assert!(is_cut_off(&program[..length]), "{length}");
        }
    }
}
