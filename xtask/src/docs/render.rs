//! A page of Markdown as HTML, with its headings and links.

use std::collections::BTreeSet;

use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

use super::code;
use super::html::escaped;
use super::pages::{self, PageSet, SourcePage};

/// What a page has become.
pub(super) struct RenderedPage {
    pub(super) html: String,
    pub(super) links: Vec<PageLink>,
    /// The sections, the first one before any heading.
    pub(super) sections: Vec<PageSection>,
}

/// A heading and the text below it, as the search needs them.
#[derive(Default)]
pub(super) struct PageSection {
    pub(super) level: usize,
    pub(super) heading: String,
    pub(super) anchor: String,
    pub(super) text: String,
}

/// A link or picture.
pub(super) struct PageLink {
    /// As the page has it.
    pub(super) text: String,
    pub(super) target: LinkTarget,
}

pub(super) enum LinkTarget {
    /// Another host.
    Elsewhere,
    /// A page or file of the repository, and the anchor in it, or nothing.
    Here { path: String, anchor: String },
    /// There is no such file.
    Missing,
}

impl RenderedPage {
    pub(super) fn has_anchor(&self, anchor: &str) -> bool {
        self.sections.iter().any(|section| section.anchor == anchor)
    }
}

/// The HTML of a page, without what surrounds it in the book.
pub(super) fn page(page: &SourcePage, pages: &PageSet) -> RenderedPage {
    let parser = Parser::new_ext(&page.text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH);
    let mut renderer = PageRenderer {
        page,
        pages,
        rendered: RenderedPage {
            html: String::new(),
            links: Vec::new(),
            sections: vec![PageSection::default()],
        },
        anchors: BTreeSet::new(),
    };
    let events = renderer.events(parser.collect());
    html::push_html(&mut renderer.rendered.html, events.into_iter());
    renderer.rendered
}

struct PageRenderer<'a> {
    page: &'a SourcePage,
    pages: &'a PageSet,
    rendered: RenderedPage,
    anchors: BTreeSet<String>,
}

impl PageRenderer<'_> {
    fn events<'a>(&mut self, events: Vec<Event<'a>>) -> Vec<Event<'a>> {
        let mut out = Vec::with_capacity(events.len());
        let mut events = events.into_iter().peekable();
        while let Some(event) = events.next() {
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    let mut inner = Vec::new();
                    while let Some(next) =
                        events.next_if(|next| !matches!(next, Event::End(TagEnd::Heading(_))))
                    {
                        inner.push(next);
                    }
                    events.next();
                    out.push(self.heading(level, inner));
                }
                Event::Start(Tag::CodeBlock(kind)) => {
                    let mut text = String::new();
                    while let Some(Event::Text(part)) = events.next_if(|next| matches!(next, Event::Text(_)))
                    {
                        text.push_str(&part);
                    }
                    events.next();
                    out.push(self.code_block(&kind, &text));
                }
                Event::Start(Tag::Table(columns)) => {
                    // A table that is wider than the window moves sideways by itself, also with the keyboard.
                    out.push(Event::Html(
                        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Table\">".into(),
                    ));
                    out.push(Event::Start(Tag::Table(columns)));
                }
                Event::End(TagEnd::Table) => {
                    out.extend([Event::End(TagEnd::Table), Event::Html("</div>".into())]);
                }
                Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                    let page = self.page_at(&dest_url);
                    let dest_url = self.link(&dest_url).into();
                    out.push(Event::Start(Tag::Link { link_type, dest_url, title, id }));
                    // Sources name the file, and readers of a book know the title.
                    let is_name =
                        |next: &Event<'_>| matches!(next, Event::Text(text) if text.ends_with(".md"));
                    if let Some(title) = page.filter(|_| events.peek().is_some_and(is_name)) {
                        events.next();
                        out.push(self.text(title.into()));
                    }
                }
                Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                    let dest_url = self.link(&dest_url).into();
                    out.push(Event::Start(Tag::Image { link_type, dest_url, title, id }));
                }
                // Pages have no HTML. What looks like it is text such as `<model>`.
                Event::Html(text) | Event::InlineHtml(text) => out.push(self.text(text)),
                Event::Text(text) => out.push(self.text(text)),
                Event::Code(text) => {
                    self.section().text.push_str(&text);
                    out.push(Event::Code(text));
                }
                Event::SoftBreak | Event::End(TagEnd::Paragraph | TagEnd::TableCell | TagEnd::Item) => {
                    self.section().text.push(' ');
                    out.push(event);
                }
                other => out.push(other),
            }
        }
        out
    }

    fn section(&mut self) -> &mut PageSection {
        self.rendered.sections.last_mut().expect("there is a section before any heading")
    }

    fn text<'a>(&mut self, text: CowStr<'a>) -> Event<'a> {
        self.section().text.push_str(&text);
        Event::Text(text)
    }

    fn heading(&mut self, level: HeadingLevel, inner: Vec<Event<'_>>) -> Event<'static> {
        let text: String = inner
            .iter()
            .filter_map(|event| match event {
                Event::Text(text) | Event::Code(text) | Event::InlineHtml(text) => Some(text.as_ref()),
                _ => None,
            })
            .collect();
        let anchor = self.free_anchor(&slug(&text));
        let level = level as usize;
        self.rendered.sections.push(PageSection {
            level,
            heading: text.clone(),
            anchor: anchor.clone(),
            text: String::new(),
        });
        let mut content = String::new();
        html::push_html(&mut content, self.events(inner).into_iter());
        self.section().text.clear();
        let link = match level {
            1 => String::new(),
            _ => format!(
                " <a class=\"anchor\" href=\"#{anchor}\" aria-label=\"Link to {}\">#</a>",
                escaped(&text)
            ),
        };
        Event::Html(format!("<h{level} id=\"{anchor}\">{content}{link}</h{level}>\n").into())
    }

    /// Two headings of a page may have the same text.
    fn free_anchor(&mut self, slug: &str) -> String {
        let numbered = (1..).map(|number| format!("{slug}-{number}"));
        let mut free =
            std::iter::once(slug.to_owned()).chain(numbered).filter(|name| !self.anchors.contains(name));
        let anchor = free.next().expect("numbers do not end");
        self.anchors.insert(anchor.clone());
        anchor
    }

    fn code_block(&mut self, kind: &CodeBlockKind<'_>, text: &str) -> Event<'static> {
        let info = match kind {
            CodeBlockKind::Fenced(info) => info.to_string(),
            CodeBlockKind::Indented => String::new(),
        };
        // What follows the language tells the tests how to run the example.
        let language = info.split([',', ' ']).next().unwrap_or_default();
        self.section().text.push_str(text);
        let block = code::highlighted(language, text);
        Event::Html(
            format!("<pre tabindex=\"0\"><code class=\"{}\">{block}</code></pre>\n", escaped(language))
                .into(),
        )
    }

    /// The title of the page that a link leads to, if it leads to the page as a whole.
    fn page_at(&self, link: &str) -> Option<String> {
        let path = pages::join(&self.page.path, link)?;
        self.pages.page(&path).map(|page| page.title().replace('`', ""))
    }

    /// The address of a link in the book.
    fn link(&mut self, link: &str) -> String {
        let (target, address) = self.target(link);
        self.rendered.links.push(PageLink { text: link.to_owned(), target });
        address
    }

    fn target(&self, link: &str) -> (LinkTarget, String) {
        if link.contains("://") || link.starts_with("mailto:") {
            return (LinkTarget::Elsewhere, link.to_owned());
        }
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let path = match file {
            "" => Some(self.page.path.clone()),
            file => pages::join(&self.page.path, file).and_then(|path| self.pages.resolve(&path)),
        };
        let Some(path) = path else { return (LinkTarget::Missing, link.to_owned()) };
        let mut address = pages::relative(&pages::address(&self.page.path), &pages::address(&path));
        if !anchor.is_empty() {
            address = format!("{address}#{anchor}");
        }
        (LinkTarget::Here { path, anchor: anchor.to_owned() }, address)
    }
}

/// The anchor of a heading, as code hosts make it.
fn slug(text: &str) -> String {
    let kept = text.trim().chars().filter(|one| one.is_alphanumeric() || matches!(one, '-' | '_' | ' '));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> RenderedPage {
        let pages = PageSet::read(&crate::workspace::root()).unwrap();
        page(&SourcePage { path: "docs/x.md".into(), text: text.into() }, &pages)
    }

    #[test]
    fn anchors_are_those_of_code_hosts() {
        assert_eq!(slug("Load, unload & `poll`: a_b-c"), "load-unload--poll-a_b-c");
        let page = rendered("# A\n\n## B\n\n## B\n");
        let anchors: Vec<_> = page.sections.iter().map(|section| section.anchor.as_str()).collect();
        assert_eq!(anchors, ["", "a", "b", "b-1"]);
    }

    #[test]
    fn links_become_addresses_of_the_book() {
        let page = rendered(
            "[a](batching.md#measure) [b](../STYLE.md) [c](https://x.y) [d](nothing.md) [e](../include)",
        );
        assert!(page.html.contains("href=\"batching.html#measure\""), "{}", page.html);
        assert!(page.html.contains("href=\"STYLE.html\"") && page.html.contains("href=\"https://x.y\""));
        let missing = page.links.iter().filter(|link| matches!(link.target, LinkTarget::Missing));
        assert_eq!(missing.map(|link| link.text.as_str()).collect::<Vec<_>>(), ["nothing.md", "../include"]);
    }

    #[test]
    fn names_of_pages_become_their_titles() {
        let html =
            rendered("[batching.md](batching.md) [batching.md](batching.md#measure) [here](batching.md)")
                .html;
        assert!(
            html.contains(">Tuning batching</a> <a href=\"batching.html#measure\">batching.md</a>"),
            "{html}"
        );
        assert!(html.contains(">here</a>"));
    }

    #[test]
    fn placeholders_are_text() {
        assert!(rendered("to <model> end").html.contains("to &lt;model&gt; end"));
    }
}
