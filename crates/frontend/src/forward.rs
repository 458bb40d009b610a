//! Forwards request headers or gRPC metadata as parameters of the request.
use kserve::parameters;
use regex::Regex;
use vocabulary::{Error, Name, Parameter, Parameters};

/// The headers to forward: the pattern matches a part of their name. Case does not matter.
#[derive(Debug, Clone)]
pub struct HeaderForward {
    pattern: Regex,
}

impl HeaderForward {
    /// Compiles the pattern of `--http-header-forward-pattern` or `--grpc-header-forward-pattern`.
    ///
    /// # Errors
    /// The pattern is not a regular expression.
    pub fn new(pattern: &str) -> Result<Self, Error> {
        let pattern = Regex::new(&format!("(?i){pattern}")).map_err(|error| {
            Error::invalid(format!("header forward pattern '{pattern}' is not valid: {error}"))
        })?;
        Ok(Self { pattern })
    }

    /// Tells whether a header of that name is forwarded.
    pub fn matches(&self, name: &str) -> bool {
        self.pattern.is_match(name)
    }

    /// Appends the header to `parameters` if it is forwarded. A later header replaces an earlier header, or a
    /// parameter, of the same name.
    ///
    /// # Errors
    /// INVALID_ARG if a parameter of that name has another meaning. The whole request fails.
    pub fn forward(&self, name: &str, value: &[u8], parameters: &mut Parameters) -> Result<(), Error> {
        if !self.matches(name) {
            return Ok(());
        }
        if parameters::RESERVED.contains(&name) || name.starts_with(parameters::OWN_PREFIX) {
            return Err(Error::invalid(format!(
                "Header '{name}' is reserved for Triton usage and cannot be forwarded."
            )));
        }
        let value = Parameter::String(String::from_utf8_lossy(value).as_ref().into());
        match parameters.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = value,
            None => parameters.push((Name::new(name), value)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(pattern: &str, headers: &[(&str, &str)]) -> Result<Parameters, Error> {
        let forward = HeaderForward::new(pattern).unwrap();
        let mut parameters = Vec::new();
        for (name, value) in headers {
            forward.forward(name, value.as_bytes(), &mut parameters)?;
        }
        Ok(parameters)
    }

    fn text(name: &str, value: &str) -> (Name, Parameter) {
        (name.into(), Parameter::String(value.into()))
    }

    #[test]
    fn part_of_a_name_in_any_case_is_enough() {
        let headers = [("my_header", "hv"), ("MY_Other", "x"), ("unrelated", "z"), ("Xmy_", "1")];
        let expected = vec![text("my_header", "hv"), text("MY_Other", "x"), text("Xmy_", "1")];
        assert_eq!(forwarded("my_.*", &headers), Ok(expected));
    }

    #[test]
    fn a_reserved_name_fails_the_request_but_only_in_its_exact_case() {
        let error = forwarded(".*", &[("priority", "5")]).unwrap_err();
        assert_eq!(error.message, "Header 'priority' is reserved for Triton usage and cannot be forwarded.");
        assert!(forwarded(".*", &[("triton_foo", "5")]).is_err());
        assert_eq!(forwarded(".*", &[("Priority", "5")]), Ok(vec![text("Priority", "5")]));
    }

    #[test]
    fn the_last_header_of_a_name_counts() {
        assert_eq!(forwarded("a", &[("a", "1"), ("a", "2")]), Ok(vec![text("a", "2")]));
    }

    #[test]
    fn a_broken_pattern_is_named() {
        let error = HeaderForward::new("(").unwrap_err();
        assert!(error.message.starts_with("header forward pattern '(' is not valid: "), "{error}");
    }
}
