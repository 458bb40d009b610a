//! Functions of a source file, and the names that each uses.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{ImplItem, Item, TraitItem, Type};

use super::rust_graph::is_for_tests;

/// A function, as the gates see it.
#[derive(Debug, Default)]
pub(super) struct FunctionUse {
    /// Names that may be types: in the signature, in the body, and of the type that has the function.
    pub(super) names: BTreeSet<String>,
    /// The trait that declares the function, if one does.
    pub(super) trait_name: Option<String>,
}

/// The function `name` or `Owner::name` of a file outside of its tests. An owner is a type or a trait.
pub(super) fn find(items: &[Item], wanted: &str) -> Option<FunctionUse> {
    let (owner, name) = match wanted.rsplit_once("::") {
        Some((owner, name)) => (Some(owner), name),
        None => (None, wanted),
    };
    items.iter().filter(|item| !is_for_tests(item)).find_map(|item| match item {
        Item::Fn(function) if owner.is_none() && function.sig.ident == name => {
            let mut used = UsedNames::default();
            used.visit_item_fn(function);
            Some(FunctionUse { names: used.0, trait_name: None })
        }
        Item::Impl(block) if owner.is_some_and(|owner| last_name(&block.self_ty) == owner) => {
            let function = block.items.iter().find_map(|item| match item {
                ImplItem::Fn(function) if function.sig.ident == name => Some(function),
                _ => None,
            })?;
            let mut used = UsedNames::default();
            used.visit_type(&block.self_ty);
            let implemented = block.trait_.as_ref().map(|(path, _)| path);
            if let Some(path) = implemented {
                used.visit_path(path);
            }
            used.visit_impl_item_fn(function);
            let trait_name = implemented.and_then(|path| Some(path.segments.last()?.ident.to_string()));
            Some(FunctionUse { names: used.0, trait_name })
        }
        Item::Trait(block) if owner.is_some_and(|owner| block.ident == owner) => {
            let function = block.items.iter().find_map(|item| match item {
                TraitItem::Fn(function) if function.sig.ident == name => Some(function),
                _ => None,
            })?;
            let mut used = UsedNames::default();
            used.visit_trait_item_fn(function);
            let trait_name = block.ident.to_string();
            used.0.insert(trait_name.clone());
            Some(FunctionUse { names: used.0, trait_name: Some(trait_name) })
        }
        Item::Mod(module) => module.content.as_ref().and_then(|(_, items)| find(items, wanted)),
        _ => None,
    })
}

fn last_name(named: &Type) -> String {
    match named {
        Type::Path(named) => named.path.segments.last().map(|part| part.ident.to_string()),
        _ => None,
    }
    .unwrap_or_default()
}

/// The first capitalized name of each path: what follows it belongs to it.
#[derive(Default)]
struct UsedNames(BTreeSet<String>);

impl<'a> Visit<'a> for UsedNames {
    fn visit_path(&mut self, path: &'a syn::Path) {
        let mut names = path.segments.iter().map(|part| part.ident.to_string());
        self.0.extend(names.find(|name| is_capitalized(name)));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, used: &'a syn::Macro) {
        let text = used.tokens.to_string();
        // What lies between quotes is text.
        let code: String = text.split('"').step_by(2).collect();
        let code = code.replace(|sign: char| !(sign.is_alphanumeric() || matches!(sign, '_' | ':')), " ");
        let mut before = ["", ""];
        for word in code.split_whitespace() {
            let belongs = before[1] == "::" && is_capitalized(before[0]);
            if is_capitalized(word) && !belongs {
                self.0.insert(word.to_owned());
            }
            before = [before[1], word];
        }
    }
}

fn is_capitalized(name: &str) -> bool {
    name.starts_with(|character: char| character.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(text: &str, wanted: &str) -> (Vec<String>, Option<String>) {
        let file = syn::parse_file(text).unwrap();
        let found = find(&file.items, wanted).unwrap();
        (found.names.into_iter().collect(), found.trait_name)
    }

    #[test]
    fn names_of_signature_body_and_owner_are_found() {
        let text = "impl Model { fn infer(&self, request: &Request) -> Result<a::Stream, ()> { Event::Begun; f() } }";
        let (names, trait_name) = used(text, "Model::infer");
        assert_eq!(names, ["Event", "Model", "Request", "Result", "Stream"]);
        assert_eq!(trait_name, None);
    }

    #[test]
    fn names_in_macros_are_found_and_texts_are_not() {
        let text = "fn f() { select! { Poll::Ready(x) => log!(\"no Name, {}\", g(Row)), } }";
        assert_eq!(used(text, "f").0, ["Poll", "Row"]);
    }

    #[test]
    fn a_function_of_a_trait_names_the_trait() {
        let text = "trait Runner { fn run(&self); } impl b::Runner for Engine { fn run(&self) {} }";
        assert_eq!(used(text, "Runner::run"), (vec!["Runner".into()], Some("Runner".into())));
        assert_eq!(used(text, "Engine::run").1.as_deref(), Some("Runner"));
    }

    #[test]
    fn functions_of_tests_and_of_other_owners_are_not_found() {
        let file = syn::parse_file("#[cfg(test)] mod tests { fn f() {} } impl A { fn f() {} }").unwrap();
        assert!(find(&file.items, "f").is_none() && find(&file.items, "B::f").is_none());
        assert!(find(&file.items, "A::f").is_some());
    }
}
