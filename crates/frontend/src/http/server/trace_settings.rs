//! `/v2[/models/{M}]/trace/setting`: reads and changes the settings of tracing.
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

/// What a client says about each setting, in the order of [`trace_settings::CHANGEABLE`].
type SettingMembers = Vec<(&'static str, GivenSetting)>;

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
            Ok(index.map(|index| members.swap_remove(index).1))
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
    let mut members = Vec::new();
    for name in trace_settings::CHANGEABLE {
        let Some(value) = root.find(name) else { continue };
        let text = |value: JsonValue<'_>| value.as_text().map(std::borrow::Cow::into_owned);
        let setting = if value.is_null() {
            GivenSetting::Clear
        } else if name == "trace_level" {
            GivenSetting::Values(value.elements()?.map(text).collect::<Result<_, _>>()?)
        } else {
            GivenSetting::Values(vec![text(value)?])
        };
        members.push((name, setting));
    }
    Ok(members)
}
