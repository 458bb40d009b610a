//! What a client probably means by a name that the model does not have. Only refusals ask for it.
use vocabulary::{Name, Parameters};

use crate::{did_you_mean, nearest};

/// The most names of a model that a text shows.
const MOST_SHOWN: usize = 16;

/// The most parameters that are compared with the names of inputs: a client may send any number.
const MOST_PARAMETERS: usize = 64;

/// The end of a text about the unknown `name`: the name of `free` that is probably meant, or all of them. `free` are the
/// names of the model that the request does not have. `what` is `input` or `output`.
pub(crate) fn meant_or_free<'n>(
    what: &str,
    name: &str,
    free: impl Iterator<Item = &'n Name> + Clone,
) -> String {
    let near = nearest(name, free.clone());
    let count = free.clone().count();
    if near.is_some() || count == 0 {
        return did_you_mean(near);
    }
    let more = if count > MOST_SHOWN { ",..." } else { "" };
    format!(". Available {what}(s): [{}{more}]", quoted(free.take(MOST_SHOWN)))
}

/// The sentence about a parameter that is probably meant as one of the inputs `missing`.
pub(crate) fn misplaced_input<'n>(
    parameters: &Parameters,
    missing: &(impl Iterator<Item = &'n Name> + Clone),
) -> Option<String> {
    let (key, near) = parameters
        .iter()
        .take(MOST_PARAMETERS)
        .find_map(|(key, _)| Some((key, nearest(key, missing.clone())?)))?;
    Some(format!(" The parameter '{key}' is no input of the model{}", did_you_mean(Some(near))))
}

/// `'A','B'`
pub(crate) fn quoted<'n>(names: impl Iterator<Item = &'n Name>) -> String {
    names.map(|name| format!("'{name}'")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use vocabulary::Parameter;

    use super::*;

    fn names(count: usize) -> Vec<Name> {
        (0..count).map(|index| Name::new(&format!("INPUT{index}"))).collect()
    }

    #[test]
    fn a_misspelt_name_is_told_and_another_one_gets_the_list() {
        let meant = |name: &str| meant_or_free("input", name, names(2).iter());
        assert_eq!(meant("inptu1"), ", did you mean 'INPUT1'?");
        assert_eq!(meant("image"), ". Available input(s): ['INPUT0','INPUT1']");
        assert_eq!(meant_or_free("input", "image", names(0).iter()), "");
        let many = meant_or_free("output", "image", names(1000).iter());
        assert!(many.ends_with("'INPUT14','INPUT15',...]") && many.len() < 250, "{many}");
    }

    #[test]
    fn a_parameter_is_told_only_if_it_looks_like_an_input() {
        let parameters = |keys: &[&str]| -> Parameters {
            keys.iter().map(|key| (Name::new(key), Parameter::Bool(true))).collect()
        };
        let told = |keys: &[&str]| misplaced_input(&parameters(keys), &names(1).iter());
        assert_eq!(told(&["temperature", "top_k"]), None);
        let text = " The parameter 'inptu0' is no input of the model, did you mean 'INPUT0'?";
        assert_eq!(told(&["top_k", "inptu0"]).as_deref(), Some(text));
    }
}
