//! The content type by which a platform marks binary requests.
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use vocabulary::Error;

use crate::http::infer::HEADER_LENGTH;

/// Replaces the binary content type, which begins with `marker` and ends with the length of the JSON part, by the header
/// of the protocol. Clients cannot send that header themselves.
///
/// # Errors
/// INVALID_ARG: the marker is not at the beginning of the content type.
pub(super) fn read_binary_marker(headers: &mut HeaderMap, marker: &str) -> Result<(), Error> {
    headers.remove(HEADER_LENGTH);
    let Some(content_type) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let content_type = String::from_utf8_lossy(content_type.as_bytes()).into_owned();
    match content_type.split_once(marker) {
        None => Ok(()),
        Some(("", rest)) => {
            // As Triton: the number ends at the first other character, and no number is 0.
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let length = if digits == 0 { "0" } else { &rest[..digits] };
            let length = HeaderValue::try_from(length).expect("digits are a header value");
            headers.insert(HEADER_LENGTH, length);
            Ok(())
        }
        Some(_) => Err(Error::invalid(format!(
            "expect MIME type for binary data starts with '{marker}', got: {content_type}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: &str = "application/x;json-header-size=";

    fn length(content_type: Option<&'static str>) -> Result<Option<String>, String> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER_LENGTH, HeaderValue::from_static("7"));
        headers.extend(content_type.map(|value| (CONTENT_TYPE, HeaderValue::from_static(value))));
        read_binary_marker(&mut headers, MARKER).map_err(|error| error.message.into_owned())?;
        Ok(headers.get(HEADER_LENGTH).map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn only_the_content_type_tells_the_length_of_the_json_part() {
        assert_eq!(length(None), Ok(None));
        assert_eq!(length(Some("application/json")), Ok(None));
        assert_eq!(length(Some("application/x;json-header-size=145")), Ok(Some("145".into())));
        assert_eq!(length(Some("application/x;json-header-size=14x")), Ok(Some("14".into())));
        assert_eq!(length(Some("application/x;json-header-size=abc")), Ok(Some("0".into())));
        let refused = length(Some("a;application/x;json-header-size=1")).unwrap_err();
        let text = "expect MIME type for binary data starts with 'application/x;json-header-size=', got: \
                    a;application/x;json-header-size=1";
        assert_eq!(refused, text);
    }
}
