//! Archives as PyTorch writes them, and archives that break a rule.
use super::*;
use crate::test_archives::{Compression, archive};

fn list(bytes: &[u8]) -> Result<PackageArchive<Vec<u8>>, ArchiveRefusal> {
    PackageArchive::list(bytes.to_vec(), bytes.len() as u64)
}

fn content_of(bytes: &[u8], path: &str) -> Result<Vec<u8>, ArchiveRefusal> {
    let archive = list(bytes)?;
    let member = archive.members().iter().find(|member| member.path == path).expect("the member is there");
    archive.read(member, 1 << 20)
}

fn refusal(members: &[(&str, &[u8])]) -> String {
    list(&archive(members, Compression::Stored)).unwrap_err().to_string()
}

#[test]
fn members_have_paths_below_the_one_folder() {
    let members: [(&str, &[u8]); 3] =
        [("model/byteorder", b"little"), ("model/data/weights/x", b"12"), ("data/aotinductor/y", b"")];
    for compression in [Compression::Stored, Compression::Deflated] {
        let bytes = archive(&members, compression);
        let listed = list(&bytes).unwrap();
        let paths: Vec<_> = listed.members().iter().map(|member| member.path.as_str()).collect();
        assert_eq!(paths, ["byteorder", "data/weights/x", "data/aotinductor/y"]);
        assert_eq!(content_of(&bytes, "byteorder").unwrap(), b"little");
        assert_eq!(content_of(&bytes, "data/aotinductor/y").unwrap(), b"");
        let mut first = [7; 8];
        listed.read_first(&listed.members()[1], &mut first).unwrap();
        assert_eq!(first, *b"12\x07\x07\x07\x07\x07\x07");
    }
}

#[test]
fn a_file_that_is_cut_off_is_refused_wherever_it_ends() {
    let whole = archive(&[("m/a", &[5; 300]), ("m/b", b"content")], Compression::Stored);
    for len in 0..whole.len() {
        let error = list(&whole[..len]).unwrap_err().to_string();
        assert!(error.starts_with("is no archive of PyTorch, or its end is missing: "), "{len}: {error}");
    }
}

#[test]
fn a_changed_byte_is_seen_when_the_member_is_read() {
    let mut bytes = archive(&[("m/a", b"some content")], Compression::Stored);
    let place = bytes.windows(4).position(|part| part == b"some").unwrap();
    bytes[place] ^= 1;
    let error = content_of(&bytes, "a").unwrap_err().to_string();
    assert!(error.starts_with("has the member 'a', which cannot be read: Invalid checksum"), "{error}");
}

#[test]
fn paths_stay_in_their_folder() {
    for path in ["m/../x", "/etc/passwd", "m//x", "m/./x", "m\\x"] {
        let text = refusal(&[(path, b"")]);
        assert_eq!(text, format!("has the member '{path}', whose path leads out of a folder"));
    }
    let text = refusal(&[(&"p".repeat(MOST_PATH_BYTES + 1), b"")]);
    assert_eq!(text, "has a path of 1025 bytes, more than 1024");
    assert_eq!(refusal(&[("m/x", b""), ("n/x", b"")]), "has the member 'x' twice");
}

#[test]
fn an_archive_that_would_fill_the_disk_is_refused_before_it_is_read() {
    let bytes = archive(&[("m/x", &[0; 1 << 20])], Compression::Deflated);
    let error = list(&bytes).unwrap_err().to_string();
    assert!(error.contains("expands to 1048576, more than 100 times as many"), "{error}");
}

#[test]
fn members_that_overlap_are_refused() {
    let mut bytes = archive(&[("m/x", b"12345678")], Compression::Stored);
    // The entry of the list has the sizes at the places 20 and 24.
    let entry = bytes.windows(4).rposition(|part| part == b"PK\x01\x02").unwrap();
    for place in [entry + 20, entry + 24] {
        bytes[place..place + 4].copy_from_slice(&5000_u32.to_le_bytes());
    }
    let error = list(&bytes).unwrap_err().to_string();
    assert!(
        error.contains("has members of 5000 bytes, more than the") && error.ends_with("they overlap"),
        "{error}"
    );
}

#[test]
fn a_member_that_is_larger_than_it_says_is_refused() {
    let mut bytes = archive(&[("m/x", &[1; 5000])], Compression::Deflated);
    let entry = bytes.windows(4).rposition(|part| part == b"PK\x01\x02").unwrap();
    bytes[entry + 24..entry + 28].copy_from_slice(&100_u32.to_le_bytes());
    let error = content_of(&bytes, "x").unwrap_err().to_string();
    let begin = "has the member 'x', which cannot be read: Invalid size: expected 100, got ";
    assert!(error.starts_with(begin), "{error}");
}

#[test]
fn more_members_than_a_package_can_have_are_refused() {
    let paths: Vec<String> = (0..=MOST_MEMBERS).map(|index| format!("m/{index}")).collect();
    let members: Vec<(&str, &[u8])> = paths.iter().map(|path| (path.as_str(), &b""[..])).collect();
    assert_eq!(refusal(&members), "has more than 10000 members");
}

#[test]
fn a_member_that_is_too_large_to_be_read_whole_is_refused() {
    let bytes = archive(&[("m/x", &[1; 50])], Compression::Stored);
    let archive = list(&bytes).unwrap();
    let error = archive.read(&archive.members()[0], 49).unwrap_err().to_string();
    assert_eq!(error, "has the member 'x', which cannot be read: it has 50 bytes, more than 49");
}
