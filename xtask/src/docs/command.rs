//! Makes and checks the book.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::pages::PageSet;
use super::render::{self, RenderedPage};
use super::{generated, links, site, summary};
use crate::workspace;

/// Where the book goes.
fn folder() -> PathBuf {
    workspace::target().join("docs")
}

/// Renews the generated pages, then makes the book.
///
/// # Errors
/// As [`make`], or the server cannot be built.
pub(crate) fn write() -> Result<()> {
    generated::write()?;
    make()
}

/// Makes the book and checks it.
///
/// # Errors
/// A link or an anchor leads nowhere, a listed page does not exist, or a file cannot be read or written. The error names
/// all links.
pub(crate) fn make() -> Result<()> {
    let pages = PageSet::read(&workspace::root())?;
    let summary = summary::read(&pages)?;
    let rendered: BTreeMap<&str, RenderedPage> =
        pages.all().map(|page| (page.path.as_str(), render::page(page, &pages))).collect();
    let broken = links::broken(&pages, &rendered);
    ensure!(
        broken.is_empty(),
        "{} links of the documentation lead nowhere:\n  {}",
        broken.len(),
        broken.join("\n  ")
    );
    let files = site::write(&folder(), &pages, &summary, &rendered)?;
    println!("{} pages, {} links: {}", files, links::count(&rendered), folder().join("index.html").display());
    Ok(())
}
