//! The page that shows the document. Its files are part of the program, and it loads nothing from elsewhere.
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS},
};

use crate::http::reply::{self, HttpReply};

/// A file of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum PageFile {
    /// `/docs`
    Page,
    /// `/docs/page.css`
    Style,
    /// `/docs/page.js`
    Script,
}

/// The page may load its own files and ask its own server, and nothing else. No other page may embed it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The reply with a file.
pub(in crate::http) fn reply_with(file: PageFile) -> HttpReply {
    let (content_type, content) = match file {
        PageFile::Page => ("text/html; charset=utf-8", include_str!("page/index.html")),
        PageFile::Style => ("text/css; charset=utf-8", include_str!("page/page.css")),
        PageFile::Script => ("text/javascript; charset=utf-8", include_str!("page/page.js")),
    };
    let mut reply = reply::typed(StatusCode::OK, content_type, content);
    let headers: [(HeaderName, &'static str); 3] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Another version of the server has another page.
        (CACHE_CONTROL, "no-cache"),
    ];
    for (name, value) in headers {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}
