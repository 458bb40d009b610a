//! `/v2[/models/{M}]/trace/setting`: reads and changes the settings of tracing.
use std::borrow::Cow;

use http::{Method, StatusCode};
use kserve::{
    show,
    trace_settings::{self, CountErrorForm, GivenSetting},
};
use vocabulary::Error;

use crate::http::{
    call::HttpCall,
    context::HttpContext,
    json::{Document, JsonValue},
    reply::{self, HttpOutcome},
};

/// What a client says about each setting, in the order of [`trace_settings::CHANGEABLE`]. What cannot be read is refused when
/// its turn comes: a wrong value of an earlier setting is told first.
type SettingMembers = Vec<(&'static str, Result<GivenSetting, Error>)>;

pub(super) async fn answer(
    context: &HttpContext,
    call: &mut HttpCall<'_>,
    model: Option<&str>,
) -> HttpOutcome {
    trace_settings::check_model(&context.engine, model)?;
    let tracer = &context.options.tracer;
    if *call.method == Method::POST {
        let mut members = context.read_members(call.body, read).await?;
        let take = |name: &str| {
            let index = members.iter().position(|(other, _)| *other == name);
            index.map(|index| members.swap_remove(index).1).transpose()
        };
        trace_settings::change(tracer, model, CountErrorForm::Http, take)?;
    }
    Ok(reply::json(StatusCode::OK, show::trace_settings(&tracer.shown(model))))
}

fn read(json: &[u8]) -> Result<SettingMembers, Error> {
    let document = Document::parse(json)?;
    let root = document.root();
    if root.find(trace_settings::FILE).is_some() {
        return Err(trace_settings::file_is_fixed());
    }
    let members = trace_settings::CHANGEABLE.into_iter().filter_map(|name| {
        let value = root.find(name)?;
        Some((name, setting(name, value)))
    });
    Ok(members.collect())
}

fn setting(name: &str, value: JsonValue<'_>) -> Result<GivenSetting, Error> {
    let text = |value: JsonValue<'_>| value.as_text().map(Cow::into_owned);
    if value.is_null() {
        Ok(GivenSetting::Clear)
    } else if name == "trace_level" {
        value.elements()?.map(text).collect::<Result<_, _>>().map(GivenSetting::Values)
    } else {
        text(value).map(|text| GivenSetting::Values(vec![text]))
    }
}
