//! The front of tracing: samples requests, and changes settings.
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use inference::{MetricSource, Timestamp, lock::Mutex};
use vocabulary::Error;

use crate::{
    active::{ActiveSetting, ActiveSettings},
    config::{OtlpConfig, TraceConfig, TraceDestination},
    exporter::Exporter,
    propagation::RemoteContext,
    record::{TRACE_BYTES, TraceOrigin, new_span},
    request_trace::{RequestTrace, TraceRoot},
    settings::{ChangeEffect, DestinationKind, EffectiveSettings, SettingsChange, TraceSettings},
};

/// Decides which requests are traced, and passes their traces on.
pub struct Tracer {
    /// Whether any request can be traced. Nothing else is read while this is false.
    is_on: AtomicBool,
    active: ArcSwap<ActiveSettings>,
    settings: Mutex<TraceSettings>,
    kind: DestinationKind,
    exporter: Arc<Exporter>,
    destination: TraceDestination,
    next_setting: AtomicU64,
}

/// A setting as clients see it, with one value or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownSetting {
    /// The name of the setting.
    pub name: &'static str,
    /// Its values.
    pub values: Vec<String>,
}

impl Tracer {
    /// Starts the thread that writes or sends traces, if the configuration needs one.
    ///
    /// # Errors
    /// INVALID_ARG: the URL of the collector is not valid. INTERNAL: the thread cannot be started.
    pub fn start(config: &TraceConfig) -> Result<Self, Error> {
        let kind = match &config.destination {
            TraceDestination::File(file) if file.path.is_none() => DestinationKind::NoFile,
            TraceDestination::File(_) => DestinationKind::File,
            TraceDestination::Otlp(_) => DestinationKind::Collector,
        };
        let tracer = Self {
            is_on: AtomicBool::new(false),
            active: ArcSwap::default(),
            settings: Mutex::new(TraceSettings::new(kind, config.settings)),
            kind,
            exporter: Exporter::start(config)?,
            destination: config.destination.clone(),
            next_setting: AtomicU64::new(0),
        };
        tracer.warn_about(config.settings);
        let global = tracer.activate(config.settings);
        tracer.use_active(ActiveSettings { global, ..ActiveSettings::default() });
        Ok(tracer)
    }

    /// A tracer without a file and a collector: clients can read the settings, and turn nothing on.
    pub fn off() -> Self {
        Self::start(&TraceConfig::default()).expect("this configuration needs no thread and no URL")
    }

    /// A request for `model` has come, at this time. Returns its trace if the request is sampled. `context` reads what
    /// the client says about its own trace.
    #[inline]
    pub fn sample(
        &self,
        model: &str,
        at: Timestamp,
        context: impl FnOnce() -> Option<RemoteContext>,
    ) -> Option<RequestTrace> {
        if !self.is_on() {
            return None;
        }
        self.sample_by_settings(model, at, context)
    }

    /// Whether any request can be traced now.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    fn sample_by_settings(
        &self,
        model: &str,
        at: Timestamp,
        context: impl FnOnce() -> Option<RemoteContext>,
    ) -> Option<RequestTrace> {
        let active = self.active.load();
        let setting = active.of(model)?;
        let remote = if self.kind == DestinationKind::Collector { context() } else { None };
        let belongs_to_trace = remote.is_some();
        if !setting.sample(belongs_to_trace) {
            return None;
        }
        if self.exporter.budget().reservation().grow(TRACE_BYTES).is_err() {
            setting.take_back(belongs_to_trace);
            self.exporter.counters().dropped(1);
            return None;
        }
        let origin = (self.kind == DestinationKind::Collector).then(|| origin(remote, at));
        let setting = setting.clone();
        Some(RequestTrace::new(TraceRoot { setting, origin, belongs_to_trace, finished: Mutex::default() }))
    }

    /// Changes the settings of a model, or of all models, as a client asks.
    ///
    /// # Errors
    /// INVALID_ARG: the changed settings ask for traces, and cannot make any. Then nothing changes.
    pub fn change(&self, model: Option<&str>, change: SettingsChange) -> Result<(), Error> {
        // The end of settings tells the exporter, which has a lock of its own: they end after the lock of the settings.
        let (replaced, global) = self.replace(model, change)?;
        drop(replaced);
        self.warn_about(global);
        Ok(())
    }

    /// Returns the settings that were in force, and those of all models from now on.
    fn replace(
        &self,
        model: Option<&str>,
        change: SettingsChange,
    ) -> Result<(Arc<ActiveSettings>, EffectiveSettings), Error> {
        // The lock is held while the settings in force are replaced, so that they always agree.
        let mut settings = self.settings.lock();
        let active = self.active.load_full();
        let left = |setting: &Option<Arc<ActiveSetting>>| setting.as_ref().and_then(|setting| setting.left());
        if let Some(left) = left(&active.global) {
            settings.counted(None, left);
        }
        for (name, setting) in &active.models {
            if let Some(left) = left(setting) {
                settings.counted(Some(name), left);
            }
        }
        let effect = settings.change(model, change)?;
        let mut models = active.models.clone();
        let mut global = active.global.clone();
        let mut renew = |name: &str| {
            let own = settings.of_model(name).map(|own| self.activate(own));
            own.map(|own| models.insert(name.to_owned(), own));
        };
        match (effect, model) {
            (ChangeEffect::Global { models: inheriting }, _) => {
                inheriting.iter().for_each(|name| renew(name));
                global = self.activate(settings.global());
            }
            (ChangeEffect::Model, Some(name)) => renew(name),
            (ChangeEffect::Follows, Some(name)) => _ = models.remove(name),
            (ChangeEffect::Model | ChangeEffect::Follows, None) => {}
        }
        self.use_active(ActiveSettings { global, models });
        Ok((active, settings.global()))
    }

    /// The settings of a model, or of all models, as clients see them.
    pub fn shown(&self, model: Option<&str>) -> Vec<ShownSetting> {
        let settings = self.settings.lock();
        let active = self.active.load();
        let own = model.and_then(|model| settings.of_model(model));
        let setting = match model.filter(|_| own.is_some()) {
            Some(model) => active.models.get(model).and_then(Option::as_ref),
            None => active.global.as_ref(),
        };
        let EffectiveSettings { levels, rate, count, log_frequency } =
            own.unwrap_or_else(|| settings.global());
        let count = setting.map_or(count, |setting| setting.left());
        let one = |name, value: String| ShownSetting { name, values: vec![value] };
        let mut shown = vec![
            ShownSetting {
                name: "trace_level",
                values: levels.names().into_iter().map(str::to_owned).collect(),
            },
            one("trace_rate", rate.to_string()),
            one("trace_count", count.map_or_else(|| "-1".to_owned(), |count| count.to_string())),
        ];
        match &self.destination {
            TraceDestination::File(file) => {
                let path =
                    file.path.as_ref().map_or_else(String::new, |path| path.to_string_lossy().into_owned());
                shown.push(one("log_frequency", log_frequency.to_string()));
                shown.push(one("trace_file", path));
                shown.push(one("trace_mode", "triton".to_owned()));
            }
            TraceDestination::Otlp(otlp) => {
                shown.push(one("trace_mode", "opentelemetry".to_owned()));
                shown.extend(shown_collector(otlp));
            }
        }
        shown
    }

    /// The counters of tracing, for the metrics. `None` if no request can ever be traced.
    pub fn metrics(&self) -> Option<Arc<dyn MetricSource>> {
        (self.kind != DestinationKind::NoFile)
            .then(|| self.exporter.counters().clone() as Arc<dyn MetricSource>)
    }

    /// Ends tracing: writes or sends what has been collected. Requests that have not ended are lost. Blocks, at most
    /// for that time. Returns whether everything was written or sent.
    pub fn finish(&self, most: Duration) -> bool {
        self.is_on.store(false, Relaxed);
        self.active.store(Arc::default());
        self.exporter.finish(most)
    }

    fn activate(&self, settings: EffectiveSettings) -> Option<Arc<ActiveSetting>> {
        let id = self.next_setting.fetch_add(1, Relaxed);
        self.kind.traces(&settings).then(|| Arc::new(ActiveSetting::new(id, settings, self.exporter.clone())))
    }

    fn use_active(&self, active: ActiveSettings) {
        let traces = active.traces();
        self.active.store(Arc::new(active));
        self.is_on.store(traces, Relaxed);
    }

    fn warn_about(&self, settings: EffectiveSettings) {
        if self.kind == DestinationKind::Collector && settings.levels.tensors {
            log::error!("Tensor level tracing is not supported by the mode: opentelemetry");
        }
    }
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").field("is_on", &self.is_on).finish_non_exhaustive()
    }
}

fn shown_collector(otlp: &OtlpConfig) -> Vec<ShownSetting> {
    let one = |name, value: String| ShownSetting { name, values: vec![value] };
    let resource: Vec<_> = otlp.resource.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut shown = vec![one("url", otlp.url.clone())];
    if !resource.is_empty() {
        shown.push(ShownSetting { name: "resource", values: resource });
    }
    shown.extend([
        one("bsp_schedule_delay", otlp.schedule_delay.as_millis().to_string()),
        one("bsp_max_export_batch_size", otlp.max_export_batch_size.to_string()),
        one("bsp_max_queue_size", otlp.max_queue_size.to_string()),
        one("protocol", otlp.protocol.as_str().to_owned()),
    ]);
    shown
}

fn origin(remote: Option<RemoteContext>, begun: Timestamp) -> TraceOrigin {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX);
    let (trace_id, parent_span, state) = match remote {
        Some(remote) => (remote.trace_id, Some(remote.parent_span), remote.state),
        None => (rand::random::<u128>().max(1), None, None),
    };
    let wall_offset = unix.wrapping_sub(begun.as_nanos());
    TraceOrigin { trace_id, parent_span, state, root_span: new_span(), begun, wall_offset }
}

#[cfg(test)]
#[path = "tracer_tests.rs"]
mod tests;
