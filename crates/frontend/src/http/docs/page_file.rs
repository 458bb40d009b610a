//! Pages for people. Their files are part of the program, and they load nothing from elsewhere.
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS},
};

use crate::http::reply::{self, HttpReply};

/// A file of a page: `/docs`, `/docs/page.css` and `/docs/page.js`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum PageFile {
    /// The page itself.
    Page,
    /// Its style.
    Style,
    /// Its script.
    Script,
}

/// The contents of the files of a page.
pub(in crate::http) struct PageFiles {
    pub(in crate::http) page: &'static str,
    pub(in crate::http) style: &'static str,
    pub(in crate::http) script: &'static str,
}

/// A page may load its own files and ask its own server, and nothing else. No other page may embed it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl PageFiles {
    /// The reply with a file.
    pub(in crate::http) fn reply_with(&self, file: PageFile) -> HttpReply {
        let (content_type, content) = match file {
            PageFile::Page => ("text/html; charset=utf-8", self.page),
            PageFile::Style => ("text/css; charset=utf-8", self.style),
            PageFile::Script => ("text/javascript; charset=utf-8", self.script),
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
}
