//! What machine code needs of the processor: the kind of machine, and the sets of instructions.
//!
//! The loader would refuse code for another machine. Nobody refuses instructions that the processor lacks: the process
//! ends when it comes to one.

/// The begin of a shared library in the format ELF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CodeHeader {
    machine: u16,
}

/// The machines that this program is built for, by their numbers in ELF.
const MACHINES: [(u16, &str); 2] = [(62, "x86_64"), (183, "aarch64")];

impl CodeHeader {
    /// How many bytes of a library [`CodeHeader::of`] needs, if there are as many.
    pub(crate) const MOST_BYTES: usize = 1 << 14;

    /// Reads the first bytes of a library of that size.
    ///
    /// # Errors
    /// They are not the begin of a shared library of 64 bits, little-endian; or the library ends before one of its
    /// segments does: the loader would map it, and end the process where it reads beyond the end.
    pub(crate) fn of(bytes: &[u8], size: u64) -> Result<Self, &'static str> {
        if !bytes.starts_with(b"\x7fELF") {
            return Err("it is no shared library");
        }
        if bytes.get(4..6) != Some(&[2, 1]) || number(bytes, 16, 2) != Some(SHARED_LIBRARY) {
            return Err("it is no shared library of 64 bits, little-endian");
        }
        let has_all = segments_end(bytes).is_some_and(|end| end <= size);
        match number(bytes, 18, 2).and_then(|machine| u16::try_from(machine).ok()) {
            Some(machine) if has_all => Ok(Self { machine }),
            _ => Err("it is cut off"),
        }
    }

    /// The name of the machine, or its number in ELF.
    pub(crate) fn machine(self) -> String {
        let known = MACHINES.iter().find(|(number, _)| *number == self.machine);
        known.map_or_else(|| format!("machine {}", self.machine), |(_, name)| (*name).to_owned())
    }
}

/// The kind of a file in ELF.
const SHARED_LIBRARY: u64 = 3;

/// A segment that the loader maps.
const LOADED_SEGMENT: u64 = 1;

/// The size of the description of a segment.
const SEGMENT_BYTES: usize = 56;

/// Where the last segment ends that the loader maps; `None` if the descriptions are not among the bytes.
fn segments_end(bytes: &[u8]) -> Option<u64> {
    let table = usize::try_from(number(bytes, 32, 8)?).ok()?;
    let count = usize::try_from(number(bytes, 56, 2)?).ok()?;
    let table = bytes.get(table..table.checked_add(count.checked_mul(SEGMENT_BYTES)?)?)?;
    let mut end = 0;
    for segment in table.chunks_exact(SEGMENT_BYTES) {
        if number(segment, 0, 4)? == LOADED_SEGMENT {
            end = end.max(number(segment, 8, 8)?.checked_add(number(segment, 32, 8)?)?);
        }
    }
    Some(end)
}

/// The number of so many bytes, little-endian.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + len)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// What the processor says of sets of instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InstructionSets {
    /// It has all of them.
    Present,
    /// It lacks these.
    Missing(Vec<String>),
    /// They are not usable without help of the system that only PyTorch asks for.
    Restricted(String),
    /// Nobody knows what this name means.
    Unknown(String),
}

impl InstructionSets {
    /// Judges the sets that a package names (`AOTI_CPU_ISA`). `has` tells whether the processor has a feature, by the
    /// names of the compiler.
    pub(crate) fn of(named: &str, has: impl Fn(&str) -> bool) -> Self {
        let mut missing = Vec::new();
        for name in named.split_whitespace() {
            let Some((_, features)) = SETS.iter().find(|(set, _)| set.eq_ignore_ascii_case(name)) else {
                return Self::Unknown(name.to_owned());
            };
            if features.contains(&TILES) {
                return Self::Restricted(name.to_owned());
            }
            missing
                .extend(features.iter().filter(|feature| !has(feature)).map(|feature| (*feature).to_owned()));
        }
        if missing.is_empty() { Self::Present } else { Self::Missing(missing) }
    }
}

/// The system lends the registers of this feature to processes that ask for them.
const TILES: &str = "amx-tile";

/// The sets by the names of PyTorch, and the features that its compiler may use.
///
/// As PyTorch: cpu_vec_isa.py, `build_arch_flags`.
const SETS: &[(&str, &[&str])] = &[
    ("INVALID_VEC_ISA", &[]),
    ("AVX2", &["avx2", "fma", "f16c"]),
    ("AVX512", &["avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"]),
    ("AVX512_VNNI", &["avx512vnni"]),
    ("AMX_TILE", &[TILES]),
    ("ASIMD", &["neon"]),
];

/// Whether this processor, and its system, have a feature of [`SETS`].
#[cfg(target_arch = "x86_64")]
pub(crate) fn processor_has(feature: &str) -> bool {
    match feature {
        "avx2" => is_x86_feature_detected!("avx2"),
        "fma" => is_x86_feature_detected!("fma"),
        "f16c" => is_x86_feature_detected!("f16c"),
        "avx512f" => is_x86_feature_detected!("avx512f"),
        "avx512dq" => is_x86_feature_detected!("avx512dq"),
        "avx512vl" => is_x86_feature_detected!("avx512vl"),
        "avx512bw" => is_x86_feature_detected!("avx512bw"),
        "avx512vnni" => is_x86_feature_detected!("avx512vnni"),
        _ => false,
    }
}

/// Whether this processor has a feature of [`SETS`].
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn processor_has(feature: &str) -> bool {
    feature == "neon" && cfg!(target_feature = "neon")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library with one segment, of 100 bytes from the place 200 on.
    fn library(class: u8, order: u8, kind: u16, machine: u16) -> Vec<u8> {
        let mut bytes = vec![0; 64 + SEGMENT_BYTES];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, order]);
        bytes[16..18].copy_from_slice(&kind.to_le_bytes());
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        bytes[56] = 1;
        (bytes[64], bytes[72], bytes[96]) = (1, 200, 100);
        bytes
    }

    #[test]
    fn the_machine_is_read_from_the_begin_of_a_library() {
        let machine = |number| CodeHeader::of(&library(2, 1, 3, number), 300).unwrap().machine();
        assert_eq!([machine(62), machine(183), machine(243)], ["x86_64", "aarch64", "machine 243"]);
        let wrong = Err("it is no shared library of 64 bits, little-endian");
        for other in [library(1, 1, 3, 62), library(2, 2, 3, 62), library(2, 1, 2, 62)] {
            assert_eq!(CodeHeader::of(&other, 300), wrong);
        }
        assert_eq!(CodeHeader::of(&[0; 64], 300), Err("it is no shared library"));
    }

    #[test]
    fn a_library_that_ends_before_its_segments_is_refused() {
        let whole = library(2, 1, 3, 62);
        assert_eq!(CodeHeader::of(&whole, 299), Err("it is cut off"));
        for len in 18..whole.len() {
            assert_eq!(CodeHeader::of(&whole[..len], 300), Err("it is cut off"), "{len}");
        }
        let mut beyond = whole;
        beyond[72..80].fill(0xff);
        assert_eq!(CodeHeader::of(&beyond, 300), Err("it is cut off"));
    }

    #[test]
    fn sets_of_instructions_are_compared_with_the_processor() {
        let avx2 = |feature: &str| ["avx2", "fma", "f16c"].contains(&feature);
        assert_eq!(InstructionSets::of("AVX2", avx2), InstructionSets::Present);
        assert_eq!(InstructionSets::of("avx2", avx2), InstructionSets::Present);
        assert_eq!(InstructionSets::of("INVALID_VEC_ISA", |_| false), InstructionSets::Present);
        let missing = ["avx512f", "avx512dq", "avx512vl", "avx512bw", "avx512vnni"].map(str::to_owned);
        assert_eq!(
            InstructionSets::of("AVX512 AVX512_VNNI", avx2),
            InstructionSets::Missing(missing.to_vec())
        );
        let all = InstructionSets::of("AVX512 AVX512_VNNI AMX_TILE", |_| true);
        assert_eq!(all, InstructionSets::Restricted("AMX_TILE".into()));
        assert_eq!(InstructionSets::of("AVX1024", |_| true), InstructionSets::Unknown("AVX1024".into()));
    }

    #[test]
    fn this_processor_is_known() {
        let basic = if cfg!(target_arch = "x86_64") { "avx2" } else { "neon" };
        assert_eq!(
            processor_has(basic),
            std::fs::read_to_string("/proc/cpuinfo")
                .is_ok_and(|text| { text.split_whitespace().any(|word| word == basic || word == "asimd") })
        );
        assert!(!processor_has("wings"));
    }
}
