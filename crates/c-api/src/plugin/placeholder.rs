//! Makes an empty shared object with a given name.
//!
//! A plug-in names the library that its functions come from (`libtritonserver.so`, or a name with a hash). The dynamic
//! loader compares such names with those of loaded objects before it searches any path. An empty object of that name,
//! loaded first, satisfies the plug-in. The loader then finds the functions in this program or in this library. The
//! placeholder names this library as a dependency, so that the plug-in finds the functions even if the library has
//! local scope.
const BASE: usize = 64 + 3 * 56;

/// A 64-bit shared object that defines nothing, has the name `name` and needs `needs`.
pub(super) fn shared_object(name: &str, needs: Option<&str>) -> Vec<u8> {
    let mut strings = vec![0];
    let mut add = |text: &str| {
        let at = strings.len() as u64;
        strings.extend(text.as_bytes());
        strings.push(0);
        at
    };
    let name_at = add(name);
    let needs_at = needs.map(&mut add);

    // One bucket and one symbol, the undefined one.
    let hash: Vec<u8> = [1_u32, 1, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let symbols = [0_u8; 24];
    let (hash_at, symbols_at) = (BASE as u64, BASE as u64 + 16);
    let strings_at = symbols_at + 24;
    let dynamic_at = (strings_at + strings.len() as u64).next_multiple_of(8);

    // DT_SONAME, DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL.
    let mut entries = vec![(14, name_at)];
    entries.extend(needs_at.map(|at| (1, at)));
    entries.extend([(4, hash_at), (5, strings_at), (6, symbols_at)]);
    entries.extend([(10, strings.len() as u64), (11, 24), (0, 0)]);
    let dynamic: Vec<u8> = entries
        .iter()
        .flat_map(|(tag, value): &(u64, u64)| [*tag, *value])
        .flat_map(u64::to_le_bytes)
        .collect();
    let end = dynamic_at + dynamic.len() as u64;

    let mut object = header();
    // The loader writes into the dynamic section, so everything is writable; nothing is executable, nor is the stack.
    for (kind, flags, offset, size, align) in
        [(1, 6, 0, end, 4096), (2, 6, dynamic_at, dynamic.len() as u64, 8), (0x6474_e551_u32, 6, 0, 0, 16)]
    {
        object.extend(kind.to_le_bytes());
        object.extend(u32::to_le_bytes(flags));
        for word in [offset, offset, offset, size, size, align] {
            object.extend(u64::to_le_bytes(word));
        }
    }
    object.extend(hash);
    object.extend(symbols);
    object.extend(strings);
    object.resize(usize::try_from(dynamic_at).unwrap_or_default(), 0);
    object.extend(dynamic);
    object
}

/// A shared object for this machine with three program headers and no sections.
fn header() -> Vec<u8> {
    const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(16, 0);
    header.extend(3_u16.to_le_bytes());
    header.extend(MACHINE.to_le_bytes());
    header.extend(1_u32.to_le_bytes());
    for word in [0_u64, 64, 0] {
        header.extend(word.to_le_bytes());
    }
    header.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 3, 64, 0, 0] {
        header.extend(half.to_le_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::elf;

    #[test]
    fn a_placeholder_is_a_library_that_needs_what_it_should() {
        let object = shared_object("libtritonserver-717102f0.so", Some("libreal.so"));
        assert_eq!(elf::dynamic(&object).unwrap().needed, ["libreal.so"]);
        assert_eq!(elf::dynamic(&shared_object("x.so", None)).unwrap().needed, Vec::<String>::new());
    }
}
