//! The headers that a collector asks for, as OpenTelemetry writes them in variables: `key=value,key2=value2`.
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

/// Reads the headers. Values may be percent-encoded. They count as secret: neither errors nor the log show them.
///
/// # Errors
/// What is wrong with which of them.
pub fn read_headers(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    for (index, pair) in pairs.enumerate() {
        let number = index + 1;
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("header {number} has no '='"))?;
        let name = HeaderName::try_from(name.trim())
            .map_err(|_| format!("the name of header {number} is not one of a header"))?;
        let decoded: Vec<u8> = percent_decode_str(value.trim()).collect();
        let mut value = HeaderValue::try_from(decoded)
            .map_err(|_| format!("the value of header '{name}' has characters that a header cannot have"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_pairs_whose_values_may_be_encoded() {
        let headers = read_headers("Authorization=Basic%20YTpi, x-tenant = one=two ,").unwrap();
        assert_eq!(headers.len(), 2);
        assert_eq!(headers["authorization"], "Basic YTpi");
        assert_eq!(headers["x-tenant"], "one=two");
        assert!(read_headers("").unwrap().is_empty());
    }

    #[test]
    fn a_wrong_header_is_named_and_no_value_is_shown() {
        for (text, named) in [
            ("a=1,secret", "header 2 has no '='"),
            ("a b=secret", "the name of header 1"),
            ("key=secret%0A", "the value of header 'key'"),
        ] {
            let error = read_headers(text).unwrap_err();
            assert!(error.contains(named) && !error.contains("secret"), "{error}");
        }
        let shown = format!("{:?}", read_headers("key=secret").unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
