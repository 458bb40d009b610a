//! Writes the header from the tables, and compares it and the exported functions with them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::table::Interface;
use super::{exports, header, signatures, table};
use crate::files;

/// The path of the header, relative to the root.
const HEADER: &str = "include/nereid.h";
const TABLES: [&str; 2] = ["crates/c-api/abi/types.txt", "crates/c-api/abi/functions.txt"];
/// The folders of exported functions.
const EXPORTING_CRATES: [&str; 2] = ["crates/c-api/src", "crates/in-process/src"];

/// Writes the header.
///
/// # Errors
/// A table is wrong, or a file cannot be read or written.
pub(crate) fn write_header(root: &Path) -> Result<()> {
    files::write(&root.join(HEADER), header_text(root)?)
}

/// Differences of the header and of the exported functions from the tables, one line each.
///
/// # Errors
/// A table is wrong, or a file cannot be read.
pub(crate) fn broken(root: &Path) -> Result<Vec<String>> {
    let interfaces = read_tables(root)?;
    let mut broken = signatures::broken(&interfaces, &exports::find(root, &EXPORTING_CRATES)?);
    let current = fs::read_to_string(root.join(HEADER)).unwrap_or_default();
    if current != header_text(root)? {
        broken.push(format!("{HEADER} is not what the tables and the sources say: cargo xtask header"));
    }
    Ok(broken)
}

/// The names of the types in the tables, without their prefixes: `Message` of `TRITONSERVER_Message`.
///
/// # Errors
/// A table is wrong, or cannot be read.
pub(crate) fn type_names(root: &Path) -> Result<BTreeSet<String>> {
    let interfaces = read_tables(root)?;
    let names = interfaces.iter().flat_map(|interface| {
        let handles = interface.handles.iter().map(|handle| &handle.name);
        let enums = interface.enums.iter().map(|listed| &listed.name);
        handles.chain(enums).chain(interface.callbacks.iter().map(|callback| &callback.name))
    });
    Ok(names.filter_map(|name| Some(name.split_once('_')?.1.to_owned())).collect())
}

fn header_text(root: &Path) -> Result<String> {
    let docs = exports::find(root, &EXPORTING_CRATES)?
        .into_iter()
        .map(|export| (export.name, export.docs))
        .collect();
    Ok(header::text(&read_tables(root)?, &docs))
}

fn read_tables(root: &Path) -> Result<Vec<Interface>> {
    let mut interfaces = Vec::new();
    for path in TABLES {
        let text = fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        table::read(&text, &mut interfaces).with_context(|| format!("in {path}"))?;
    }
    ensure!(!interfaces.is_empty(), "the tables of the C interfaces are empty");
    Ok(interfaces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::table::Side;
    use crate::workspace;

    fn functions(side: Side) -> Vec<String> {
        let interfaces = read_tables(&workspace::root()).unwrap();
        let functions = interfaces.into_iter().flat_map(|interface| interface.functions);
        functions.filter(|function| function.side == side).map(|function| function.prototype.name).collect()
    }

    #[test]
    fn the_tables_name_every_function_once() {
        let (server, plugin) = (functions(Side::Server), functions(Side::Plugin));
        assert_eq!((server.len(), plugin.len()), (284, 23));
        let all: std::collections::BTreeSet<_> = server.iter().chain(&plugin).collect();
        assert_eq!(all.len(), 307);
    }

    #[test]
    fn the_tables_name_every_type() {
        let interfaces = read_tables(&workspace::root()).unwrap();
        let count = |of: fn(&Interface) -> usize| interfaces.iter().map(of).sum::<usize>();
        assert_eq!(count(|interface| interface.handles.len()), 32);
        assert_eq!(count(|interface| interface.enums.len()), 23);
        assert_eq!(count(|interface| interface.callbacks.len()), 11);
    }

    #[test]
    fn the_header_and_the_functions_are_as_the_tables_say() {
        assert_eq!(broken(&workspace::root()).unwrap(), Vec::<String>::new());
    }
}
