//! Reads the texts of values, and defines the texts of the rules that they may break.

use std::str::FromStr;

use engine::RateLimitResource;
use frontend::access::Category;
use host::ProcessorSet;
use inference::nearest;

use super::meaning::{RequiredHeader, RestrictionSettings};

/// `, did you mean NAME?` about a variable of the environment, if one of the known ones was probably meant. All begin with
/// `prefix`, which would hide how much of the names differs.
pub(super) fn did_you_mean_variable(name: &str, prefix: &str, known: impl Iterator<Item = String>) -> String {
    let endings = known.map(|name| name[prefix.len()..].to_owned());
    let near = nearest(name.get(prefix.len()..).unwrap_or_default(), endings);
    near.map_or_else(String::new, |ending| format!(", did you mean {prefix}{ending}?"))
}

/// Reads `true`, `on`, `1`, `false`, `off` or `0`, in any case.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(format!("invalid value for bool option: {text}")),
    }
}

/// Where ports are bound unless an address is given.
pub(super) const ALL_ADDRESSES: &str = "0.0.0.0";

/// An address. As Triton: an empty one is none.
pub(super) fn address(text: &str) -> String {
    if text.is_empty() { ALL_ADDRESSES.to_owned() } else { text.to_owned() }
}

/// Reads the integer at the beginning of `text` (`12abc` is 12). It must lie between `low` and `high`.
pub(super) fn integer(text: &str, low: i64, high: i64) -> Result<i64, String> {
    let trimmed = text.trim_start();
    let sign = usize::from(trimmed.starts_with(['+', '-']));
    let digits = trimmed[sign..].bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Err(format!("Invalid option value. Got {text}"));
    }
    // The text has a digit, so only the size can be wrong.
    match trimmed[..sign + digits].parse() {
        Ok(value) if (low..=high).contains(&value) => Ok(value),
        _ => Err(format!("Provided option value is out of bound. Got {text}")),
    }
}

/// Reads the permissions of a file: an octal number without special bits.
pub(super) fn file_mode(text: &str) -> Result<u32, String> {
    let wrong = || format!("permissions must be an octal number from 0 to 0777. Got {text}");
    let is_octal = text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    mode.ok_or_else(wrong)
}

/// Reads the number at the beginning of `text`.
pub(super) fn float(text: &str) -> Result<f64, String> {
    let trimmed = text.trim_start();
    let end = trimmed.char_indices().map(|(at, letter)| at + letter.len_utf8());
    let longest = end.rev().find_map(|end| f64::from_str(&trimmed[..end]).ok());
    longest.ok_or_else(|| format!("Invalid option value. Got {text}"))
}

/// Reads `<first><delimiter><second>`.
pub(super) fn pair<'a>(text: &'a str, delimiter: &str) -> Result<(&'a str, &'a str), String> {
    text.split_once(delimiter).ok_or_else(|| {
        format!(
            "Cannot parse pair option due to incorrect number of inputs.--<pair option> argument \
             requires format <first>{delimiter}<second>. Found: {text}"
        )
    })
}

/// The parts of a `[<name>,]<key>=<value>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) name: Option<String>,
    pub(super) key: String,
    pub(super) value: String,
}

/// Reads `[<name>,]<key>=<value>`. The first comma always ends the name. So the value of a setting without a name
/// cannot contain a comma. After a name, the value may contain commas and equals signs.
///
/// `empty_name` is the error for a comma at the very beginning, `malformed` the error for everything else.
pub(super) fn setting(text: &str, empty_name: &str, malformed: &str) -> Result<Setting, String> {
    let (name, rest) = match text.split_once(',') {
        Some(("", _)) => return Err(format!("{empty_name}. Got {text}")),
        Some((name, rest)) => (Some(name.to_owned()), rest),
        None => (None, text),
    };
    match rest.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => {
            Ok(Setting { name, key: key.to_owned(), value: value.to_owned() })
        }
        _ => Err(format!("{malformed}. Got {text}")),
    }
}

/// Reads `<cache>,<key>=<value>`. Without a comma the error is that the cache is missing, whatever else is wrong.
pub(super) fn cache_setting(text: &str) -> Result<(&str, &str, &str), String> {
    let no_cache = "No cache specified. --cache-config option format is <cache name>,<setting>=<value>";
    let malformed = "--cache-config option format is '<cache name>,<setting>=<value>'";
    match text.split_once(',') {
        None | Some(("", _)) => Err(format!("{no_cache}. Got {text}")),
        Some((cache, rest)) => match rest.split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((cache, key, value)),
            _ => Err(format!("{malformed}. Got {text}")),
        },
    }
}

/// Reads `<key>=<value>` without a name. A comma before the equals sign is refused.
pub(super) fn metrics_setting(text: &str) -> Result<(&str, &str), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() && !key.contains(',') => Ok((key, value)),
        _ => Err(format!("--metrics-config option format is <setting>=<value>. Got {text}")),
    }
}

/// Reads `<name><delimiter><key>=<value>`. All three parts are required.
pub(super) fn named_setting<'a>(
    text: &'a str,
    option: &str,
    name: &str,
    delimiter: char,
) -> Result<(&'a str, &'a str, &'a str), String> {
    text.split_once(delimiter)
        .and_then(|(name, rest)| rest.split_once('=').map(|(key, value)| (name, key, value)))
        .filter(|(name, key, value)| !name.is_empty() && !key.is_empty() && !value.is_empty())
        .ok_or_else(|| {
            format!("--{option} option format is '<{name}>{delimiter}<setting>=<value>'. Got {text}")
        })
}

/// One of the two lists of restrictions. An option adds to it.
#[derive(Clone, Copy)]
pub(super) struct RestrictionKind {
    pub(super) option: &'static str,
    /// The word for a category in the texts: `api` or `protocol`.
    pub(super) noun: &'static str,
    /// The prefix of the header name. The operator's key follows it.
    pub(super) header_prefix: &'static str,
    /// A category that this protocol does not have.
    pub(super) lacks: Option<Category>,
}

/// Adds `<category>[,<category>]...:<key>=<value>` to `restrictions`. A category may be restricted only once.
pub(super) fn restrict(
    text: &str,
    kind: RestrictionKind,
    restrictions: &mut RestrictionSettings,
) -> Result<(), String> {
    let RestrictionKind { option, noun, header_prefix, lacks } = kind;
    let (categories, key, value) = named_setting(text, option, "config name", ':')?;
    for name in categories.split(',') {
        let category = Category::named(name).filter(|category| lacks != Some(*category));
        let category = category.ok_or_else(|| format!("unknown restricted {noun} '{name}' "))?;
        let header = RequiredHeader { name: format!("{header_prefix}{key}"), value: value.to_owned() };
        if restrictions.insert(category, header).is_some() {
            return Err(format!("restricted {noun} '{name}' can not be specified in multiple config groups"));
        }
    }
    Ok(())
}

/// Reads `<resource>:<count>[:<device>]`.
pub(super) fn rate_limit_resource(text: &str) -> Result<RateLimitResource, String> {
    let (name, count, device) = match text.split(':').collect::<Vec<_>>()[..] {
        [name, count] => (name, count, None),
        [name, count, device] => (name, count, Some(device)),
        _ => {
            return Err(format!(
                "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or \
                 '<resource_name>:<count>'. Got {text}"
            ));
        }
    };
    let (count, device) = (unsigned_int(count)?, device.map(unsigned_int).transpose()?);
    Ok(RateLimitResource { name: name.to_owned(), count, device })
}

/// Reads the integer at the beginning of `text`, from 0 to C's largest.
pub(super) fn unsigned_int(text: &str) -> Result<u32, String> {
    let value = integer(text, 0, i64::from(i32::MAX))?;
    Ok(u32::try_from(value).expect("lies in the range that was asked for"))
}

/// Reads a list of processors such as `0-3,8`.
pub(super) fn processors(text: &str) -> Result<ProcessorSet, String> {
    ProcessorSet::parse(text).ok_or_else(|| {
        format!(
            "host policy setting 'cpu-cores' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got {text}"
        )
    })
}

/// Whether a repository is in an object store.
pub(super) fn is_url(repository: &str) -> bool {
    repository.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_have_six_words_in_any_case() {
        for (text, value) in
            [("true", true), ("ON", true), ("1", true), ("False", false), ("off", false), ("0", false)]
        {
            assert_eq!(boolean(text), Ok(value));
        }
        assert_eq!(boolean("maybe"), Err("invalid value for bool option: maybe".into()));
        assert_eq!(boolean(""), Err("invalid value for bool option: ".into()));
    }

    #[test]
    fn an_integer_is_what_the_text_begins_with() {
        for (text, value) in [("12", 12), ("12abc", 12), (" +7", 7), ("-3 ", -3), ("1.9", 1)] {
            assert_eq!(integer(text, -100, 100), Ok(value));
        }
        for text in ["", "abc", "-", "- 3", "+"] {
            assert_eq!(integer(text, -100, 100), Err(format!("Invalid option value. Got {text}")));
        }
        for text in ["101", "-101", "99999999999999999999999"] {
            assert_eq!(
                integer(text, -100, 100),
                Err(format!("Provided option value is out of bound. Got {text}"))
            );
        }
    }

    #[test]
    fn a_float_is_what_the_text_begins_with() {
        assert_eq!(float("6.5"), Ok(6.5));
        assert_eq!(float(" 7x"), Ok(7.0));
        assert_eq!(float("1e3e"), Ok(1000.0));
        assert_eq!(float("x1"), Err("Invalid option value. Got x1".into()));
    }

    #[test]
    fn a_setting_may_hold_commas_and_equals_signs_after_its_name() {
        let read = |text| setting(text, "no name", "malformed");
        assert_eq!(read("k=v"), Ok(Setting { name: None, key: "k".into(), value: "v".into() }));
        assert_eq!(
            read("b,k=v,w=x"),
            Ok(Setting { name: Some("b".into()), key: "k".into(), value: "v,w=x".into() })
        );
        assert_eq!(read(",k=v"), Err("no name. Got ,k=v".into()));
        for text in ["", "k", "k=", "=v", "b,", "b,k", "b,=v", "k=v,w"] {
            assert_eq!(read(text), Err(format!("malformed. Got {text}")));
        }
    }

    #[test]
    fn permissions_are_octal() {
        assert_eq!(file_mode("0660"), Ok(0o660));
        assert_eq!(file_mode("777"), Ok(0o777));
        for wrong in ["", "8", "+660", "1777", "0o660", "rw"] {
            assert!(file_mode(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_restriction_names_each_category_once() {
        let kind =
            RestrictionKind { option: "http-restricted-api", noun: "api", header_prefix: "", lacks: None };
        let mut restrictions = RestrictionSettings::new();
        restrict("health,model-config:key=a=b", kind, &mut restrictions).unwrap();
        let header = RequiredHeader { name: "key".into(), value: "a=b".into() };
        assert_eq!(
            restrictions,
            RestrictionSettings::from([(Category::Health, header.clone()), (Category::ModelConfig, header)])
        );
        assert_eq!(
            restrict("trace,health:k=v", kind, &mut restrictions),
            Err("restricted api 'health' can not be specified in multiple config groups".into())
        );
    }

    #[test]
    fn a_resource_has_a_count_and_perhaps_a_device() {
        let resource = |count, device| RateLimitResource { name: "R".into(), count, device };
        assert_eq!(rate_limit_resource("R:1"), Ok(resource(1, None)));
        assert_eq!(rate_limit_resource("R:2:0"), Ok(resource(2, Some(0))));
        assert_eq!(rate_limit_resource("R:x"), Err("Invalid option value. Got x".into()));
        assert_eq!(rate_limit_resource("R:-1"), Err("Provided option value is out of bound. Got -1".into()));
        assert!(rate_limit_resource("R:1:0:2").is_err());
    }
}
