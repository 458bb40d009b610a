//! Reads the facts about an ELF shared object that are needed to open a plug-in: its dependencies and search paths.
use std::path::{Path, PathBuf};

use goblin::{
    container::{Container, Ctx, Endian},
    elf::{
        Elf, ProgramHeader,
        dynamic::{self, DT_NEEDED, DT_RPATH, DT_RUNPATH},
        program_header::PT_LOAD,
    },
};

/// The contents of the dynamic section of a library.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DynamicSection {
    /// Names of the libraries it needs (`DT_NEEDED`).
    pub(super) needed: Vec<String>,
    /// The directories in which it searches for them (`DT_RUNPATH`, else `DT_RPATH`), not expanded.
    search: Vec<String>,
    /// Whether the libraries it needs search there, too: true of `DT_RPATH`.
    is_inherited: bool,
}

/// A 64-bit little-endian object.
const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const CONTEXT: Ctx = Ctx { container: Container::Big, le: Endian::Little };

/// Reads a 64-bit little-endian library; `None` if the bytes are not such a library.
pub(super) fn dynamic(file: &[u8]) -> Option<DynamicSection> {
    if !file.starts_with(MAGIC) {
        return None;
    }
    let section = dynamic::Dynamic::parse(file, &segments(file)?, CONTEXT).ok()??;
    // 0: there is none, or it is in no segment.
    let strings = Some(section.info.strtab).filter(|offset| *offset > 0)?;
    let texts = |wanted: u64| {
        let entries = section.dyns.iter().filter(move |entry| entry.d_tag == wanted);
        entries.filter_map(move |entry| text_at(file, strings, entry.d_val))
    };
    let has_runpath = section.dyns.iter().any(|entry| entry.d_tag == DT_RUNPATH);
    let search = texts(if has_runpath { DT_RUNPATH } else { DT_RPATH });
    let search = search.flat_map(|list| list.split(':').map(str::to_owned).collect::<Vec<_>>());
    Some(DynamicSection {
        needed: texts(DT_NEEDED).collect(),
        search: search.filter(|path| !path.is_empty()).collect(),
        is_inherited: !has_runpath,
    })
}

/// Whether the bytes begin as a library and end before its last segment does. The loader maps such a file, and the
/// process ends when it reads beyond the end.
pub(super) fn is_cut_off(file: &[u8]) -> bool {
    let is_inside = |segment: &ProgramHeader| {
        let end = segment.p_offset.checked_add(segment.p_filesz);
        end.is_some_and(|end| end <= file.len() as u64)
    };
    file.starts_with(MAGIC)
        && !segments(file).is_some_and(|segments| {
            segments.iter().filter(|segment| segment.p_type == PT_LOAD).all(is_inside)
        })
}

impl DynamicSection {
    /// The directories in which this library searches, and those that its dependencies inherit. `inherited` are the
    /// directories that this library inherits from the library that needs it.
    pub(super) fn search_paths(&self, origin: &Path, inherited: &[PathBuf]) -> SearchPaths {
        let origin = origin.to_string_lossy();
        let expand = |path: &String| path.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin).into();
        let own: Vec<PathBuf> = self.search.iter().map(expand).collect();
        if self.is_inherited {
            let all = [&own, inherited].concat();
            SearchPaths { own: all.clone(), passed_on: all }
        } else {
            SearchPaths { own, passed_on: inherited.to_vec() }
        }
    }
}

/// The directories in which a library and its dependencies search for libraries.
#[derive(Debug)]
pub(super) struct SearchPaths {
    own: Vec<PathBuf>,
    pub(super) passed_on: Vec<PathBuf>,
}

impl SearchPaths {
    /// The path of the needed library of that name.
    pub(super) fn find(&self, name: &str) -> Option<PathBuf> {
        self.own.iter().map(|directory| directory.join(name)).find(|path| path.is_file())
    }
}

fn segments(file: &[u8]) -> Option<Vec<ProgramHeader>> {
    let header = Elf::parse_header(file).ok()?;
    let table = usize::try_from(header.e_phoff).ok()?;
    ProgramHeader::parse(file, table, usize::from(header.e_phnum), CONTEXT).ok()
}

/// The text at an offset among the strings, which begin at `strings`.
fn text_at(file: &[u8], strings: usize, offset: u64) -> Option<String> {
    let rest = file.get(strings.checked_add(usize::try_from(offset).ok()?)?..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use goblin::elf::{dynamic::DT_STRTAB, program_header::PT_DYNAMIC};

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

    /// A library with these program headers, the given dynamic entries at 0x200, and no more.
    fn library(table: u64, segments: &[(u32, u64, u64, u64)], entries: &[(u64, u64)]) -> Vec<u8> {
        let mut file = vec![0; 0x400];
        file[..6].copy_from_slice(MAGIC);
        file[32..40].copy_from_slice(&table.to_le_bytes());
        file[54..56].copy_from_slice(&56_u16.to_le_bytes());
        file[56..58].copy_from_slice(&u16::try_from(segments.len()).unwrap().to_le_bytes());
        for (index, (kind, offset, address, size)) in segments.iter().enumerate() {
            let start = 0x40 + index * 56;
            file[start..start + 4].copy_from_slice(&kind.to_le_bytes());
            for (place, value) in [(8, offset), (16, address), (32, size), (40, size)] {
                file[start + place..start + place + 8].copy_from_slice(&value.to_le_bytes());
            }
        }
        for (index, (tag, value)) in entries.iter().enumerate() {
            let start = 0x200 + index * 16;
            file[start..start + 8].copy_from_slice(&tag.to_le_bytes());
            file[start + 8..start + 16].copy_from_slice(&value.to_le_bytes());
        }
        file[0x300..0x305].copy_from_slice(b"\0a.so");
        file
    }

    #[test]
    fn numbers_of_a_file_that_are_too_large_for_a_sum_are_refused() {
        const MAX: u64 = u64::MAX;
        let whole = [(PT_LOAD, 0, 0, 0x400), (PT_DYNAMIC, 0x200, 0x200, 0x30)];
        let entries = [(DT_STRTAB, 0x300), (DT_NEEDED, 1)];
        let needed = |file: &[u8]| dynamic(file).map(|found| found.needed);
        assert_eq!(needed(&library(0x40, &whole, &entries)), Some(vec!["a.so".to_owned()]));
        for table in [MAX, MAX - 3, MAX - 55, MAX - 56] {
            assert_eq!(needed(&library(table, &whole, &entries)), None, "{table}");
        }
        for (offset, address, size) in
            [(MAX, 0, MAX), (MAX, 0x200, 0x200), (0, MAX, MAX), (0, 0x200, MAX), (0, 1, MAX)]
        {
            let segments = [(PT_LOAD, offset, address, size), whole[1]];
            let file = library(0x40, &segments, &entries);
            // A name may be at another place. No sum overflows.
            assert!(needed(&file).is_none_or(|names| names.len() <= 1), "{offset} {address} {size}");
            assert!(is_cut_off(&file), "{offset} {address} {size}");
        }
        for (offset, size) in [(MAX, MAX), (MAX - 7, MAX), (MAX - 15, 32), (0x3f8, 32)] {
            let segments = [whole[0], (PT_DYNAMIC, offset, 0, size)];
            assert_eq!(needed(&library(0x40, &segments, &entries)), None, "{offset} {size}");
        }
        for strings in [MAX, 0x3ff] {
            let entries = [(DT_STRTAB, strings), (DT_NEEDED, MAX)];
            assert!(
                needed(&library(0x40, &whole, &entries)).is_none_or(|names| names.is_empty()),
                "{strings}"
            );
        }
    }
}
