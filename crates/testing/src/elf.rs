//! Reads which names of Triton's interfaces a shared object or a program defines and needs, from its dynamic symbols.
use std::{fs, io, path::Path};

use goblin::elf::Elf;

const PREFIX: &str = "TRITON";

/// The section of a symbol that another file defines (`SHN_UNDEF`).
const UNDEFINED: usize = 0;

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

fn parse(file: &[u8]) -> Option<Symbols> {
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let elf = Elf::parse(file).ok()?;
    let mut symbols = Symbols { soname: elf.soname.map(str::to_owned), ..Symbols::default() };
    for symbol in &elf.dynsyms {
        let name = elf.dynstrtab.get_at(symbol.st_name)?;
        if name.starts_with(PREFIX) {
            let is_defined = symbol.st_shndx != UNDEFINED;
            let list = if is_defined { &mut symbols.defined } else { &mut symbols.undefined };
            list.push(name.to_owned());
        }
    }
    symbols.defined.sort();
    symbols.undefined.sort();
    Some(symbols)
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
