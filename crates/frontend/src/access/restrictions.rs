//! Restricts parts of the protocols to clients that send the right header.
use subtle::ConstantTimeEq;

/// A part of the protocol that can be restricted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Liveness and readiness.
    Health,
    /// Server and model metadata.
    Metadata,
    /// Inference, including generate and streams.
    Inference,
    /// System and CUDA shared memory.
    SharedMemory,
    /// Reads the configuration of a model.
    ModelConfig,
    /// The repository index, load and unload.
    ModelRepository,
    /// Inference statistics.
    Statistics,
    /// Trace settings.
    Trace,
    /// Log settings.
    Logging,
    /// What the server does now, for people: the status page and its numbers. Only HTTP has it.
    Status,
}

impl Category {
    /// Every category, in the order of their discriminants.
    pub const ALL: [Self; 10] = [
        Self::Health,
        Self::Metadata,
        Self::Inference,
        Self::SharedMemory,
        Self::ModelConfig,
        Self::ModelRepository,
        Self::Statistics,
        Self::Trace,
        Self::Logging,
        Self::Status,
    ];

    /// The name of the category on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Metadata => "metadata",
            Self::Inference => "inference",
            Self::SharedMemory => "shared-memory",
            Self::ModelConfig => "model-config",
            Self::ModelRepository => "model-repository",
            Self::Statistics => "statistics",
            Self::Trace => "trace",
            Self::Logging => "logging",
            Self::Status => "status",
        }
    }

    /// The category with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.name() == name)
    }
}

/// The header that each category requires. By default none.
#[derive(Debug, Clone, Default)]
pub struct Restrictions {
    required: [Option<Required>; Category::ALL.len()],
}

#[derive(Debug, Clone)]
struct Required {
    header: String,
    value: String,
}

/// The refusal of a request without the right header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied<'r> {
    /// The header that the request needs. The refusal does not contain its value.
    pub header: &'r str,
}

impl Restrictions {
    /// From now on, requests of `category` need the header `header` with exactly `value`. The case of the header's name
    /// does not matter.
    pub fn require(&mut self, category: Category, header: impl Into<String>, value: impl Into<String>) {
        self.required[category as usize] = Some(Required { header: header.into(), value: value.into() });
    }

    /// Checks that a request may use `category`. `header` returns the value of a header of the request.
    ///
    /// # Errors
    /// The header is missing or has another value.
    pub fn check<'h>(
        &self,
        category: Category,
        header: impl FnOnce(&str) -> Option<&'h [u8]>,
    ) -> Result<(), Denied<'_>> {
        let Some(required) = &self.required[category as usize] else { return Ok(()) };
        match header(&required.header) {
            // The comparison takes the same time wherever the values differ.
            Some(value) if value.ct_eq(required.value.as_bytes()).into() => Ok(()),
            _ => Err(Denied { header: &required.header }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_value_opens_a_category() {
        let mut restrictions = Restrictions::default();
        restrictions.require(Category::ModelRepository, "adminkey", "secret");
        let check = |value: Option<&'static str>| {
            restrictions.check(Category::ModelRepository, |name| {
                assert_eq!(name, "adminkey");
                value.map(str::as_bytes)
            })
        };
        assert_eq!(check(Some("secret")), Ok(()));
        for wrong in [None, Some(""), Some("Secret"), Some("secre"), Some("secrets")] {
            assert_eq!(check(wrong), Err(Denied { header: "adminkey" }), "{wrong:?}");
        }
        assert_eq!(restrictions.check(Category::Health, |_| None), Ok(()));
    }

    #[test]
    fn a_category_is_found_by_its_name() {
        for (index, category) in Category::ALL.into_iter().enumerate() {
            assert_eq!(category as usize, index);
            assert_eq!(Category::named(category.name()), Some(category));
        }
        assert_eq!(Category::named("Health"), None);
    }
}
