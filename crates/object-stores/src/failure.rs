//! The errors of stores as Nereid reports them: with the URL, a reason, and without secrets.

use std::cmp::Reverse;

use vocabulary::{Error, innermost_cause};

use crate::url::{ObjectUrl, Service};

/// The longest reason that an error repeats from a server.
const MAX_REASON: usize = 400;

/// What must not be in an error, and what is written instead.
#[derive(Clone, Default)]
pub(crate) struct Redaction(Vec<String>);

impl Redaction {
    const REPLACEMENT: &'static str = "<redacted>";

    pub(crate) fn add(&mut self, secret: Option<&str>) {
        // A key may have several lines, of which an error may repeat one.
        let lines = secret.into_iter().flat_map(|secret| secret.split(['\n', '\r']));
        self.0.extend(lines.map(in_one_line).filter(|line| !line.is_empty()));
        // A secret may be a part of a longer one, of which the rest would remain.
        self.0.sort_by_key(|secret| Reverse(secret.len()));
    }

    /// The text in one line, without the secrets and not too long.
    pub(crate) fn apply(&self, text: &str) -> String {
        let mut text = in_one_line(text);
        for secret in &self.0 {
            text = text.replace(secret, Self::REPLACEMENT);
        }
        match text.char_indices().nth(MAX_REASON) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    }
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The HTTP status that a store has answered with, if that was the failure.
///
/// The library keeps the type with the status to itself, so the status is read from its text.
fn status(error: &object_store::Error) -> Option<u16> {
    let text = innermost_cause(error).to_string();
    let (_, after) = text.split_once("status code: ")?;
    after.get(..3)?.parse().ok()
}

/// Whether the store does not accept the credential.
pub(crate) fn is_denied(error: &object_store::Error) -> bool {
    matches!(
        error,
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. }
    ) || matches!(status(error), Some(401 | 403))
}

/// What an error is about.
pub(crate) struct FailedRequest<'a> {
    pub(crate) url: &'a ObjectUrl,
    pub(crate) redaction: &'a Redaction,
    /// The object below the URL, if it is one.
    pub(crate) object: Option<&'a str>,
}

impl FailedRequest<'_> {
    fn name(&self) -> String {
        match self.object {
            Some(object) => format!("{}/{object}", self.url.text),
            None => self.url.text.clone(),
        }
    }

    /// The error for a failed request. UNAVAILABLE, if it may succeed later.
    pub(crate) fn error(&self, error: &object_store::Error) -> Error {
        let name = self.name();
        let text = innermost_cause(error).to_string();
        let reason = self.redaction.apply(&reason(&text));
        if is_denied(error) {
            return self.denied(&text);
        }
        match error {
            // The object was listed. Stores answer with either error when a condition is asked of a deleted object.
            object_store::Error::NotFound { .. } | object_store::Error::Precondition { .. }
                if self.object.is_some() =>
            {
                changed(&name)
            }
            object_store::Error::InvalidPath { .. } => Error::invalid(format!(
                "'{name}': an object's name is not the path of a file, which has no empty segment, no '.' and no '..': {reason}"
            )),
            _ if status(error) == Some(404) => {
                let (url, bucket) = (&self.url.text, &self.url.bucket);
                Error::not_found(format!(
                    "directory or file does not exist at {url}: there is no '{bucket}': {reason}"
                ))
            }
            _ if matches!(status(error), Some(301 | 307 | 308)) || text.contains("redirect") => {
                Error::invalid(format!(
                    "'{name}': the bucket is in another region; set AWS_DEFAULT_REGION or 'region' in the credential file: {reason}"
                ))
            }
            _ => Error::unavailable(format!("cannot read '{name}': {reason}")),
        }
    }

    fn denied(&self, text: &str) -> Error {
        let name = self.name();
        let apply = |text: &str| self.redaction.apply(text);
        let code = apply(element(text, "Code").unwrap_or("AccessDenied"));
        let message = apply(element(text, "Message").unwrap_or(&reason(text)));
        match self.url.service {
            // As Triton, with the URL behind it.
            Service::S3 { .. } => Error::internal(format!(
                "Unable to create S3 filesystem client. Check account credentials. Exception: '{code}' Message: '{message}' \
                 (cannot read '{name}')"
            )),
            Service::Gcs | Service::Azure { .. } => Error::internal(format!(
                "cannot read '{name}': check the account's credentials: {code}: {message}"
            )),
        }
    }
}

/// The error for an object that is not what the listing has said.
pub(crate) fn changed(name: &str) -> Error {
    Error::unavailable(format!("'{name}' changed or was deleted while it was copied"))
}

/// A short reason from the text of an error: the code and the message of a store's XML, or the text.
fn reason(text: &str) -> String {
    let text = text.strip_prefix("Server returned non-2xx ").unwrap_or(text);
    let head = text.split('<').next().unwrap_or_default().trim().trim_end_matches(':');
    match (element(text, "Code"), element(text, "Message")) {
        (Some(code), Some(message)) => format!("{head}: {code}: {message}"),
        (Some(code), None) => format!("{head}: {code}"),
        (None, _) if text.contains("<?xml") || text.contains("<html") || text.contains("<!") => {
            head.to_owned()
        }
        (None, _) => text.to_owned(),
    }
}

/// The text of an XML element without children.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(&format!("<{name}>"))?;
    let (content, _) = after.split_once(&format!("</{name}>"))?;
    Some(content.trim())
}

#[cfg(test)]
mod tests {
    use vocabulary::ErrorCode;

    use super::*;

    #[derive(Debug)]
    struct Answer(&'static str);

    impl std::fmt::Display for Answer {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str(self.0)
        }
    }

    impl std::error::Error for Answer {}

    fn reported(url: &str, secret: &str, text: &'static str) -> Error {
        let mut redaction = Redaction::default();
        redaction.add(Some(secret));
        let url = ObjectUrl::parse(url).unwrap();
        let error = object_store::Error::Generic { store: "S3", source: Box::new(Answer(text)) };
        FailedRequest { url: &url, redaction: &redaction, object: None }.error(&error)
    }

    const DENIED: &str = "Server returned non-2xx status code: 403 Forbidden: <?xml version=\"1.0\"?>\n<Error>\
        <Code>InvalidAccessKeyId</Code><Message>The key AKIA1 does not exist</Message></Error>";

    #[test]
    fn a_refused_credential_of_s3_has_the_text_of_triton_and_not_the_key() {
        let error = reported("s3://bucket/a", "AKIA1", DENIED);
        assert_eq!(error.code, ErrorCode::Internal);
        assert_eq!(
            error.message,
            "Unable to create S3 filesystem client. Check account credentials. Exception: 'InvalidAccessKeyId' \
             Message: 'The key <redacted> does not exist' (cannot read 's3://bucket/a')"
        );
    }

    #[test]
    fn a_refused_credential_of_another_store_names_the_url() {
        let error = reported("as://account/container/a", "AKIA1", DENIED);
        assert!(
            error.message.starts_with("cannot read 'as://account/container/a': check the account's"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_bucket_is_not_found() {
        let text =
            "Server returned non-2xx status code: 404 Not Found: <Error><Code>NoSuchBucket</Code></Error>";
        let error = reported("s3://bucket/a", "", text);
        assert_eq!(error.code, ErrorCode::NotFound);
        assert_eq!(
            error.message,
            "directory or file does not exist at s3://bucket/a: there is no 'bucket': status code: 404 Not Found: \
             NoSuchBucket"
        );
    }

    #[test]
    fn other_failures_may_pass() {
        let error = reported("gs://bucket/a", "", "cannot connect: connection refused");
        assert_eq!(
            error,
            Error::unavailable("cannot read 'gs://bucket/a': cannot connect: connection refused")
        );
        let error =
            reported("gs://b", "", "Server returned non-2xx status code: 503 Busy: <html>long page</html>");
        assert_eq!(error, Error::unavailable("cannot read 'gs://b': status code: 503 Busy"));
    }

    #[test]
    fn a_redirect_means_another_region() {
        let error =
            reported("s3://b", "", "Received redirect without LOCATION, this normally indicates a region");
        assert!(error.message.contains("set AWS_DEFAULT_REGION"), "{error}");
    }

    #[test]
    fn each_line_of_a_secret_is_removed_and_long_texts_end() {
        let mut redaction = Redaction::default();
        redaction.add(Some("first\nsecond\n"));
        assert_eq!(redaction.apply("a first\n  and a second"), "a <redacted> and a <redacted>");
        redaction.add(Some("fir"));
        assert_eq!(redaction.apply("first fir"), "<redacted> <redacted>", "a part of another secret");
        assert_eq!(redaction.apply(&"x".repeat(1000)).len(), MAX_REASON + 3);
    }
}
