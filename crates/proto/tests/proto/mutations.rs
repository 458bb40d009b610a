//! Tests files with one changed character. The result must be a configuration, or an error that names a line.

use std::path::Path;

use proto::text::parse;

/// A small reproducible generator of numbers (Knuth's constants).
struct TestRandom(u64);

impl TestRandom {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

const LETTERS: &[u8] = b"{}[]<>:;,\"'\\#-.0179xeaTn_ \n\t\0\xff";

fn mutate(source: &[u8], dice: &mut TestRandom) -> Vec<u8> {
    let mut mutated = source.to_vec();
    let at = dice.roll(mutated.len());
    let letter = LETTERS[dice.roll(LETTERS.len())];
    match dice.roll(4) {
        0 => mutated[at] = letter,
        1 => mutated.insert(at, letter),
        2 => drop(mutated.remove(at)),
        _ => mutated.truncate(at),
    }
    mutated
}

#[test]
fn a_changed_character_gives_a_configuration_or_an_error_on_a_line_of_the_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut dice = TestRandom(1);
    let (mut read, mut refused) = (0, 0);
    for path in paths {
        let source = std::fs::read(&path).unwrap();
        for _ in 0..150 {
            let mutated = mutate(&source, &mut dice);
            match parse(&mutated) {
                Ok(parsed) => {
                    let json = proto::json::to_json(&parsed.config);
                    proto::json::parse(&json).unwrap_or_else(|error| panic!("{error} in {json}"));
                    read += 1;
                }
                Err(error) => {
                    let lines = mutated.iter().filter(|byte| **byte == b'\n').count() + 1;
                    assert!((1..=lines).contains(&error.line), "{error}");
                    assert!(error.column >= 1 && !error.message.is_empty());
                    refused += 1;
                }
            }
        }
    }
    assert!(read > 50 && refused > 200, "{read} read, {refused} refused");
}
