//! Checks that a type shows what it is: its fields stay private where its `impl` blocks are in several files, and it has
//! few methods.
//!
//! Files below the file of a type see its private fields. `type_shape.txt` lists the types that break a rule today.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use syn::{Fields, ImplItem, Item, Type, Visibility};

use super::exception_list::{ExceptionList, Upkeep};
use super::names;
use super::rust_graph::is_for_tests;

/// A type with more methods is several things.
const MOST_METHODS: usize = 40;

/// The types that may have more, each with its reason.
const LARGE: &[(&str, &str)] = &[("Lifecycle", "one state machine, whose areas are files")];

/// Violations of the rules, one line each. `sources`: all files in Rust.
///
/// # Errors
/// A source is no Rust, or the list cannot be read or written.
pub(super) fn broken(root: &Path, sources: &[(String, String)], upkeep: Upkeep) -> Result<Vec<String>> {
    let mut shapes = TypeShapes::default();
    for (path, text) in sources.iter().filter(|(path, _)| names::is_of_product(path)) {
        let file = syn::parse_file(text).with_context(|| format!("{path} is no Rust"))?;
        shapes.add(path, &file.items);
    }
    ExceptionList::read(root, "type_shape.txt", upkeep)?.compare(&shapes.broken())
}

/// The types of all crates, by crate and name.
#[derive(Default)]
struct TypeShapes<'s>(BTreeMap<(&'s str, String), TypeShape<'s>>);

#[derive(Default)]
struct TypeShape<'s> {
    shows_fields: bool,
    methods: usize,
    /// The files with `impl` blocks.
    files: BTreeSet<&'s str>,
}

impl<'s> TypeShapes<'s> {
    fn add(&mut self, path: &'s str, items: &[Item]) {
        for item in items.iter().filter(|item| !is_for_tests(item)) {
            match item {
                Item::Struct(item) => {
                    self.shape(path, item.ident.to_string()).shows_fields |= shows(&item.fields);
                }
                Item::Impl(block) => {
                    let Some(name) = name_of(&block.self_ty) else { continue };
                    let shape = self.shape(path, name);
                    shape.files.insert(path);
                    if block.trait_.is_none() {
                        let is_method = |item: &&ImplItem| matches!(item, ImplItem::Fn(_));
                        shape.methods += block.items.iter().filter(is_method).count();
                    }
                }
                Item::Mod(module) => {
                    let items = module.content.as_ref().map(|(_, items)| items.as_slice());
                    self.add(path, items.unwrap_or_default());
                }
                _ => {}
            }
        }
    }

    fn shape(&mut self, path: &'s str, name: String) -> &mut TypeShape<'s> {
        let folder = path.split("/src/").next().unwrap_or_default();
        self.0.entry((folder, name)).or_default()
    }

    /// The entry of each violation, and its message.
    fn broken(&self) -> BTreeMap<String, String> {
        let mut broken = BTreeMap::new();
        for ((folder, name), shape) in &self.0 {
            if shape.shows_fields && shape.files.len() > 1 {
                let files: Vec<&str> = shape.files.iter().copied().collect();
                broken.insert(
                    format!("{folder} {name} shows fields"),
                    format!(
                        "{folder}: {name} has impl blocks in several files, so no field of it may be visible in the \
                         crate: {}",
                        files.join(", ")
                    ),
                );
            }
            if shape.methods > MOST_METHODS && !LARGE.iter().any(|(large, _)| large == name) {
                broken.insert(
                    format!("{folder} {name} has many methods"),
                    format!("{folder}: {name} has {} methods, more than {MOST_METHODS}", shape.methods),
                );
            }
        }
        broken
    }
}

/// Whether a field is visible outside of its module, but not of the crate.
fn shows(fields: &Fields) -> bool {
    fields.iter().any(|field| matches!(field.vis, Visibility::Restricted(_)))
}

/// The name of a type of its own, without paths and arguments.
fn name_of(named: &Type) -> Option<String> {
    match named {
        Type::Path(named) => Some(named.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        let mut shapes = TypeShapes::default();
        for (path, text) in files {
            shapes.add(path, &syn::parse_file(text).unwrap().items);
        }
        shapes.broken().into_keys().collect()
    }

    #[test]
    fn fields_of_a_type_in_several_files_are_private() {
        let shown = "pub struct Model { pub(crate) name: u8 } impl Model {}";
        let other = ("crates/a/src/model/infer.rs", "impl super::Model { fn infer() {} }");
        assert_eq!(broken(&[("crates/a/src/model.rs", shown), other]), ["crates/a Model shows fields"]);
        assert!(broken(&[("crates/a/src/model.rs", shown)]).is_empty());
        let hidden = "pub struct Model { name: u8, pub open: u8 } impl Model {}";
        assert!(broken(&[("crates/a/src/model.rs", hidden), other]).is_empty());
        let of_other_crate = ("crates/b/src/model.rs", "impl Model {}");
        assert!(broken(&[("crates/a/src/model.rs", shown), of_other_crate]).is_empty());
    }

    #[test]
    fn a_type_with_many_methods_is_reported_but_not_the_one_that_may() {
        let methods: String = (0..=MOST_METHODS).map(|number| format!("fn f{number}() {{}}")).collect();
        let of = |name: &str, begin: &str| {
            let text = format!("struct {name}; impl {begin}{name} {{ {methods} }}");
            broken(&[("crates/a/src/lib.rs", text.as_str())])
        };
        assert_eq!(of("Model", ""), ["crates/a Model has many methods"]);
        assert!(of("Model", "Trait for ").is_empty() && of("Lifecycle", "").is_empty());
    }
}
