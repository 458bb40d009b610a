//! What a route asks of its requests, and the model that a path names.
use std::borrow::Cow;

use kserve::version;
use vocabulary::Error;

use crate::access::Category;

/// What a route asks of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RouteRules<'r> {
    /// By this category an operator may restrict the route.
    pub(super) category: Category,
    /// Further categories whose headers the route needs: it repeats what those show. So a server whose statistics or models
    /// are restricted does not tell them here.
    pub(super) repeats: &'static [Category],
    pub(super) methods: Methods,
    /// The model that the route names.
    pub(super) model: Option<&'r str>,
    /// Whether everybody may have it.
    pub(super) is_public: bool,
}

impl<'r> RouteRules<'r> {
    /// A route of this category with these methods.
    pub(super) const fn new(category: Category, methods: Methods) -> Self {
        Self { category, repeats: &[], methods, model: None, is_public: false }
    }

    /// The same, for a route that names this model.
    pub(super) const fn of_model(self, model: &'r str) -> Self {
        Self { model: Some(model), ..self }
    }
}

/// The methods a route allows. HEAD is allowed where GET is (P-W12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Methods {
    Get,
    Post,
    GetAndPost,
}

impl Methods {
    /// The value of the header `Allow`.
    pub(super) const fn names(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
            Self::GetAndPost => "GET, HEAD, POST",
        }
    }

    /// Tells whether the route allows `method`.
    pub(super) fn allow(self, method: &http::Method) -> bool {
        let get = matches!(self, Self::Get | Self::GetAndPost);
        let post = matches!(self, Self::Post | Self::GetAndPost);
        (get && (method == http::Method::GET || method == http::Method::HEAD))
            || (post && method == http::Method::POST)
    }
}

/// The model that a path names, and perhaps its version: `/v2/models/{M}[/versions/{V}]/...`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelPath<'p> {
    pub(super) model: Cow<'p, str>,
    /// Digits. Empty if the path names no version.
    pub(super) version: Cow<'p, str>,
}

impl<'p> ModelPath<'p> {
    /// A model without a version.
    pub(super) const fn latest(model: &'p str) -> Self {
        Self { model: Cow::Borrowed(model), version: Cow::Borrowed("") }
    }

    /// The number of the version. `None` if the path names none.
    ///
    /// # Errors
    /// INVALID_ARG: the number is too large.
    pub(super) fn version(&self) -> Result<Option<i64>, Error> {
        version::parse(&self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_allowed_where_a_get_is() {
        use http::Method;
        assert!(Methods::Get.allow(&Method::HEAD) && !Methods::Post.allow(&Method::HEAD));
        assert!(Methods::GetAndPost.allow(&Method::POST) && !Methods::Get.allow(&Method::POST));
        assert!(!Methods::GetAndPost.allow(&Method::PUT));
    }
}
