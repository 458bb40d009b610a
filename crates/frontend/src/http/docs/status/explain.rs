//! Answers `/v2/explain`.
use http::{HeaderValue, StatusCode, header::CACHE_CONTROL};
use serde_json::json;

use super::{
    document::{document, log_line},
    name_filter::NameFilter,
};
use crate::{
    access::Category,
    http::{
        call::HttpCall,
        reply::{self, HttpFailure, HttpReply},
        service::HttpService,
    },
    log_control::LogLine,
};

impl HttpService {
    /// `GET /v2/explain[?name={part of a name}]`, and `GET /v2/models/{M}[/versions/{V}]/explain`
    pub(in crate::http) fn explain(
        &self,
        model: Option<(&str, Option<i64>)>,
        call: &HttpCall<'_>,
    ) -> Result<HttpReply, HttpFailure> {
        let filter = NameFilter::of(call.uri.query())?;
        let snapshot = self.engine.explain(model, |name| call.access.shows(name) && filter.admits(name))?;
        let mut document = document(&snapshot);
        let server = self.engine.server();
        document["server"]["name"] = json!(server.name);
        document["server"]["version"] = json!(server.version);
        if model.is_none()
            && let Some(lines) = self.visible_log(call)
        {
            document["log"] = lines.iter().map(log_line).collect();
        }
        let mut reply = reply::json(StatusCode::OK, document.to_string().into_bytes());
        reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(reply)
    }

    /// The last lines of the log, for senders that may use the API of the log and may know all models.
    fn visible_log(&self, call: &HttpCall<'_>) -> Option<Vec<LogLine>> {
        let may_see = self.meets_restriction(Category::Logging, call).is_ok()
            && call.access.check(Category::Logging, None).is_ok()
            && call.access.shows_all();
        self.options.log.as_ref().filter(|_| may_see)?.last_lines()
    }
}
