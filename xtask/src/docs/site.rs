//! The files of the book: a frame around each page, style, search, and the files that pages link to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use super::code;
use super::html::escaped;
use super::pages::{self, PageSet, SourcePage};
use super::render::{LinkTarget, RenderedPage};
use super::summary::{BookChapter, BookPart};
use crate::{files, workspace};

const STYLE: &str = include_str!("book.css");
const SCRIPT: &str = include_str!("book.js");
const FRAME: &str = include_str!("page.html");
/// The pages that the first page is called.
const TITLE: &str = "Nereid";

/// Names of pages in the documentation of Triton, and the pages that have their subject here. Links and habits carry over.
const NAMES_IN_TRITON: [(&str, &str); 13] = [
    ("model_configuration", "configuration"),
    ("model_management", "model-management"),
    ("batcher", "batching"),
    ("scheduler", "sequences"),
    ("implicit_state_management", "sequences"),
    ("ensemble_models", "ensembles"),
    ("rate_limiter", "batching"),
    ("response_cache", "response-cache"),
    ("trace", "tracing"),
    ("performance_tuning", "batching"),
    ("optimization", "batching"),
    ("debugging_guide", "troubleshooting"),
    ("inference_protocols", "protocols"),
];

/// Writes the book into an empty folder. Returns the number of pages.
///
/// # Errors
/// A file cannot be read or written.
pub(super) fn write(
    folder: &Path,
    pages: &PageSet,
    parts: &[BookPart],
    rendered: &BTreeMap<&str, RenderedPage>,
) -> Result<usize> {
    files::remove_folder(folder)?;
    let put = |address: &str, content: &[u8]| files::write(&folder.join(address), content);
    put("book.css", STYLE.as_bytes())?;
    put("book.js", SCRIPT.as_bytes())?;
    put("search.js", search_index(pages, rendered).as_bytes())?;
    for (path, page) in rendered {
        let source = pages.page(path).context("each rendered page has a source")?;
        put(&pages::address(path), framed(path, source.title(), &page.html, Some(page), parts).as_bytes())?;
    }
    for path in linked_files(pages, rendered) {
        let address = pages::address(&path);
        let bytes = fs::read(workspace::root().join(&path)).with_context(|| format!("cannot read {path}"))?;
        if pages::is_picture(&path) {
            put(&address, &bytes)?;
            continue;
        }
        let text = String::from_utf8_lossy(&bytes);
        let block = code::highlighted(language(&path), &text);
        let body = format!("<h1>{}</h1>\n<pre tabindex=\"0\"><code>{block}</code></pre>\n", escaped(&path));
        put(&address, framed(&path, &path, &body, None, parts).as_bytes())?;
    }
    for (name, page) in NAMES_IN_TRITON {
        let target = format!("{page}.html");
        let source = pages.page(&format!("docs/{page}.md"));
        let title = source.map(SourcePage::title).with_context(|| format!("there is no page {page}"))?;
        put(&format!("{name}.html"), redirection(&target, title).as_bytes())?;
    }
    Ok(rendered.len())
}

/// A page that leads to another one.
fn redirection(target: &str, title: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n\
         <meta http-equiv=\"refresh\" content=\"0; url={target}\">\n<p><a href=\"{target}\">{title}</a></p></html>\n"
    )
}

/// The files, other than pages, that pages link to.
fn linked_files(pages: &PageSet, rendered: &BTreeMap<&str, RenderedPage>) -> BTreeSet<String> {
    let targets = rendered.values().flat_map(|page| &page.links).filter_map(|link| match &link.target {
        LinkTarget::Here { path, .. } => Some(path.clone()),
        LinkTarget::Elsewhere | LinkTarget::Missing => None,
    });
    targets.filter(|path| pages.page(path).is_none()).collect()
}

/// A whole document.
fn framed(path: &str, title: &str, body: &str, page: Option<&RenderedPage>, parts: &[BookPart]) -> String {
    let address = pages::address(path);
    let root = pages::relative(&address, "");
    let shown = if title == TITLE { title.to_owned() } else { format!("{title} - {TITLE}") };
    FRAME
        .replace("{title}", &escaped(&shown))
        .replace("{root}", &root)
        .replace("{chapters}", &chapters(path, &root, parts))
        .replace("{sections}", &page.map_or_else(String::new, sections))
        .replace("{neighbours}", &neighbours(path, &root, parts))
        .replace("{body}", body)
}

fn chapters(current: &str, root: &str, parts: &[BookPart]) -> String {
    let mut html = String::new();
    for part in parts {
        let _ = write!(html, "<p>{}</p>\n<ul>\n", escaped(&part.title));
        for chapter in &part.chapters {
            let mark = if chapter.path == current { " aria-current=\"page\"" } else { "" };
            let address = pages::address(&chapter.path);
            let _ =
                writeln!(html, "<li><a href=\"{root}{address}\"{mark}>{}</a></li>", escaped(&chapter.title));
        }
        html.push_str("</ul>\n");
    }
    html
}

/// Links to the sections of a page that has several.
fn sections(page: &RenderedPage) -> String {
    let second: Vec<_> = page.sections.iter().filter(|section| section.level == 2).collect();
    if second.len() < 3 {
        return String::new();
    }
    let mut html =
        String::from("<nav class=\"sections\" aria-label=\"On this page\"><p>On this page</p>\n<ul>\n");
    for section in second {
        let _ = writeln!(html, "<li><a href=\"#{}\">{}</a></li>", section.anchor, escaped(&section.heading));
    }
    html + "</ul></nav>\n"
}

/// Links to the page before and the page after, in the order of the table of contents.
fn neighbours(current: &str, root: &str, parts: &[BookPart]) -> String {
    let order: Vec<_> = parts.iter().flat_map(|part| &part.chapters).collect();
    let Some(place) = order.iter().position(|chapter| chapter.path == current) else { return String::new() };
    let link = |chapter: Option<&&BookChapter>, word: &str| {
        chapter.map_or_else(String::new, |chapter| {
            let address = pages::address(&chapter.path);
            format!("<a rel=\"{word}\" href=\"{root}{address}\">{}</a>\n", escaped(&chapter.title))
        })
    };
    let before = place.checked_sub(1).and_then(|place| order.get(place));
    let links = link(before, "prev") + &link(order.get(place + 1), "next");
    format!("<nav class=\"neighbours\" aria-label=\"Pages before and after\">\n{links}</nav>\n")
}

/// The text of all sections as a script: a page that is opened as a file can load scripts, and nothing else.
fn search_index(pages: &PageSet, rendered: &BTreeMap<&str, RenderedPage>) -> String {
    let mut entries = Vec::new();
    for (path, page) in rendered {
        let title = pages.page(path).map_or(*path, SourcePage::title);
        for section in page.sections.iter().filter(|section| section.level > 0) {
            let words: Vec<_> = section.text.split_whitespace().collect();
            let anchor = if section.level == 1 { String::new() } else { format!("#{}", section.anchor) };
            let address = pages::address(path) + &anchor;
            entries.push(json!([title, section.heading, address, words.join(" ")]));
        }
    }
    format!("searchIndex({});\n", json!(entries))
}

fn language(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "rs" => "rust",
        "c" | "h" => "c",
        "py" => "python",
        "json" => "json",
        "toml" => "toml",
        "yaml" | "yml" => "yaml",
        "pbtxt" => "pbtxt",
        "sh" => "bash",
        _ => "text",
    }
}
