//! The page that shows the document.
use crate::http::docs::page_file::PageFiles;

/// The page that shows the document.
pub(in crate::http) const PAGE: PageFiles = PageFiles {
    page: include_str!("page/index.html"),
    style: include_str!("page/page.css"),
    script: include_str!("page/page.js"),
};
