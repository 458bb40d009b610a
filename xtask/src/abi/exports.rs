//! The functions that Rust sources export, found by their text.
//!
//! Formatted sources are regular enough for that: a function begins with `extern "C"`, `fn` and its name on one line.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const MARK: &str = "fn TRITON";

/// An exported function as its source has it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) name: String,
    /// What its documentation says, without headings and what stands below them.
    pub(crate) docs: String,
    /// Types, with aliases replaced.
    pub(crate) parameters: Vec<String>,
    /// Empty for none.
    pub(crate) returns: String,
}

/// All exported functions of the folders. A folder that does not exist has none.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn find(root: &Path, folders: &[&str]) -> Result<Vec<Export>> {
    let mut sources = Vec::new();
    for folder in folders {
        read_all(&root.join(folder), &mut sources)?;
    }
    let aliases: Vec<_> = sources.iter().flat_map(|source| aliases(source)).collect();
    Ok(sources.iter().flat_map(|source| exports(source, &aliases)).collect())
}

fn read_all(folder: &Path, sources: &mut Vec<String>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            read_all(&path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            sources.push(text);
        }
    }
    Ok(())
}

/// Names and meanings of type aliases.
fn aliases(source: &str) -> Vec<(String, String)> {
    let lines = source.match_indices("type ").filter(|(at, _)| {
        let line = source[..*at].rfind('\n').map_or(0, |newline| newline + 1);
        matches!(source[line..*at].trim(), "" | "pub" | "pub(crate)" | "pub(super)")
    });
    let statements = lines.filter_map(|(at, _)| {
        let (name, meaning) = source[at + 5..].split_once(';')?.0.split_once('=')?;
        Some((name.trim().to_owned(), one_line(meaning)))
    });
    statements.collect()
}

fn exports(source: &str, aliases: &[(String, String)]) -> Vec<Export> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices(MARK) {
        let line = source[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let above = above(&source[..line]);
        if !source[line..at].contains("extern \"C") || !above.iter().any(|line| line.contains("no_mangle")) {
            continue;
        }
        let Some((head, _)) = source[at + 3..].split_once('{') else { continue };
        let Some((name, rest)) = head.split_once('(') else { continue };
        let Some((parameters, returns)) = rest.rsplit_once(')') else { continue };
        let parameters = one_line(parameters);
        let kinds = split(&parameters).into_iter().filter_map(|parameter| parameter.split_once(':'));
        let returns = returns.trim().strip_prefix("->").unwrap_or_default().trim();
        found.push(Export {
            name: name.to_owned(),
            docs: docs(&above),
            parameters: kinds.map(|(_, kind)| resolve(kind.trim(), aliases)).collect(),
            returns: resolve(returns, aliases),
        });
    }
    found
}

/// The lines between a function and what stands before it.
fn above(text: &str) -> Vec<&str> {
    let lines = text.lines().rev().map(str::trim).take_while(|line| !line.is_empty() && *line != "}");
    let mut lines: Vec<_> = lines.collect();
    lines.reverse();
    lines
}

fn docs(above: &[&str]) -> String {
    let lines = above.iter().filter_map(|line| line.strip_prefix("///")).map(str::trim);
    let body: Vec<_> = lines.take_while(|line| !line.starts_with('#')).collect();
    body.join("\n").trim().to_owned()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Splits at the commas that are not within brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0_i32, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '<' | '[' => depth += 1,
            // Not the arrow of a function type.
            '>' if text[..at].ends_with('-') => {}
            ')' | '>' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// The type with the alias at its end replaced by what it means.
fn resolve(kind: &str, aliases: &[(String, String)]) -> String {
    let (pointers, last) = kind.rsplit_once(' ').map_or(("", kind), |(pointers, last)| (pointers, last));
    let last = last.rsplit("::").next().unwrap_or(last);
    let meaning = aliases.iter().find(|(name, _)| name == last).map_or(last, |(_, meaning)| meaning);
    if pointers.starts_with('*') { format!("{pointers} {meaning}") } else { replace_whole(kind, meaning) }
}

/// A type that is no pointer: its meaning if it is a name, else as it stands.
fn replace_whole(kind: &str, meaning: &str) -> String {
    if kind.contains(' ') { kind.to_owned() } else { meaning.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
/// Kind.
pub type Kind = u32;
type Call = Option<extern \"C\" fn(*mut X, u32) -> bool>;

/// Does it.
///
/// # Errors
/// None.
#[no_mangle]
pub extern \"C\" fn TRITON_Do(
    thing: *mut *const Thing,
    kind: *mut enums::Kind,
    call: Call,
    n: usize,
) -> *mut CError {
    body()
}
#[no_mangle]
pub extern \"C\" fn TRITON_Drop(thing: *mut Thing) {}

fn TRITON_NotExported() {}
";

    #[test]
    fn exported_functions_are_found_with_documentation_and_types() {
        let found = exports(SOURCE, &aliases(SOURCE));
        assert_eq!(aliases("if memory_type == CPU { f();\n/// type T = u8;"), []);
        let names: Vec<_> = found.iter().map(|export| export.name.as_str()).collect();
        assert_eq!(names, ["TRITON_Do", "TRITON_Drop"]);
        assert_eq!((found[0].docs.as_str(), found[1].docs.as_str()), ("Does it.", ""));
        assert_eq!(
            found[0].parameters,
            ["*mut *const Thing", "*mut u32", "Option<extern \"C\" fn(*mut X, u32) -> bool>", "usize"]
        );
        assert_eq!((found[0].returns.as_str(), found[1].returns.as_str()), ("*mut CError", ""));
    }
}
