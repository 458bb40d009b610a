//! Names of models with wildcards.

/// A name in which `*` stands for any characters, and `?` for exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamePattern(Vec<char>);

impl NamePattern {
    pub(super) fn new(text: &str) -> Self {
        Self(text.chars().collect())
    }

    /// Whether it matches each name.
    pub(super) fn is_any(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|character| *character == '*')
    }

    /// Takes time in proportion to the product of both lengths at most.
    pub(super) fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut rest) = (&self.0[..], name.chars());
        // Where to go on if the last `*` must stand for one more character.
        let mut retry: Option<(&[char], std::str::Chars<'_>)> = None;
        loop {
            if let Some((&'*', after)) = pattern.split_first() {
                retry = Some((after, rest.clone()));
                pattern = after;
                continue;
            }
            match (pattern.split_first(), rest.next()) {
                (None, None) => return true,
                (Some((expected, after)), Some(found)) if *expected == '?' || *expected == found => {
                    pattern = after;
                }
                _ => {
                    let Some((after, mut longer)) = retry.take() else { return false };
                    if longer.next().is_none() {
                        return false;
                    }
                    (pattern, rest) = (after, longer.clone());
                    retry = Some((after, longer));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters_and_a_question_mark_for_one() {
        for (pattern, name, matches) in [
            ("*", "", true),
            ("*", "any", true),
            ("", "", true),
            ("", "a", false),
            ("resnet", "resnet", true),
            ("resnet", "resnet50", false),
            ("resnet*", "resnet", true),
            ("resnet*", "resnet50", true),
            ("*net", "resnet", true),
            ("*net", "resnets", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "acb", false),
            ("*ab", "aab", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a?", "aé", true),
            ("a*", "ba", false),
            ("A", "a", false),
            ("[a]", "a", false),
            ("*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(NamePattern::new(pattern).matches(name), matches, "{pattern} {name}");
        }
    }
}
