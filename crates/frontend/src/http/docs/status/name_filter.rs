//! The parameter `name` of `/v2/explain`: only models whose names contain a text, in upper or lower case.
use percent_encoding::percent_decode_str;
use vocabulary::Error;

/// See the module documentation. Without a text, all models are meant.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NameFilter {
    /// In lower case.
    part: String,
}

impl NameFilter {
    /// Reads the query of an address. Other parameters are not looked at.
    ///
    /// # Errors
    /// INVALID_ARG if the parameter occurs more than once, or is not UTF-8.
    pub(super) fn of(query: Option<&str>) -> Result<Self, Error> {
        let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        let mut values = pairs.filter(|(key, _)| *key == "name").map(|(_, value)| value);
        let (value, another) = (values.next().unwrap_or_default(), values.next());
        if another.is_some() {
            return Err(Error::invalid("the query has the parameter 'name' more than once"));
        }
        // Forms write a space as a plus.
        let spaced = value.replace('+', " ");
        let part = percent_decode_str(&spaced)
            .decode_utf8()
            .map_err(|_| Error::invalid("the parameter 'name' of the query is no UTF-8"))?;
        Ok(Self { part: part.trim().to_lowercase() })
    }

    /// Whether the name contains the text.
    pub(super) fn admits(&self, name: &str) -> bool {
        self.part.is_empty() || name.to_lowercase().contains(&self.part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_name_is_enough() {
        for (query, name, is_admitted) in [
            (None, "any", true),
            (Some(""), "any", true),
            (Some("name="), "any", true),
            (Some("name"), "any", true),
            (Some("other=x"), "any", true),
            (Some("name=NY"), "any", true),
            (Some("name=any"), "Any_2", true),
            (Some("x=1&name=b&y=2"), "any", false),
            (Some("name=a+%26%C3%A9"), "a &É", true),
            (Some("name=%2B"), "a+b", true),
            (Some("name=%2B"), "a b", false),
        ] {
            assert_eq!(NameFilter::of(query).unwrap().admits(name), is_admitted, "{query:?} {name}");
        }
    }

    #[test]
    fn a_text_that_cannot_be_read_is_refused() {
        for (query, text) in [("name=a&name=b", "more than once"), ("name=%FF", "UTF-8")] {
            let error = NameFilter::of(Some(query)).unwrap_err();
            assert!(error.message.contains(text), "{query}: {}", error.message);
        }
    }
}
