//! Scripts and random histories of the settings.
use proptest::prelude::*;

use super::*;

const TIMESTAMPS: TraceLevels = TraceLevels { timestamps: true, tensors: false };
const TENSORS: TraceLevels = TraceLevels { timestamps: false, tensors: true };
const OFF: TraceLevels = TraceLevels { timestamps: false, tensors: false };

fn with_file() -> TraceSettings {
    TraceSettings::new(DestinationKind::File, EffectiveSettings::default())
}

fn level(levels: TraceLevels) -> SettingsChange {
    SettingsChange { levels: FieldChange::Set(levels), ..SettingsChange::default() }
}

fn rate(rate: u32) -> SettingsChange {
    SettingsChange { rate: FieldChange::Set(rate), ..SettingsChange::default() }
}

fn count(count: u32) -> SettingsChange {
    SettingsChange { count: FieldChange::Set(Some(count)), ..SettingsChange::default() }
}

const CLEAR_RATE: SettingsChange = SettingsChange {
    levels: FieldChange::Keep,
    rate: FieldChange::Clear,
    count: FieldChange::Keep,
    log_frequency: FieldChange::Keep,
};

#[test]
fn a_field_that_a_layer_does_not_set_comes_from_the_layer_before_it() {
    let mut settings = with_file();
    settings.change(None, rate(5)).unwrap();
    assert_eq!((settings.global().rate, settings.of_model("m")), (5, None));
    assert_eq!(settings.change(Some("m"), count(7)).unwrap(), ChangeEffect::Model);
    let of_model = settings.of_model("m").unwrap();
    assert_eq!((of_model.rate, of_model.count), (5, Some(7)));
    assert_eq!(
        settings.change(None, rate(6)).unwrap(),
        ChangeEffect::Global { models: vec!["m".to_owned()] }
    );
    assert_eq!(settings.of_model("m").unwrap().rate, 6);
    assert_eq!(settings.global().count, None);
}

#[test]
fn a_model_that_sets_every_field_does_not_follow_the_others() {
    let mut settings = with_file();
    let all = SettingsChange {
        levels: FieldChange::Set(TENSORS),
        rate: FieldChange::Set(1),
        count: FieldChange::Set(None),
        log_frequency: FieldChange::Set(2),
    };
    settings.change(Some("m"), all).unwrap();
    assert_eq!(settings.change(None, rate(9)).unwrap(), ChangeEffect::Global { models: Vec::new() });
    let expected = EffectiveSettings { levels: TENSORS, rate: 1, count: None, log_frequency: 2 };
    assert_eq!(settings.of_model("m"), Some(expected));
}

#[test]
fn clearing_the_last_field_lets_a_model_follow_the_others_again() {
    let mut settings = with_file();
    settings.change(Some("m"), rate(3)).unwrap();
    assert_eq!(settings.change(Some("m"), CLEAR_RATE).unwrap(), ChangeEffect::Follows);
    assert_eq!(settings.of_model("m"), None);
    settings.change(None, rate(3)).unwrap();
    settings.change(None, CLEAR_RATE).unwrap();
    assert_eq!(settings.global(), EffectiveSettings::default());
}

#[test]
fn settings_that_ask_for_traces_and_cannot_make_any_are_refused_and_change_nothing() {
    let refused = |kind, before: &[SettingsChange], change| {
        let mut settings = TraceSettings::new(kind, EffectiveSettings::default());
        before.iter().for_each(|change| _ = settings.change(None, *change).unwrap());
        let copy = settings.clone();
        let error = settings.change(None, change).unwrap_err();
        assert_eq!(settings, copy);
        error.message.strip_prefix("Attempting to set invalid trace setting :").unwrap().to_owned()
    };
    assert_eq!(refused(DestinationKind::NoFile, &[], level(TIMESTAMPS)), "trace file name is not given");
    let no_rate = "sample rate must be non-zero";
    assert_eq!(refused(DestinationKind::File, &[level(TIMESTAMPS)], rate(0)), no_rate);
    assert_eq!(refused(DestinationKind::File, &[rate(0)], level(TENSORS)), no_rate);
    assert_eq!(refused(DestinationKind::Collector, &[level(TIMESTAMPS)], rate(0)), no_rate);
    let no_count = "trace count must be non-zero";
    assert_eq!(refused(DestinationKind::File, &[level(TIMESTAMPS)], count(0)), no_count);
    assert_eq!(refused(DestinationKind::Collector, &[count(0)], level(TIMESTAMPS)), no_count);
}

#[test]
fn settings_with_a_used_up_count_change_only_if_they_are_turned_off_or_get_another_one() {
    let mut settings = with_file();
    settings.change(None, SettingsChange { levels: FieldChange::Set(TIMESTAMPS), ..count(2) }).unwrap();
    settings.counted(None, 0);
    assert!(settings.change(None, rate(1)).is_err());
    assert!(settings.change(Some("m"), rate(1)).is_err());
    settings.change(Some("m"), count(1)).unwrap();
    settings.change(None, level(OFF)).unwrap();
    assert!(settings.change(None, level(TIMESTAMPS)).is_err());
    settings.change(None, SettingsChange { levels: FieldChange::Set(TIMESTAMPS), ..count(1) }).unwrap();
}

#[test]
fn a_model_that_has_used_up_its_count_hinders_no_change_for_all_models() {
    let mut settings = with_file();
    settings.change(Some("m"), SettingsChange { levels: FieldChange::Set(TIMESTAMPS), ..count(2) }).unwrap();
    settings.counted(Some("m"), 0);
    settings.change(None, rate(1)).unwrap();
}

#[test]
fn a_change_for_all_models_is_refused_if_a_model_could_not_trace_with_it() {
    let mut settings = with_file();
    settings.change(Some("m"), level(TIMESTAMPS)).unwrap();
    assert!(settings.change(None, rate(0)).is_err());
    assert_eq!(settings.global().rate, 1000);
    settings.change(Some("m"), level(OFF)).unwrap();
    settings.change(None, rate(0)).unwrap();
}

#[test]
fn settings_that_are_off_are_accepted_whatever_they_lack() {
    let mut settings = TraceSettings::new(DestinationKind::NoFile, EffectiveSettings::default());
    settings.change(None, rate(0)).unwrap();
    settings.change(None, level(OFF)).unwrap();
    assert!(!DestinationKind::NoFile.traces(&settings.global()));
}

#[test]
fn only_a_collector_traces_with_rate_zero() {
    let settings = EffectiveSettings { levels: TIMESTAMPS, rate: 0, ..EffectiveSettings::default() };
    assert!(DestinationKind::Collector.traces(&settings));
    assert!(!DestinationKind::File.traces(&settings));
    assert!(!DestinationKind::NoFile.traces(&EffectiveSettings { rate: 1, ..settings }));
    assert!(!DestinationKind::Collector.traces(&EffectiveSettings::default()));
}

#[test]
fn a_change_of_another_field_goes_on_counting() {
    let mut settings = with_file();
    settings.change(None, count(9)).unwrap();
    settings.change(Some("m"), count(5)).unwrap();
    settings.counted(None, 4);
    settings.counted(Some("m"), 3);
    settings.counted(Some("n"), 1);
    settings.change(None, rate(2)).unwrap();
    assert_eq!((settings.global().count, settings.of_model("m").unwrap().count), (Some(4), Some(3)));
    let mut at_start = TraceSettings::new(
        DestinationKind::File,
        EffectiveSettings { count: Some(9), ..EffectiveSettings::default() },
    );
    at_start.counted(None, 2);
    assert_eq!(at_start.global().count, Some(2));
    let mut unlimited = with_file();
    unlimited.counted(None, 2);
    assert_eq!(unlimited.global().count, None);
}

#[test]
fn levels_are_read_by_their_names() {
    let named = |names: &[&str]| TraceLevels::named(names.iter().copied());
    assert_eq!(named(&["TIMESTAMPS"]).unwrap(), Some(TIMESTAMPS));
    assert_eq!(named(&["TENSORS", "FOO"]).unwrap(), Some(TENSORS));
    assert_eq!(named(&["OFF"]).unwrap(), Some(OFF));
    assert_eq!(named(&["timestamps", "MIN"]).unwrap(), None);
    assert_eq!(named(&[]).unwrap(), None);
    assert!(named(&["OFF", "TENSORS"]).is_err() && named(&["FOO", "OFF"]).is_err());
    let both = TraceLevels { timestamps: true, tensors: true };
    assert_eq!((both.names(), OFF.names()), (vec!["TIMESTAMPS", "TENSORS"], vec!["OFF"]));
}

fn field<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = FieldChange<T>> {
    prop_oneof![
        2 => Just(None).prop_map(|_: Option<()>| FieldChange::Keep),
        1 => Just(None).prop_map(|_: Option<()>| FieldChange::Clear),
        3 => value.prop_map(FieldChange::Set),
    ]
}

fn change() -> impl Strategy<Value = SettingsChange> {
    let levels =
        (any::<bool>(), any::<bool>()).prop_map(|(timestamps, tensors)| TraceLevels { timestamps, tensors });
    (field(levels), field(0..3_u32), field(proptest::option::of(0..3_u32)), field(0..3_u32)).prop_map(
        |(levels, rate, count, log_frequency)| SettingsChange { levels, rate, count, log_frequency },
    )
}

/// The same settings in the simplest form: the latest change of each field in each layer.
#[derive(Default)]
struct Reference {
    changes: Vec<(Option<&'static str>, SettingsChange)>,
}

impl Reference {
    fn latest<T: Copy>(
        &self,
        model: Option<&str>,
        field: impl Fn(&SettingsChange) -> FieldChange<T>,
        below: T,
    ) -> (T, bool) {
        let in_layer = |layer: Option<&str>| {
            let of_layer = self.changes.iter().filter(|(other, _)| *other == layer);
            let last =
                of_layer.map(|(_, change)| field(change)).filter(|field| !matches!(field, FieldChange::Keep));
            match last.last() {
                Some(FieldChange::Set(value)) => Some(value),
                _ => None,
            }
        };
        let own = model.and_then(|model| in_layer(Some(model)));
        (own.or_else(|| in_layer(None)).unwrap_or(below), own.is_some())
    }

    fn of(&self, model: Option<&str>) -> (EffectiveSettings, bool) {
        let start = EffectiveSettings::default();
        let (levels, a) = self.latest(model, |change| change.levels, start.levels);
        let (rate, b) = self.latest(model, |change| change.rate, start.rate);
        let (count, c) = self.latest(model, |change| change.count, start.count);
        let (log_frequency, d) = self.latest(model, |change| change.log_frequency, start.log_frequency);
        (EffectiveSettings { levels, rate, count, log_frequency }, a || b || c || d)
    }
}

proptest! {
    #[test]
    fn any_history_of_changes_has_the_settings_of_the_latest_ones(
        history in proptest::collection::vec((proptest::option::of(prop_oneof![Just("a"), Just("b")]), change()), 1..30)
    ) {
        let mut settings = with_file();
        let mut reference = Reference::default();
        for (model, change) in history {
            if settings.change(model, change).is_ok() {
                reference.changes.push((model, change));
            }
            prop_assert_eq!(settings.global(), reference.of(None).0);
            for model in ["a", "b"] {
                let (expected, has_own) = reference.of(Some(model));
                prop_assert_eq!(settings.of_model(model), has_own.then_some(expected));
                let holds = expected.levels.is_off() || (expected.rate != 0 && expected.count != Some(0));
                prop_assert!(holds, "no layer asks for traces that it cannot make");
            }
        }
    }
}
