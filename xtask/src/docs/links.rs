//! Links of the pages that lead nowhere.

use std::collections::BTreeMap;

use super::pages::PageSet;
use super::render::{LinkTarget, RenderedPage};

/// One line for each link to a file or an anchor that does not exist.
pub(super) fn broken(pages: &PageSet, rendered: &BTreeMap<&str, RenderedPage>) -> Vec<String> {
    let mut broken = Vec::new();
    for (path, page) in rendered {
        for link in &page.links {
            let found = match &link.target {
                LinkTarget::Elsewhere => true,
                LinkTarget::Missing => false,
                LinkTarget::Here { path: target, anchor } => {
                    anchor.is_empty()
                        || rendered.get(target.as_str()).is_some_and(|page| page.has_anchor(anchor))
                        || pages.page(target).is_none() && anchor.starts_with('L')
                }
            };
            if !found {
                broken.push(format!("{path}: {}", link.text));
            }
        }
    }
    broken
}

/// How many links there are.
pub(super) fn count(rendered: &BTreeMap<&str, RenderedPage>) -> usize {
    rendered.values().map(|page| page.links.len()).sum()
}
