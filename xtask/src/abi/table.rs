//! Reads the tables: statements that end with a semicolon, in sections named by headers.

use anyhow::{Context, Result, bail, ensure};

/// One of the four interfaces.
#[derive(Debug, Default)]
pub(crate) struct Interface {
    /// Name of Triton's header.
    pub(crate) header: String,
    /// Prefix of its names.
    pub(crate) prefix: String,
    /// Major and minor number.
    pub(crate) version: (u32, u32),
    pub(crate) handles: Vec<OpaqueType>,
    pub(crate) enums: Vec<Enum>,
    pub(crate) callbacks: Vec<Prototype>,
    pub(crate) functions: Vec<Function>,
}

/// An opaque structure.
#[derive(Debug)]
pub(crate) struct OpaqueType {
    pub(crate) docs: String,
    pub(crate) name: String,
}

/// An enumeration with its constants.
#[derive(Debug)]
pub(crate) struct Enum {
    pub(crate) docs: String,
    pub(crate) tag: String,
    pub(crate) name: String,
    pub(crate) constants: Vec<(String, u32)>,
}

/// The C declaration of a function.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prototype {
    pub(crate) docs: String,
    pub(crate) returns: String,
    pub(crate) name: String,
    pub(crate) parameters: Vec<PrototypeParameter>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PrototypeParameter {
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// Which side defines a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Plugin,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) side: Side,
    pub(crate) prototype: Prototype,
}

/// Adds the statements of a table.
///
/// # Errors
/// An invalid statement, with its text.
pub(crate) fn read(table: &str, interfaces: &mut Vec<Interface>) -> Result<()> {
    let mut current = None;
    let (mut docs, mut statement) = (String::new(), String::new());
    for line in table.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            docs = format!("{docs} {}", doc.trim()).trim().to_owned();
        } else if line.is_empty() || line.starts_with('#') {
            ensure!(statement.is_empty(), "a statement without a semicolon: {statement}");
        } else if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            current = Some(index_of(header, interfaces));
        } else {
            statement = format!("{statement} {line}").trim().to_owned();
            let Some(whole) = statement.strip_suffix(';') else { continue };
            let interface = current.and_then(|index: usize| interfaces.get_mut(index));
            let interface = interface.context("a statement before the first section")?;
            add(whole, std::mem::take(&mut docs), interface)
                .with_context(|| format!("wrong statement: {whole}"))?;
            statement.clear();
        }
    }
    ensure!(statement.is_empty(), "a statement without a semicolon: {statement}");
    Ok(())
}

fn index_of(header: &str, interfaces: &mut Vec<Interface>) -> usize {
    let known = interfaces.iter().position(|interface| interface.header == header);
    known.unwrap_or_else(|| {
        interfaces.push(Interface { header: header.to_owned(), ..Interface::default() });
        interfaces.len() - 1
    })
}

fn add(statement: &str, docs: String, interface: &mut Interface) -> Result<()> {
    let (word, rest) = statement.split_once(' ').context("one word only")?;
    match word {
        "version" => {
            let [prefix, major, minor] = words(rest)?;
            interface.prefix = prefix.to_owned();
            interface.version = (major.parse()?, minor.parse()?);
        }
        "handle" => {
            let [name] = words(rest)?;
            interface.handles.push(OpaqueType { docs, name: name.to_owned() });
        }
        "enum" => {
            let (head, constants) = rest.split_once('{').context("no brace")?;
            let [tag, name] = words(head.trim())?;
            let constants = constants.trim().strip_suffix('}').context("no closing brace")?;
            let constants = constants.split(',').map(constant).collect::<Result<_>>()?;
            interface.enums.push(Enum { docs, tag: tag.to_owned(), name: name.to_owned(), constants });
        }
        "callback" => interface.callbacks.push(prototype(rest, docs)?),
        "server" => {
            interface.functions.push(Function { side: Side::Server, prototype: prototype(rest, docs)? });
        }
        "plugin" => {
            interface.functions.push(Function { side: Side::Plugin, prototype: prototype(rest, docs)? });
        }
        other => bail!("'{other}' begins no statement"),
    }
    Ok(())
}

fn words<const N: usize>(text: &str) -> Result<[&str; N]> {
    let words: Vec<&str> = text.split(' ').collect();
    words.try_into().map_err(|words: Vec<_>| anyhow::anyhow!("{} words instead of {N}", words.len()))
}

fn constant(text: &str) -> Result<(String, u32)> {
    let (name, number) = text.split_once('=').with_context(|| format!("no number: {text}"))?;
    Ok((name.trim().to_owned(), number.trim().parse()?))
}

fn prototype(text: &str, docs: String) -> Result<Prototype> {
    let (head, parameters) = text.split_once('(').context("no parenthesis")?;
    let parameters = parameters.strip_suffix(')').context("no closing parenthesis")?;
    let PrototypeParameter { kind: returns, name } = parameter(head)?;
    let parameters = parameters.split(',').map(parameter).collect::<Result<_>>()?;
    Ok(Prototype { docs, returns, name, parameters })
}

/// Type and name; the name is the last word.
fn parameter(text: &str) -> Result<PrototypeParameter> {
    let text = text.trim();
    let (kind, name) = text.rsplit_once(' ').with_context(|| format!("no type or no name: {text}"))?;
    Ok(PrototypeParameter { kind: kind.to_owned(), name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_may_run_over_lines_and_carry_their_text() {
        let table = "# words\n[a.h]\nversion A 1 2;\n/// Does\n/// it.\nplugin A_Error* A_Do(\n    const char** name, \
                     unsigned int n);\nenum a_e A_E { A_X = 0,\n A_Y = 1 };\n";
        let mut interfaces = Vec::new();
        read(table, &mut interfaces).unwrap();
        let [interface] = interfaces.as_slice() else { panic!("{interfaces:?}") };
        assert_eq!(interface.version, (1, 2));
        let Function { side, prototype: function } = &interface.functions[0];
        assert_eq!((*side, function.docs.as_str()), (Side::Plugin, "Does it."));
        assert_eq!((function.returns.as_str(), function.name.as_str()), ("A_Error*", "A_Do"));
        let kinds: Vec<_> = function.parameters.iter().map(|parameter| parameter.kind.as_str()).collect();
        assert_eq!(kinds, ["const char**", "unsigned int"]);
        assert_eq!(interface.enums[0].constants, [("A_X".to_owned(), 0), ("A_Y".to_owned(), 1)]);
    }

    #[test]
    fn a_wrong_statement_is_shown() {
        let error = |table: &str| format!("{:#}", read(table, &mut Vec::new()).unwrap_err());
        assert_eq!(error("[a.h]\nfoo bar;\n"), "wrong statement: foo bar: 'foo' begins no statement");
        assert_eq!(error("[a.h]\nhandle A\n\n"), "a statement without a semicolon: handle A");
        assert_eq!(error("handle A;\n"), "a statement before the first section");
    }
}
