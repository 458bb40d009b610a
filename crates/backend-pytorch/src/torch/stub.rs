//! A library without any function, in the place of one that must not be opened.
//!
//! Compiled code asks the loader for `libtorch.so`, although it uses nothing of it. That of a package for GPUs needs
//! the libraries of CUDA, hundreds of megabytes. The loader opens no library twice that is open under the same name.

/// The machine, by its number in ELF, and the size of its largest pages.
#[cfg(target_arch = "x86_64")]
const MACHINE: (u16, u64) = (62, 0x1000);
/// The machine, by its number in ELF, and the size of its largest pages.
#[cfg(not(target_arch = "x86_64"))]
const MACHINE: (u16, u64) = (183, 0x1_0000);

const HEADER_BYTES: u64 = 64;
const SEGMENT_BYTES: u64 = 56;
const SEGMENTS: u64 = 3;

/// Segments that are mapped, have the dynamic section, and tell that the stack is not executable.
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const STACK: u32 = 0x6474_e551;

/// Readable and writable.
const READ_WRITE: u32 = 6;

/// The bytes of a shared library in the format ELF that has this name and nothing else.
pub(super) fn library(name: &str) -> Vec<u8> {
    let strings_len = name.len() as u64 + 2;
    let strings_at = HEADER_BYTES + SEGMENTS * SEGMENT_BYTES;
    // One symbol, which has no name, and a table of names with one empty list.
    let symbols_at = (strings_at + strings_len).next_multiple_of(8);
    let hash_at = symbols_at + 24;
    let dynamic_at = (hash_at + 16).next_multiple_of(8);
    let entries =
        [(14, 1), (4, hash_at), (5, strings_at), (6, symbols_at), (10, strings_len), (11, 24), (0, 0)];
    let dynamic_len = entries.len() as u64 * 16;
    let len = dynamic_at + dynamic_len;

    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let (machine, page) = MACHINE;
    file.extend([3_u16.to_le_bytes(), machine.to_le_bytes()].concat());
    file.extend(1_u32.to_le_bytes());
    file.extend([0_u64, HEADER_BYTES, 0].map(u64::to_le_bytes).concat());
    file.extend(0_u32.to_le_bytes());
    for number in [HEADER_BYTES, SEGMENT_BYTES, SEGMENTS, 0, 0, 0] {
        file.extend((number as u16).to_le_bytes());
    }
    for (kind, offset, len, align) in
        [(LOAD, 0, len, page), (DYNAMIC, dynamic_at, dynamic_len, 8), (STACK, 0, 0, 16)]
    {
        file.extend([kind.to_le_bytes(), READ_WRITE.to_le_bytes()].concat());
        file.extend([offset, offset, offset, len, len, align].map(u64::to_le_bytes).concat());
    }
    file.push(0);
    file.extend(name.as_bytes());
    file.push(0);
    file.resize(hash_at as usize, 0);
    file.extend([1_u32, 1, 0, 0].map(u32::to_le_bytes).concat());
    file.resize(dynamic_at as usize, 0);
    for (tag, value) in entries {
        file.extend([tag, value].map(u64::to_le_bytes).concat());
    }
    file
}

#[cfg(test)]
mod tests {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

    use super::*;

    #[test]
    fn the_loader_opens_it_and_knows_it_by_its_name() {
        let name = "libnereid_of_this_test.so";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("any.so");
        std::fs::write(&path, library(name)).unwrap();
        // SAFETY: the library has no initialisers.
        let by_name = || unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        assert!(by_name().is_err());
        // SAFETY: as above.
        let opened = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.unwrap();
        assert!(by_name().is_ok());
        // SAFETY: the symbol is not used.
        assert!(unsafe { opened.get::<*const u8>(b"anything\0") }.is_err());
    }
}
