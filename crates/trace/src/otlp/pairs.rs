//! The lists in variables of OpenTelemetry: `key=value,key2=value2`, with values that may be percent-encoded.
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

/// Reads the headers that a collector asks for. They count as secret: neither errors nor the log show their values.
///
/// # Errors
/// What is wrong with which of them.
pub fn read_headers(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (index, pair) in pairs(text).enumerate() {
        let number = index + 1;
        let (name, value) = pair.ok_or_else(|| format!("header {number} has no '='"))?;
        let name = HeaderName::try_from(name)
            .map_err(|_| format!("the name of header {number} is not one of a header"))?;
        let decoded: Vec<u8> = percent_decode_str(value).collect();
        let mut value = HeaderValue::try_from(decoded)
            .map_err(|_| format!("the value of header '{name}' has characters that a header cannot have"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

/// Reads attributes of the resource, in their order.
///
/// # Errors
/// What is wrong with which of them.
pub fn read_attributes(text: &str) -> Result<Vec<(String, String)>, String> {
    let read = |(index, pair): (usize, Option<(&str, &str)>)| {
        let number = index + 1;
        let (key, value) = pair.ok_or_else(|| format!("attribute {number} has no '='"))?;
        if key.is_empty() {
            return Err(format!("attribute {number} has no name"));
        }
        let decoded = |part| match percent_decode_str(part).decode_utf8() {
            Ok(decoded) => Ok(decoded.into_owned()),
            Err(_) => Err(format!("attribute {number} is not UTF-8")),
        };
        Ok((decoded(key)?, decoded(value)?))
    };
    pairs(text).enumerate().map(read).collect()
}

/// The keys and values as they are written. `None` for a part without `=`.
fn pairs(text: &str) -> impl Iterator<Item = Option<(&str, &str)>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').map(|(key, value)| (key.trim(), value.trim())))
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

    #[test]
    fn attributes_are_pairs_whose_parts_may_be_encoded() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let read = read_attributes("deployment.environment=prod, a%2Cb = one%3Dtwo=three ,empty=,").unwrap();
        let expected =
            [pair("deployment.environment", "prod"), pair("a,b", "one=two=three"), pair("empty", "")];
        assert_eq!(read, expected);
        for (text, named) in [
            ("a=1,b", "attribute 2 has no '='"),
            ("=1", "attribute 1 has no name"),
            ("a=%FF", "attribute 1 is not UTF-8"),
        ] {
            assert_eq!(read_attributes(text).unwrap_err(), named);
        }
    }
}
