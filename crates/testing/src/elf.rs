//! Reads which names of Triton's interfaces a shared object or a program defines and needs, from its dynamic symbols.
use std::{fs, io, path::Path};

const PREFIX: &str = "TRITON";
const SHT_DYNAMIC: u32 = 6;
const SHT_DYNSYM: u32 = 11;
const DT_SONAME: u64 = 14;

/// Names of Triton's interfaces among the dynamic symbols, sorted, and the name of the library itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Names that other files may use.
    pub defined: Vec<String>,
    /// Names that other files must define.
    pub undefined: Vec<String>,
    /// The name under which programs that link with the library will load it (`DT_SONAME`).
    pub soname: Option<String>,
}

impl Symbols {
    /// Reads a 64-bit little-endian file.
    ///
    /// # Errors
    /// The file cannot be read or has another format.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = fs::read(path)?;
        parse(&file).ok_or_else(|| io::Error::other(format!("{} is not an ELF file", path.display())))
    }
}

struct Section {
    kind: u32,
    offset: u64,
    size: u64,
    /// Index of the section with the strings of this section.
    link: usize,
}

fn parse(file: &[u8]) -> Option<Symbols> {
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let sections = sections(file)?;
    let mut symbols = Symbols::default();
    for section in &sections {
        let strings = sections.get(section.link)?;
        match section.kind {
            SHT_DYNSYM => {
                for index in 0..section.size / 24 {
                    let at = section.offset + index * 24;
                    let name = text(file, strings.offset + number::<4>(file, at)?)?;
                    let is_defined = number::<2>(file, at + 6)? != 0;
                    if name.starts_with(PREFIX) {
                        let list = if is_defined { &mut symbols.defined } else { &mut symbols.undefined };
                        list.push(name.to_owned());
                    }
                }
            }
            SHT_DYNAMIC => {
                let entries = (0..section.size / 16).map(|index| section.offset + index * 16);
                for at in entries {
                    if number::<8>(file, at)? == DT_SONAME {
                        symbols.soname =
                            text(file, strings.offset + number::<8>(file, at + 8)?).map(str::to_owned);
                    }
                }
            }
            _ => {}
        }
    }
    symbols.defined.sort();
    symbols.undefined.sort();
    Some(symbols)
}

fn sections(file: &[u8]) -> Option<Vec<Section>> {
    let (first, size, count) = (number::<8>(file, 40)?, number::<2>(file, 58)?, number::<2>(file, 60)?);
    let section = |index: u64| {
        let at = first + index * size;
        Some(Section {
            kind: u32::try_from(number::<4>(file, at + 4)?).ok()?,
            offset: number::<8>(file, at + 24)?,
            size: number::<8>(file, at + 32)?,
            link: usize::try_from(number::<4>(file, at + 40)?).ok()?,
        })
    };
    (0..count).map(section).collect()
}

/// A little-endian number of so many bytes.
fn number<const BYTES: usize>(file: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let bytes = file.get(at..at.checked_add(BYTES)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn text(file: &[u8], at: u64) -> Option<&str> {
    let rest = file.get(usize::try_from(at).ok()?..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_elf_file_is_refused() {
        assert_eq!(parse(b"#!/bin/sh\n"), None);
        assert_eq!(parse(b"\x7fELF\x02\x01\x01"), None);
    }
}
