//! Reads the lines of `requirements.txt` of a model in a sandbox, and writes them anew.
//!
//! An installer gets only what this module has written from what it has understood: names of packages with their extras,
//! versions, markers and hashes. So the module and an installer cannot disagree about where a line ends, what a comment
//! is, or what is an option.
use std::str::FromStr;

use pep508_rs::{Requirement, VerbatimUrl, VersionOrUrl};

/// The line that is refused, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefusedLine {
    /// The line, without the space around it.
    line: String,
    /// The rule that it breaks.
    rule: String,
}

impl RefusedLine {
    /// The refusal, in words. `file` is where the line stands.
    pub(crate) fn text(&self, file: &str) -> String {
        let shown: String = self.line.chars().flat_map(shown).collect();
        format!("the line '{shown}' of {file} {}", self.rule)
    }
}

/// A character of a line, as a log shows it.
fn shown(character: char) -> Vec<char> {
    if separates(character) { character.escape_default().collect() } else { vec![character] }
}

/// The algorithms of hashes that installers check, and the number of hexadecimal digits of each.
const HASHES: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// The requirements of a file, as the lines that an installer gets.
///
/// # Errors
/// The first line that is no name of a package, or that has a character which ends a line for some programs and not for
/// others.
pub(crate) fn accepted(content: &[u8]) -> Result<String, RefusedLine> {
    let text = std::str::from_utf8(content).map_err(|_| RefusedLine {
        line: String::from_utf8_lossy(content).lines().next().unwrap_or_default().to_owned(),
        rule: "or a later one is not UTF-8".to_owned(),
    })?;
    // Programs of Windows write it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut accepted = String::new();
    let mut pending = String::new();
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.chars().any(separates) {
            return Err(refused(line, "has a control character or a separator of lines"));
        }
        // As pip: a comment ends a line that was continued.
        let is_comment = line.trim_start().starts_with('#');
        if let Some(begin) = line.strip_suffix('\\').filter(|_| !is_comment) {
            pending.push_str(begin);
            continue;
        }
        if !is_comment {
            pending.push_str(line);
        }
        accept(&std::mem::take(&mut pending), &mut accepted)?;
    }
    accept(&pending, &mut accepted)?;
    Ok(accepted)
}

/// Whether a character could end a line, or hide what a line says.
fn separates(character: char) -> bool {
    (character.is_control() && character != '\t') || matches!(character, '\u{2028}' | '\u{2029}')
}

fn refused(line: &str, rule: &str) -> RefusedLine {
    RefusedLine { line: line.trim().to_owned(), rule: rule.to_owned() }
}

/// Adds the requirement of a whole line, if there is one.
fn accept(whole: &str, accepted: &mut String) -> Result<(), RefusedLine> {
    let whole = whole.replace('\t', " ");
    let line = without_comment(&whole).trim();
    if line.is_empty() {
        return Ok(());
    }
    let no_name =
        |why: &str| refused(line, &format!("is no name of a package, and the model runs in a sandbox{why}"));
    let (requirement, hashes) = match line.split_once(" --hash=") {
        None => (line, None),
        Some((requirement, hashes)) => (requirement.trim_end(), Some(hashes)),
    };
    // The parser of requirements panics at some other characters.
    if !requirement.is_ascii() || !names_end_well(requirement) {
        return Err(no_name(""));
    }
    let parsed = Requirement::<VerbatimUrl>::from_str(requirement).map_err(|_| no_name(""))?;
    if matches!(parsed.version_or_url, Some(VersionOrUrl::Url(_))) {
        return Err(no_name(": it names a place"));
    }
    let written = parsed.to_string();
    // What is written comes from the grammar. This is what installers look for besides.
    let is_plain = |character| matches!(character, ' '..='~') && !matches!(character, '$' | '\\' | '#');
    let is_safe = written.chars().all(is_plain) && written.split(' ').all(|word| !word.starts_with('-'));
    if !is_safe {
        return Err(no_name(": it has characters that have a meaning for installers"));
    }
    accepted.push_str(&written);
    for hash in hashes.into_iter().flat_map(|hashes| hashes.split(" --hash=")) {
        let hash = hash.trim();
        let is_known = hash.split_once(':').is_some_and(|(algorithm, digits)| {
            HASHES.contains(&(algorithm, digits.len()))
                && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        });
        if !is_known {
            return Err(no_name(": what follows '--hash=' is no hash"));
        }
        accepted.push_str(" --hash=");
        accepted.push_str(hash);
    }
    accepted.push('\n');
    Ok(())
}

/// Whether the names of the package and of its extras end with a letter or a digit. The parser of requirements panics
/// otherwise.
fn names_end_well(requirement: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '_');
    let before_marker = requirement.split(';').next().unwrap_or_default();
    let names = match before_marker.split_once(']') {
        Some((names, _)) => names,
        None if before_marker.contains('[') => return false,
        None => before_marker.split(|character: char| !is_part(character)).next().unwrap_or_default(),
    };
    let mut names = names.split(|character: char| !is_part(character)).filter(|name| !name.is_empty());
    names.all(|name| name.ends_with(|last: char| last.is_ascii_alphanumeric()))
}

/// The line up to a `#` at its beginning or after space.
fn without_comment(line: &str) -> &str {
    let is_comment = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    line.match_indices('#').map(|(at, _)| at).find(|at| is_comment(*at)).map_or(line, |at| &line[..at])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHA256: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn names_of_packages_are_written_anew() {
        for (given, written) in [
            ("", ""),
            ("# a comment\n\n", ""),
            ("numpy", "numpy\n"),
            ("Only_Here == 2.1 # why\r\n", "only-here==2.1\n"),
            ("torch[cpu] >=2,<3", "torch[cpu]>=2,<3\n"),
            ("a (>=1)\nb~=1.4\nc!=2.*", "a>=1\nb~=1.4\nc!=2.*\n"),
            ("\u{feff}numpy\t==1", "numpy==1\n"),
            ("numpy \\\n  ==1.0\\\n\nscipy", "numpy==1.0\nscipy\n"),
            ("x ; sys_platform == 'linux'", "x ; sys_platform == 'linux'\n"),
        ] {
            assert_eq!(accepted(given.as_bytes()).as_deref(), Ok(written), "{given}");
        }
        let hashed =
            format!("numpy==2.1 ; python_version < '3.14' \\\n    --hash={SHA256} \\\n    --hash={SHA256}\n");
        let written = format!("numpy==2.1 ; python_full_version < '3.14' --hash={SHA256} --hash={SHA256}\n");
        assert_eq!(accepted(hashed.as_bytes()), Ok(written));
    }

    #[test]
    fn everything_else_is_refused() {
        let hashed = format!("--hash={SHA256}");
        for line in [
            "-e .",
            "./package",
            "package/",
            "evil.zip",
            "x.",
            "x- ==1",
            "1.*",
            "x[y-]",
            "x[y-",
            "x[y.,z]==1.*",
            "x[y_;z]",
            "git+https://example.com/x",
            "x @ file:///tmp/x.tar.gz",
            "x@ https://example.com/x.tar.gz",
            "--index-url https://example.com",
            "-r other.txt",
            "https://example.com/x.tar.gz",
            // Hashes of nothing, and options after a hash.
            "--hash=sha256:00",
            "--hash=sha256:00 -e git+https://example.com/x",
            &hashed,
            "x --hash=sha256:00",
            "x --hash=md5:0123456789abcdef0123456789abcdef",
            &format!("x {hashed} -e git+https://example.com/x"),
            &format!("x {hashed} --config-settings=a=b"),
            &format!("x {hashed}\\\n-e ."),
            "x --global-option=y",
            "x\\\n --index-url=https://example.com",
            // The parser panics at this one.
            "x==2.1 ; python_version < \"3.28\"\u{feff} y",
            // What programs take for the end of a line.
            "x\r-e .",
            "x\u{b}-e .",
            "x\u{c}-e .",
            "x\u{1c}-e .",
            "x\u{85}-e .",
            "x\u{2028}-e .",
            "x\u{2029}-e .",
            "# a comment\r-e .",
            "# a comment\u{2028}-e .",
            "x\0",
            // Options and variables in the strings of markers.
            "x ; os_name == 'a --index-url=https://example.com'",
            "x ; os_name == '${HOME}'",
        ] {
            let refusal = accepted(line.as_bytes());
            assert!(refusal.is_err(), "{line:?}: {refusal:?}");
        }
        assert!(accepted(b"x\xff").is_err());
        let words =
            accepted(b"numpy\n--index-url https://example.com\n").unwrap_err().text("requirements.txt");
        assert_eq!(
            words,
            "the line '--index-url https://example.com' of requirements.txt is no name of a package, and the model runs in a sandbox"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_accepted_and_stays(
            text in "[ -~\n]{0,60}",
            part in r"[ab01._\-\[\],;=<>~!()'@ *]{0,30}",
            name in "[a-z][a-z0-9]{0,5}",
        ) {
            let texts =
                [text.clone(), format!("{name}{text}"), format!("{name} --hash={text}"), format!("{name}{part}")];
            for text in texts {
                if let Ok(written) = accepted(text.as_bytes()) {
                    prop_assert!(written.lines().all(|line| line.starts_with(|first: char| first.is_ascii_alphanumeric())));
                    let options = written.split([' ', '\n']).filter(|word| word.starts_with('-'));
                    prop_assert!(options.into_iter().all(|word| word.starts_with("--hash=")));
                    prop_assert_eq!(accepted(written.as_bytes()), Ok(written.clone()));
                }
            }
        }
    }
}
