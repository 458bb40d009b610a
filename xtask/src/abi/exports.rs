//! Finds the exported functions in the text of Rust sources.
//!
//! Formatted sources are regular enough: a function begins with `extern "C"`, `fn` and its name on one line.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const MARK: &str = "fn TRITON";

/// An exported function as its source has it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) name: String,
    /// Its documentation, without headings and the sections below them.
    pub(crate) docs: String,
    pub(crate) signature: FunctionSignature,
    /// Lines of its body, comments not counted.
    pub(crate) lines: usize,
}

/// The parameters and the result of a function, with aliases replaced.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FunctionSignature {
    pub(crate) parameters: Vec<Type>,
    pub(crate) returns: Type,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// A pointer to a function, null or not.
    Function(Box<FunctionSignature>),
    /// Any other type, as Rust writes it; empty for none.
    Plain(String),
}

/// Names of type aliases and the types they stand for.
type Aliases = Vec<(String, String)>;

/// All exported functions of the folders. A folder that does not exist has none.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn find(root: &Path, folders: &[&str]) -> Result<Vec<Export>> {
    let mut sources = Vec::new();
    for folder in folders {
        read_all(&root.join(folder), &mut sources)?;
    }
    let aliases: Aliases = sources.iter().flat_map(|source| aliases(source)).collect();
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

fn aliases(source: &str) -> Aliases {
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

fn exports(source: &str, aliases: &Aliases) -> Vec<Export> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices(MARK) {
        let line = source[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let above = above(&source[..line]);
        if !source[line..at].contains("extern \"C") || !above.iter().any(|line| line.contains("no_mangle")) {
            continue;
        }
        let Some((head, rest)) = source[at..].split_once('{') else { continue };
        let head = one_line(head);
        let Some((name, _)) = head["fn ".len()..].split_once('(') else { continue };
        let Some(signature) = signature(&head, aliases) else { continue };
        found.push(Export { name: name.to_owned(), docs: docs(&above), signature, lines: body_lines(rest) });
    }
    found
}

/// The number of lines after the brace that opens a function.
fn body_lines(rest: &str) -> usize {
    let body = if rest.starts_with('}') { "" } else { rest.split_once("\n}").map_or(rest, |(body, _)| body) };
    body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// The signature in a text such as `fn name(a: A, b: B) -> C` or `fn(A, B)`.
fn signature(text: &str, aliases: &Aliases) -> Option<FunctionSignature> {
    let (_, rest) = text.split_once("fn")?.1.split_once('(')?;
    let end = closing(rest)?;
    let parameters = split(&rest[..end]).into_iter().map(|parameter| {
        let kind = parameter.split_once(": ").map_or(parameter, |(_, kind)| kind);
        resolve(kind, aliases)
    });
    let returns = rest[end + 1..].trim().strip_prefix("->").unwrap_or_default();
    Some(FunctionSignature { parameters: parameters.collect(), returns: resolve(returns.trim(), aliases) })
}

/// The index of the parenthesis that closes the one that has just been opened.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The documentation and attributes directly above a function.
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
            // The arrow of a function type does not count.
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

/// The type with aliases replaced by the types they stand for.
fn resolve(kind: &str, aliases: &Aliases) -> Type {
    let bare = kind.strip_prefix("Option<").and_then(|rest| rest.strip_suffix('>')).unwrap_or(kind);
    if bare.contains("fn(") {
        let function = signature(bare, aliases).map(|signature| Type::Function(Box::new(signature)));
        return function.unwrap_or_else(|| Type::Plain(kind.to_owned()));
    }
    let (pointers, last) = bare.rsplit_once(' ').unwrap_or(("", bare));
    let name = last.rsplit("::").next().unwrap_or(last);
    match aliases.iter().find(|(known, _)| known == name) {
        Some((_, meaning)) if pointers.is_empty() => resolve(meaning, aliases),
        Some((_, meaning)) => Type::Plain(format!("{pointers} {meaning}")),
        None if pointers.is_empty() && bare == kind => Type::Plain(name.to_owned()),
        None => Type::Plain(kind.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
/// Kind.
pub type Kind = u32;
type Call = extern \"C\" fn(*mut X, Kind) -> bool;

/// Does it.
///
/// # Errors
/// None.
#[no_mangle]
pub extern \"C\" fn TRITON_Do(
    thing: *mut *const Thing,
    kind: *mut enums::Kind,
    call: Option<Call>,
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
        let plain = |kind: &str| Type::Plain(kind.to_owned());
        let call =
            FunctionSignature { parameters: vec![plain("*mut X"), plain("u32")], returns: plain("bool") };
        assert_eq!(
            found[0].signature.parameters,
            [plain("*mut *const Thing"), plain("*mut u32"), Type::Function(Box::new(call)), plain("usize")]
        );
        assert_eq!(found[0].signature.returns, plain("*mut CError"));
        assert_eq!(found[1].signature.returns, plain(""));
        assert_eq!((found[0].lines, found[1].lines), (1, 0));
    }
}
