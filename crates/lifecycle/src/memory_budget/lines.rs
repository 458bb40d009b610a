//! Where models are, and why: for people.
use std::time::Duration;

use vocabulary::Name;

/// Why a model is not in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absence {
    /// No request has asked for it.
    NotWanted,
    /// It was unloaded because this model, or the growth of others, needed its memory.
    MadeRoom(Option<Name>),
    /// An operator has unloaded it. Requests do not load it before an operator does.
    Withdrawn,
    /// Its load has failed.
    Failed(String),
    /// It was refused.
    Refused(String),
}

/// Where a model is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetPlace {
    /// Not in memory.
    Out(Absence),
    /// It waits for memory, for a load thread, or for other models.
    Waiting,
    /// It is being loaded.
    Loading,
    /// In memory.
    In,
    /// It finishes its requests.
    Unloading,
}

/// A model as the budget sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetLine {
    /// The model.
    pub name: Name,
    /// Where it is.
    pub place: BudgetPlace,
    /// The bytes that it has, or is expected to need.
    pub bytes: u64,
    /// Whether the bytes were measured.
    pub is_measured: bool,
    /// It stays in memory.
    pub is_pinned: bool,
    /// Its priority.
    pub priority: u32,
    /// How long its last load took.
    pub load_duration: Duration,
}

impl BudgetPlace {
    /// The word for it in JSON.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Out(_) => "out",
            Self::Waiting => "waiting",
            Self::Loading => "loading",
            Self::In => "in",
            Self::Unloading => "unloading",
        }
    }
}

impl BudgetLine {
    /// The same without the names of other models that may not be told.
    #[must_use]
    pub fn telling(mut self, may_tell: impl Fn(&Name) -> bool) -> Self {
        if let BudgetPlace::Out(Absence::MadeRoom(model)) = &mut self.place {
            model.take_if(|model| !may_tell(model));
        }
        self
    }

    /// Why the model is in memory, or is not: a sentence without its end.
    pub fn why(&self) -> String {
        match &self.place {
            BudgetPlace::In if self.is_pinned => "it stays in memory: it is pinned".to_owned(),
            BudgetPlace::In => {
                "a request or an operator has asked for it, and no other model needs its memory".to_owned()
            }
            BudgetPlace::Loading => "it is being loaded".to_owned(),
            BudgetPlace::Waiting => "it waits for memory, for a load thread or for other models".to_owned(),
            BudgetPlace::Unloading => "it finishes its requests".to_owned(),
            BudgetPlace::Out(absence) => match absence {
                Absence::NotWanted => "no request has asked for it".to_owned(),
                Absence::MadeRoom(Some(model)) => {
                    format!("it was unloaded because model '{model}' needed its memory")
                }
                Absence::MadeRoom(None) => "it was unloaded because others needed its memory".to_owned(),
                Absence::Withdrawn => {
                    "an operator has unloaded it, and only an operator loads it again".to_owned()
                }
                Absence::Failed(reason) => format!("its load has failed: {reason}"),
                Absence::Refused(reason) => format!("it was refused: {reason}"),
            },
        }
    }
}
