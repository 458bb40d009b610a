//! Which source file in Rust uses which.
//!
//! A `use` and a path in an expression or a type are arrows to the file that defines the item that they name: re-exports are
//! followed, and modules are no items. Tests are left out. Paths in the arguments of macros count if they begin with
//! `crate`, `self` or `super`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, UseTree};

use super::source_graph::SourceGraph;

/// How many re-exports of re-exports are followed.
const LONGEST_CHAIN: usize = 32;

/// The graphs of all libraries and programs, without tests, benches and examples. `packages` are those of
/// `cargo metadata`.
///
/// # Errors
/// A file cannot be read, or is no Rust.
pub(super) fn of_products(packages: &[Value]) -> Result<Vec<SourceGraph>> {
    let targets = packages.iter().flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let is_product = |target: &&Value| {
        let kinds = target["kind"].as_array().into_iter().flatten().filter_map(Value::as_str);
        kinds.clone().count() > 0
            && kinds.into_iter().all(|kind| !matches!(kind, "test" | "bench" | "example" | "custom-build"))
    };
    let roots = targets.filter(is_product).filter_map(|target| target["src_path"].as_str());
    roots.map(|root| of_target(Path::new(root))).collect()
}

/// The files below the root file of a target.
///
/// # Errors
/// A file cannot be read, or is no Rust.
pub(super) fn of_target(root: &Path) -> Result<SourceGraph> {
    let mut modules = Modules::default();
    let top = modules.add(root.to_owned(), None);
    modules.read_file(top, root.parent().unwrap_or(Path::new("")))?;
    modules.find_uses();
    Ok(modules.graph)
}

/// The modules of a target.
#[derive(Default)]
struct Modules {
    all: Vec<Module>,
    graph: SourceGraph,
    /// What each file consists of, with the module that it begins.
    sources: Vec<(usize, Vec<Item>)>,
}

struct Module {
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    /// What `use` brings into the module, under the name that it has there.
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

impl Modules {
    /// Adds the module that a file begins.
    fn add(&mut self, file: PathBuf, parent: Option<usize>) -> usize {
        self.graph.files.push(file);
        self.graph.arrows.push(BTreeSet::new());
        self.graph.parents.push(parent.map(|parent| self.all[parent].file));
        self.graph.defines.push(false);
        self.add_within(self.graph.files.len() - 1, parent)
    }

    fn add_within(&mut self, file: usize, parent: Option<usize>) -> usize {
        self.all.push(Module {
            file,
            parent,
            children: BTreeMap::new(),
            items: BTreeSet::new(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
        });
        self.all.len() - 1
    }

    /// Reads the file of a module. Its children lie in `folder`.
    fn read_file(&mut self, module: usize, folder: &Path) -> Result<()> {
        let path = self.graph.files[self.all[module].file].clone();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("{} is no Rust", path.display()))?;
        let items: Vec<Item> = parsed.items.into_iter().filter(|item| !is_for_tests(item)).collect();
        self.read_items(module, &items, folder)?;
        self.sources.push((module, items));
        Ok(())
    }

    fn read_items(&mut self, module: usize, items: &[Item], folder: &Path) -> Result<()> {
        for item in items.iter().filter(|item| !is_for_tests(item)) {
            match item {
                Item::Mod(child) => self.read_module(module, child, folder)?,
                Item::Use(item) => flatten(&item.tree, &mut Vec::new(), &mut |path, name| match name {
                    Some(name) => _ = self.all[module].imports.insert(name, path),
                    None => self.all[module].globs.push(path),
                }),
                Item::ExternCrate(_) => {}
                item => {
                    let module = &mut self.all[module];
                    module.items.extend(name_of(item));
                    self.graph.defines[module.file] = true;
                }
            }
        }
        Ok(())
    }

    fn read_module(&mut self, parent: usize, item: &ItemMod, folder: &Path) -> Result<()> {
        let name = item.ident.to_string();
        if let Some((_, items)) = &item.content {
            let child = self.add_within(self.all[parent].file, Some(parent));
            self.all[parent].children.insert(name.clone(), child);
            return self.read_items(child, items, &folder.join(name));
        }
        let below = folder.join(&name);
        let (file, folder) = match named_path(&item.attrs) {
            Some(path) => {
                let own = self.graph.files[self.all[parent].file].parent().unwrap_or(Path::new(""));
                let file = own.join(path);
                let folder = file.with_extension("");
                (file, folder)
            }
            None if below.join("mod.rs").is_file() => (below.join("mod.rs"), below),
            None => (below.with_extension("rs"), below),
        };
        let child = self.add(file, Some(parent));
        self.all[parent].children.insert(name, child);
        self.read_file(child, &folder)
    }

    /// Draws the arrows.
    fn find_uses(&mut self) {
        for (module, items) in std::mem::take(&mut self.sources) {
            let mut uses = UsedPaths { modules: self, module, found: BTreeSet::new() };
            items.iter().for_each(|item| uses.visit_item(item));
            let found = uses.found;
            let file = self.all[module].file;
            self.graph.arrows[file].extend(found.into_iter().filter(|used| *used != file));
        }
    }

    /// The file that defines what a path in a module names. `None`: it is not of this target.
    fn resolve(&self, module: usize, path: &[String], chain: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let parent = |module: usize| self.all[module].parent;
        match first.as_str() {
            "crate" => self.walk(0, rest, chain),
            "self" => self.walk(module, rest, chain),
            "super" => {
                let parent = parent(module)?;
                match rest.first().map(String::as_str) {
                    Some("super") => self.resolve(parent, rest, chain),
                    _ => self.walk(parent, rest, chain),
                }
            }
            _ => self.walk(module, path, chain),
        }
    }

    /// The file that defines what a path names, from a module downwards.
    fn walk(&self, mut module: usize, path: &[String], chain: usize) -> Option<usize> {
        if chain > LONGEST_CHAIN {
            return None;
        }
        for (at, name) in path.iter().enumerate() {
            let here = &self.all[module];
            if let Some(child) = here.children.get(name) {
                module = *child;
            } else if here.items.contains(name) {
                return Some(here.file);
            } else if let Some(target) = here.imports.get(name) {
                let target = [target, &path[at + 1..]].concat();
                return self.resolve(module, &target, chain + 1);
            } else {
                let rest = &path[at..];
                let through = |glob: &Vec<String>| self.resolve(module, &[glob, rest].concat(), chain + 1);
                return here.globs.iter().find_map(through);
            }
        }
        // A module by itself: what is used of it is named elsewhere.
        None
    }
}

/// Collects the files that the items of a module use.
struct UsedPaths<'m> {
    modules: &'m Modules,
    module: usize,
    found: BTreeSet<usize>,
}

impl UsedPaths<'_> {
    fn add(&mut self, path: &[String]) {
        self.found.extend(self.modules.resolve(self.module, path, 0));
    }
}

impl<'a> Visit<'a> for UsedPaths<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_for_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        let Some(child) = self.modules.all[self.module].children.get(&item.ident.to_string()) else { return };
        // A module in a file of its own is visited with that file.
        if item.content.is_some() {
            let outer = std::mem::replace(&mut self.module, *child);
            visit::visit_item_mod(self, item);
            self.module = outer;
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        flatten(&item.tree, &mut Vec::new(), &mut |path, _| self.add(&path));
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_none() {
            let names: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
            self.add(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, used: &'a syn::Macro) {
        visit::visit_macro(self, used);
        let text = used.tokens.to_string();
        let words: Vec<&str> = text.split_whitespace().collect();
        for (at, word) in words.iter().enumerate() {
            if !matches!(*word, "crate" | "self" | "super") || words.get(at + 1) != Some(&"::") {
                continue;
            }
            let names = words[at..].chunks(2).take_while(|pair| is_name(pair[0]));
            let mut path = Vec::new();
            for pair in names {
                path.push(pair[0].to_owned());
                if pair.get(1) != Some(&"::") {
                    break;
                }
            }
            self.add(&path);
        }
    }
}

fn is_name(word: &str) -> bool {
    word.chars().all(|character| character.is_alphanumeric() || character == '_')
}

/// Calls `found` for each path that a `use` names, with the name that it has afterwards. No name: a glob.
fn flatten(tree: &UseTree, before: &mut Vec<String>, found: &mut impl FnMut(Vec<String>, Option<String>)) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, found);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            found(before.clone(), before.last().cloned());
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            found([before.clone(), vec![name.clone()]].concat(), Some(name));
        }
        UseTree::Rename(rename) => {
            let mut path = before.clone();
            if rename.ident != "self" {
                path.push(rename.ident.to_string());
            }
            found(path, Some(rename.rename.to_string()));
        }
        UseTree::Glob(_) => found(before.clone(), None),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, found)),
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item is only there in tests, in a model checker or in fuzzers.
pub(super) fn is_for_tests(item: &Item) -> bool {
    attributes(item).iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let text = list.tokens.to_string();
        list.path.is_ident("cfg")
            && !text.contains("not")
            && text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
    })
}

/// The path of `#[path = "..."]`.
fn named_path(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arrows of a crate with these files, as names of files.
    fn arrows(files: &[(&str, &str)]) -> (Vec<(String, String)>, Vec<Vec<String>>) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let graph = of_target(&folder.path().join("lib.rs")).unwrap();
        let name = |path: &Path| path.strip_prefix(folder.path()).unwrap().display().to_string();
        let mut arrows = Vec::new();
        for (file, used) in graph.arrows.iter().enumerate() {
            arrows.extend(used.iter().map(|used| (name(&graph.files[file]), name(&graph.files[*used]))));
        }
        arrows.sort();
        let circles = graph.circles().into_iter();
        let circles = circles.map(|circle| circle.into_iter().map(name).collect()).collect();
        (arrows, circles)
    }

    fn arrow(from: &str, to: &str) -> (String, String) {
        (from.to_owned(), to.to_owned())
    }

    #[test]
    fn paths_in_use_types_and_expressions_are_arrows_to_the_defining_file() {
        let (found, circles) = arrows(&[
            ("lib.rs", "mod a; mod b; pub use b::deep::Thing;"),
            ("a.rs", "use crate::Thing as Other; fn f(x: Other) { super::b::go(); }"),
            ("b/mod.rs", "pub mod deep; pub fn go() { deep::Thing::new(); } fn g(deep: std::fmt::Error) {}"),
            ("b/deep.rs", "pub struct Thing; impl Thing { pub fn new() {} }"),
        ]);
        assert_eq!(
            found,
            [
                arrow("a.rs", "b/deep.rs"),
                arrow("a.rs", "b/mod.rs"),
                arrow("b/mod.rs", "b/deep.rs"),
                arrow("lib.rs", "b/deep.rs"),
            ]
        );
        assert!(circles.is_empty());
    }

    #[test]
    fn files_that_use_each_other_are_a_circle_whatever_the_way() {
        let (_, circles) = arrows(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use super::b::*; pub struct A; fn f() -> B { todo(B) }"),
            ("b.rs", "pub struct B; fn f() { println!(\"{}\", crate::c::SIZE); }"),
            ("c.rs", "pub const SIZE: usize = size_of::<crate::a::A>();"),
            ("d.rs", "use crate::a::A;"),
        ]);
        assert_eq!(circles, [["a.rs", "b.rs", "c.rs"]]);
    }

    #[test]
    fn tests_and_other_crates_are_left_out() {
        let (found, _) = arrows(&[
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod tests;"),
            (
                "a.rs",
                "use std::b::X; #[cfg(test)] use crate::b::B; #[cfg(test)] mod tests { use crate::b::B; }",
            ),
            ("b.rs", "pub struct B;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_module_may_be_at_another_path_or_within_a_file() {
        let (found, _) = arrows(&[
            ("lib.rs", "#[path = \"other/place.rs\"] mod a; mod b { mod c; fn f() { super::a::go(); } }"),
            ("other/place.rs", "pub fn go() {}"),
            ("b/c.rs", "fn g() { crate::a::go(); }"),
        ]);
        assert_eq!(found, [arrow("b/c.rs", "other/place.rs"), arrow("lib.rs", "other/place.rs")]);
    }
}
