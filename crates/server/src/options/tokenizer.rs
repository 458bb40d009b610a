//! Divides a command line into options, values and positional arguments, by the rules of `getopt_long`.
//!
//! It accepts `--name value`, `--name=value`, and any unambiguous beginning of a name. Options and positional arguments
//! may have any order. `--` ends the options. A value may begin with a dash. The only short options are `-h` and `-V`.

use std::collections::VecDeque;
use std::ffi::OsString;

use inference::nearest;

use super::refusal::BadOption;
use super::table::{self, OptionSpec};

/// One option of the command line. The value of a flag is empty.
pub(super) struct GivenOption {
    pub(super) option: &'static OptionSpec,
    pub(super) value: String,
    /// Whether it was given as a letter.
    pub(super) is_letter: bool,
}

/// The words of a command line that are not read yet.
#[derive(Clone)]
pub(super) struct ArgumentTokens {
    ahead: VecDeque<String>,
    positionals: Vec<String>,
}

impl ArgumentTokens {
    pub(super) fn new(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, BadOption> {
        let ahead = arguments
            .into_iter()
            .map(|argument| {
                argument.into_string().map_err(|raw| {
                    BadOption::plain(format!("argument is not valid UTF-8: {}", raw.display()))
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { ahead, positionals: Vec::new() })
    }

    /// Whether the line asks for help or for the version before anything is wrong with it.
    pub(super) fn asks_for_text(&self) -> bool {
        let mut words = self.clone();
        std::iter::from_fn(|| words.next_option().ok().flatten())
            .any(|given| ["help", "version"].contains(&given.option.name))
    }

    /// The next option, or `None` at the end of the line.
    pub(super) fn next_option(&mut self) -> Result<Option<GivenOption>, BadOption> {
        while let Some(word) = self.ahead.pop_front() {
            if word == "--" {
                self.positionals.extend(self.ahead.drain(..));
                return Ok(None);
            }
            if let Some(option) = word.strip_prefix("--") {
                return self.option(option).map(Some);
            }
            match word.strip_prefix('-').and_then(|letters| letters.chars().next()) {
                Some(_) if word == "-h" => return self.letter("help").map(Some),
                Some(_) if word == "-V" => return self.letter("version").map(Some),
                Some(letter) => {
                    let text = format!("invalid option -- '{letter}'");
                    return Err(BadOption::framed(format!("-{letter}"), text).advising(did_you_mean(&word)));
                }
                None => self.positionals.push(word),
            }
        }
        Ok(None)
    }

    /// The arguments that belong to no option. Call it when the whole line has been read.
    pub(super) fn positionals(self) -> Vec<String> {
        self.positionals
    }

    fn letter(&mut self, name: &str) -> Result<GivenOption, BadOption> {
        Ok(GivenOption { is_letter: true, ..self.option(name)? })
    }

    fn option(&mut self, word: &str) -> Result<GivenOption, BadOption> {
        let (typed, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word, None),
        };
        let option = find(typed)?;
        let name = option.name;
        let value = match (option.is_flag(), value) {
            (true, None) => String::new(),
            (true, Some(_)) => {
                return Err(BadOption::framed(name, format!("option '--{name}' doesn't allow an argument")));
            }
            (false, Some(value)) => value,
            (false, None) => self
                .ahead
                .pop_front()
                .ok_or_else(|| BadOption::framed(name, format!("option '--{name}' requires an argument")))?,
        };
        Ok(GivenOption { option, value, is_letter: false })
    }
}

/// The option with exactly this name, otherwise the only option whose name begins with it.
fn find(typed: &str) -> Result<&'static OptionSpec, BadOption> {
    if let Some(option) = table::named(typed) {
        return Ok(option);
    }
    let candidates: Vec<_> = table::all().filter(|option| option.name.starts_with(typed)).collect();
    match candidates[..] {
        [] => {
            let refusal = BadOption::framed(typed, format!("unrecognized option '--{typed}'"));
            Err(refusal.advising(did_you_mean(typed)))
        }
        [option] => Ok(option),
        _ => {
            let names: String = candidates.iter().map(|option| format!(" '--{}'", option.name)).collect();
            Err(BadOption::framed(typed, format!("option '--{typed}' is ambiguous; possibilities:{names}")))
        }
    }
}

/// The option that a misspelt name most probably stands for. Dashes and value do not count.
pub(super) fn did_you_mean(typed: &str) -> Option<String> {
    let name = typed.trim_start_matches('-').split('=').next().unwrap_or_default();
    let known = nearest(name, table::all().map(|option| option.name))?;
    Some(format!("Did you mean '--{known}'?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The options with their values, and the first positional argument.
    type Read = (Vec<(&'static str, String)>, Option<String>);

    fn read(line: &[&str]) -> Result<Read, String> {
        let mut words =
            ArgumentTokens::new(line.iter().map(OsString::from)).map_err(|error| error.to_string())?;
        let mut seen = Vec::new();
        while let Some(given) = words.next_option().map_err(|error| error.to_string())? {
            seen.push((given.option.name, given.value));
        }
        Ok((seen, words.positionals().into_iter().next()))
    }

    #[test]
    fn a_value_follows_as_its_own_word_or_after_an_equals_sign() {
        let (seen, _) = read(&["--http-port", "1", "--grpc-port=2", "--id=a=b"]).unwrap();
        assert_eq!(seen, [("http-port", "1".into()), ("grpc-port", "2".into()), ("id", "a=b".into())]);
    }

    #[test]
    fn a_value_may_begin_with_a_dash_and_may_be_empty() {
        let (seen, _) = read(&["--exit-timeout-secs", "-5", "--log-file", "--id", "--id="]).unwrap();
        assert_eq!(
            seen,
            [("exit-timeout-secs", "-5".into()), ("log-file", "--id".into()), ("id", String::new())]
        );
    }

    #[test]
    fn an_unambiguous_beginning_of_a_name_is_enough() {
        let (seen, _) = read(&["--http-po", "1", "--cache-dir=x", "--disable"]).unwrap();
        assert_eq!(
            seen.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            ["http-port", "cache-directory", "disable-auto-complete-config"]
        );
    }

    #[test]
    fn a_complete_name_takes_precedence_over_longer_names() {
        let (seen, _) =
            read(&["--grpc-use-ssl=1", "--rate-limit=off", "--grpc-max-connection-age=1"]).unwrap();
        assert_eq!(
            seen.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            ["grpc-use-ssl", "rate-limit", "grpc-max-connection-age"]
        );
    }

    #[test]
    fn an_ambiguous_beginning_is_refused_with_its_possibilities() {
        let error = read(&["--grpc-server=x"]).unwrap_err();
        assert!(error.starts_with(
            "error: Bad option: \"--grpc-server\".\noption '--grpc-server' is ambiguous; possibilities: \
             '--grpc-server-cert' '--grpc-server-key'"
        ));
    }

    #[test]
    fn errors_of_getopt_have_the_words_of_getopt() {
        for (line, text) in [
            (&["--nonsense"][..], "error: Bad option: \"--nonsense\".\nunrecognized option '--nonsense'"),
            (
                &["--http-port"][..],
                "error: Bad option: \"--http-port\".\noption '--http-port' requires an argument",
            ),
            (&["--help=1"][..], "error: Bad option: \"--help\".\noption '--help' doesn't allow an argument"),
            (&["-p", "8000"][..], "error: Bad option: \"-p\".\ninvalid option -- 'p'"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.starts_with(text), "{error}");
        }
    }

    #[test]
    fn help_and_version_have_a_letter() {
        let (seen, _) = read(&["-h", "-V"]).unwrap();
        assert_eq!(seen, [("help", String::new()), ("version", String::new())]);
        assert!(read(&["-hV"]).is_err());
    }

    #[test]
    fn a_misspelt_option_is_reported_with_the_probably_intended_one() {
        for (typed, meant) in [
            ("--model-repositry=/m", "--model-repository"),
            ("--model_repository", "--model-repository"),
            ("--grpc-prot=1", "--grpc-port"),
            ("-model-repository=/m", "--model-repository"),
        ] {
            let error = read(&[typed]).unwrap_err();
            assert!(error.contains(&format!("\nDid you mean '{meant}'?\n\nUsage: ")), "{error}");
        }
        let error = read(&["--frobnicate-all-models"]).unwrap_err();
        assert!(!error.contains("Did you mean"), "{error}");
    }

    #[test]
    fn positional_arguments_stand_anywhere_and_a_double_dash_ends_the_options() {
        assert_eq!(
            read(&["stray", "--id=x", "other"]).unwrap(),
            (vec![("id", "x".into())], Some("stray".into()))
        );
        assert_eq!(
            read(&["--id=x", "--", "--id=y"]).unwrap(),
            (vec![("id", "x".into())], Some("--id=y".into()))
        );
        assert_eq!(read(&["-"]).unwrap(), (vec![], Some("-".into())));
    }

    #[test]
    fn an_argument_that_is_not_utf_8_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let error = ArgumentTokens::new([OsString::from_vec(vec![b'-', b'-', 0xff])]).err().unwrap();
        assert!(error.to_string().contains("argument is not valid UTF-8"));
    }
}
