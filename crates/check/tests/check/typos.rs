//! One wrong character in a word of a configuration: the check names the word that was meant.
use std::{fs, path::Path};

use config::examine;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

const TYPOS: usize = 200;

/// The names of fields and of enumeration values in a configuration, with their byte offsets.
fn words(source: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let (mut quote, mut is_comment, mut begin) = (None, false, None);
    for (at, c) in source.char_indices().chain([(source.len(), ' ')]) {
        let is_word = quote.is_none() && !is_comment && (c.is_ascii_alphanumeric() || c == '_');
        match (is_word, begin) {
            (true, None) => begin = Some(at),
            (false, Some(start)) => {
                words.push((start, &source[start..at]));
                begin = None;
            }
            _ => {}
        }
        match (quote, c) {
            (None, '"' | '\'') if !is_comment => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None, '#') => is_comment = true,
            (_, '\n') => is_comment = false,
            _ => {}
        }
    }
    let is_name = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic())
            && !["true", "false", "inf", "nan"].contains(&word)
    };
    words.retain(|(_, word)| is_name(word));
    words
}

/// The word with one character inserted, left out, replaced, or swapped with the next.
fn edited(word: &str, random: &mut StdRng) -> String {
    let mut letters: Vec<char> = word.chars().collect();
    let letter = char::from(random.random_range(b'a'..=b'z'));
    let at = random.random_range(0..letters.len());
    match random.random_range(0..4) {
        0 => letters.insert(at, letter),
        1 => _ = letters.remove(at),
        2 => letters[at] = letter,
        _ => letters.swap(at, (at + 1).min(word.len() - 1)),
    }
    letters.into_iter().collect()
}

#[test]
fn nineteen_of_twenty_typos_are_named_with_the_right_word() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto/tests/configs");
    let mut paths: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "pbtxt"));
    paths.sort();
    let sources: Vec<_> = paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut random = StdRng::seed_from_u64(20_261_123);
    let (mut tried, mut right) = (0, 0);
    while tried < TYPOS {
        let source = sources.choose(&mut random).unwrap();
        let (at, word) = *words(source).choose(&mut random).unwrap();
        let typo = edited(word, &mut random);
        let changed = format!("{}{typo}{}", &source[..at], &source[at + word.len()..]);
        // Without an effect, or by chance another word of the schema.
        let examined = examine(Path::new("config.pbtxt"), changed.as_bytes());
        if typo == word || typo.is_empty() || examined.errors.is_empty() {
            continue;
        }
        tried += 1;
        let line = source[..at].matches('\n').count() + 1;
        let first = &examined.errors.problems()[0];
        if first.line == Some(line) && first.suggestion.as_deref() == Some(word) {
            right += 1;
        } else {
            println!("{typo} for {word}: {} ({:?})", first.text, first.suggestion);
        }
    }
    println!("{right} of {tried}");
    assert!(right * 100 >= tried * 95, "{right} of {tried}");
}
