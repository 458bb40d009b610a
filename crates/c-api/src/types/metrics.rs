//! `TRITONSERVER_Metric*`: metrics that plug-ins count. The server shows them after its own metrics.
use std::{
    ffi::c_char,
    ptr,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use inference::{
    MetricSource,
    lock::Mutex,
    metric_registry::{CustomMetric as Value, CustomMetricFamily as Family},
    metrics::MetricLabels as Labels,
};
use vocabulary::{Error, LabelName, Parameter};

use super::{error::CError, parameter::NamedParameter};
use crate::handle::{Handle, array, borrow, delete, give, guard, put, text};

pub use inference::metric_registry::MetricRegistry;
pub use inference::metrics::MetricKind as Kind;

/// The only state that the C interface keeps for the whole process: these functions name no server.
static REGISTRY: LazyLock<Arc<MetricRegistry>> = LazyLock::new(Arc::default);

/// `TRITONSERVER_MetricKind`.
fn kind_of(number: u32) -> Option<Kind> {
    [Kind::Counter, Kind::Gauge, Kind::Histogram].get(usize::try_from(number).ok()?).copied()
}

/// `TRITONSERVER_MetricKind`.
fn number_of(kind: Kind) -> u32 {
    match kind {
        Kind::Counter => 0,
        Kind::Gauge => 1,
        Kind::Histogram => 2,
        Kind::Summary => unreachable!("plug-ins cannot make summaries"),
    }
}

/// The registry of the process, which other sources of metrics share.
pub fn registry() -> Arc<MetricRegistry> {
    REGISTRY.clone()
}

/// The metrics of plug-ins, for the server's metrics text.
pub fn source() -> Arc<dyn MetricSource> {
    REGISTRY.clone()
}

/// `TRITONSERVER_MetricFamily`: a handle of a family.
#[derive(Debug)]
pub struct MetricFamily {
    family: Arc<Family>,
    /// The number of metrics that were made through this handle and not deleted.
    metrics: Arc<AtomicUsize>,
}

impl Handle for MetricFamily {
    const NAME: &'static str = "TRITONSERVER_MetricFamily";
}

/// `TRITONSERVER_Metric`: a handle of a value.
#[derive(Debug)]
pub struct Metric {
    family: Arc<Family>,
    labels: Labels,
    value: Arc<Value>,
    siblings: Arc<AtomicUsize>,
}

impl Handle for Metric {
    const NAME: &'static str = "TRITONSERVER_Metric";
}

/// `TRITONSERVER_MetricArgs`: the bounds of a histogram, once they are set.
#[derive(Debug, Default)]
pub struct MetricArgs {
    bounds: Mutex<Option<Vec<f64>>>,
}

impl Handle for MetricArgs {
    const NAME: &'static str = "TRITONSERVER_MetricArgs";
}

impl MetricFamily {
    fn metric(&self, labels: Labels, bounds: Option<Vec<f64>>) -> Result<Metric, Error> {
        let value = self.family.value(&labels, bounds)?;
        self.metrics.fetch_add(1, Ordering::AcqRel);
        Ok(Metric { family: self.family.clone(), labels, value, siblings: self.metrics.clone() })
    }
}

impl Drop for Metric {
    fn drop(&mut self) {
        self.family.let_go(&self.labels);
        self.siblings.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Makes a handle of the family of that name. The family is registered if it does not exist. The caller owns the
/// handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricFamilyNew(
    family: *mut *mut MetricFamily,
    kind: u32,
    name: *const c_char,
    description: *const c_char,
) -> *mut CError {
    guard(|| {
        let unknown = || Error::invalid("Unsupported kind passed to MetricFamily constructor.");
        let kind = kind_of(kind).ok_or_else(unknown)?;
        // SAFETY: texts or null.
        let (name, help) = unsafe { (text(name)?, text(description)?) };
        let hold = MetricFamily { family: REGISTRY.family(kind, name, help)?, metrics: Arc::default() };
        // SAFETY: null or writable.
        unsafe { give(family, hold) }
    })
}

/// Deletes the handle of a family; null is fine. Refused while metrics that were made through it exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricFamilyDelete(family: *mut MetricFamily) -> *mut CError {
    guard(|| {
        // SAFETY: null or a live hold.
        if unsafe { family.as_ref() }.is_some_and(|hold| hold.metrics.load(Ordering::Acquire) > 0) {
            return Err(Error::internal(
                "Must call MetricDelete on all dependent metrics before calling MetricFamilyDelete.",
            ));
        }
        // SAFETY: the caller does not use it after this.
        unsafe { delete(family) };
        Ok(())
    })
}

/// Returns the kind of a family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_GetMetricFamilyKind(
    family: *mut MetricFamily,
    kind: *mut u32,
) -> *mut CError {
    // SAFETY: null or a live hold; null or writable.
    guard(|| unsafe { put(kind, number_of(borrow(family)?.family.kind())) })
}

/// Makes empty arguments. The caller owns them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricArgsNew(args: *mut *mut MetricArgs) -> *mut CError {
    // SAFETY: null or writable.
    guard(|| unsafe { give(args, MetricArgs::default()) })
}

/// Sets the bounds of a histogram, which are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricArgsSetHistogram(
    args: *mut MetricArgs,
    buckets: *const f64,
    buckets_count: u64,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or live arguments; null or that many bounds.
        let (args, bounds) = unsafe { (borrow(args)?, array(buckets, buckets_count)?) };
        *args.bounds.lock() = Some(bounds.to_vec());
        Ok(())
    })
}

/// Deletes arguments; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricArgsDelete(args: *mut MetricArgs) -> *mut CError {
    // SAFETY: null or arguments that the caller does not use after this.
    unsafe { delete(args) };
    ptr::null_mut()
}

/// Labels as C passes them. If a name repeats, the last label counts.
unsafe fn labels(first: *const *const NamedParameter, count: u64) -> Result<Labels, Error> {
    let mut labels = Labels::new();
    // SAFETY: null or that many parameters, as the caller promises.
    for parameter in unsafe { array(first, count)? } {
        // SAFETY: null or a live parameter.
        let NamedParameter { name, value } = unsafe { borrow(*parameter) }?;
        let Parameter::String(value) = value else {
            return Err(Error::invalid(format!(
                "Parameter [{name}] must have a type of TRITONSERVER_PARAMETER_STRING to be added as a label."
            )));
        };
        labels.insert(LabelName::new(&**name)?, value.to_string());
    }
    Ok(labels)
}

/// Makes a handle of the metric with these labels, which are copied. The caller owns it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricNew(
    metric: *mut *mut Metric,
    family: *mut MetricFamily,
    labels: *const *const NamedParameter,
    label_count: u64,
) -> *mut CError {
    // SAFETY: passed on unchanged.
    unsafe { TRITONSERVER_MetricNewWithArgs(metric, family, labels, label_count, ptr::null()) }
}

/// Makes a handle of the metric with these labels and arguments, which are copied. The caller owns it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricNewWithArgs(
    metric: *mut *mut Metric,
    family: *mut MetricFamily,
    labels: *const *const NamedParameter,
    label_count: u64,
    args: *const MetricArgs,
) -> *mut CError {
    guard(|| {
        // SAFETY: null or live objects; that many labels or null.
        let (hold, labels, args) =
            unsafe { (borrow(family)?, self::labels(labels, label_count)?, args.as_ref()) };
        let bounds = args.map(|args| args.bounds.lock().clone());
        if bounds == Some(None) && hold.family.kind() == Kind::Histogram {
            return Err(Error::invalid("Metric args not set to histogram kind."));
        }
        let made = hold.metric(labels, bounds.map(Option::unwrap_or_default))?;
        // SAFETY: null or writable.
        unsafe { give(metric, made) }
    })
}

/// Deletes the handle of a metric; null is fine. The value is shown until the last handle with the same labels is
/// deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricDelete(metric: *mut Metric) -> *mut CError {
    // SAFETY: null or a metric that the caller does not use after this.
    unsafe { delete(metric) };
    ptr::null_mut()
}

/// Returns the value of a counter or gauge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricValue(metric: *mut Metric, value: *mut f64) -> *mut CError {
    // SAFETY: null or a live metric; null or writable.
    guard(|| unsafe { put(value, borrow(metric)?.value.get()?) })
}

/// Adds to a counter or gauge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricIncrement(metric: *mut Metric, value: f64) -> *mut CError {
    // SAFETY: null or a live metric.
    guard(|| unsafe { borrow(metric) }?.value.increment(value))
}

/// Sets a gauge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricSet(metric: *mut Metric, value: f64) -> *mut CError {
    // SAFETY: null or a live metric.
    guard(|| unsafe { borrow(metric) }?.value.set(value))
}

/// Counts a value in a histogram.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricObserve(metric: *mut Metric, value: f64) -> *mut CError {
    // SAFETY: null or a live metric.
    guard(|| unsafe { borrow(metric) }?.value.observe(value))
}

/// Returns the kind of a metric.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_GetMetricKind(metric: *mut Metric, kind: *mut u32) -> *mut CError {
    // SAFETY: null or a live metric; null or writable.
    guard(|| unsafe { put(kind, number_of(borrow(metric)?.family.kind())) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{error::consume, parameter::TRITONSERVER_ParameterNew};

    fn result_text(error: *mut CError) -> String {
        // SAFETY: an error that this function owns, or null.
        unsafe { consume(error) }.map_or_else(|error| error.with_code(), |()| "fine".to_owned())
    }

    /// A family of a name that no other test uses.
    fn family(kind: u32, name: &std::ffi::CStr) -> *mut MetricFamily {
        let mut family = ptr::null_mut();
        // SAFETY: texts and places of this function.
        let error =
            unsafe { TRITONSERVER_MetricFamilyNew(&raw mut family, kind, name.as_ptr(), c"help".as_ptr()) };
        assert_eq!(result_text(error), "fine");
        family
    }

    fn metric(family: *mut MetricFamily, args: *const MetricArgs) -> (String, *mut Metric) {
        let mut metric = ptr::null_mut();
        // SAFETY: a live family, live arguments or null.
        let error = unsafe { TRITONSERVER_MetricNewWithArgs(&raw mut metric, family, ptr::null(), 0, args) };
        (result_text(error), metric)
    }

    #[test]
    fn a_family_outlives_its_metrics() {
        let family = family(1, c"outlives");
        let (_, metric) = metric(family, ptr::null());
        // SAFETY: live handles, each deleted once.
        unsafe {
            assert_eq!(
                result_text(TRITONSERVER_MetricFamilyDelete(family)),
                "Internal: Must call MetricDelete on all dependent metrics before calling MetricFamilyDelete."
            );
            assert_eq!(result_text(TRITONSERVER_MetricDelete(metric)), "fine");
            assert_eq!(result_text(TRITONSERVER_MetricFamilyDelete(family)), "fine");
            assert_eq!(result_text(TRITONSERVER_MetricFamilyDelete(ptr::null_mut())), "fine");
            assert_eq!(result_text(TRITONSERVER_MetricDelete(ptr::null_mut())), "fine");
        }
    }

    #[test]
    fn what_a_kind_cannot_do_is_refused_in_the_words_of_the_reference() {
        let mut args = ptr::null_mut();
        // SAFETY: live handles, each deleted once.
        unsafe {
            TRITONSERVER_MetricArgsNew(&raw mut args);
            let histograms = family(2, c"refuses_histogram");
            let unset = metric(histograms, args).0;
            assert_eq!(unset, "Invalid argument: Metric args not set to histogram kind.");
            TRITONSERVER_MetricArgsSetHistogram(args, [1.0].as_ptr(), 1);
            let (_, histogram) = metric(histograms, args);
            let counters = family(0, c"refuses_counter");
            let (_, counter) = metric(counters, ptr::null());
            let unsupported = |kind: &str, what: &str| {
                format!("Unsupported: TRITONSERVER_METRIC_KIND_{kind} does not support {what}")
            };
            let mut value = 0.0;
            assert_eq!(
                result_text(TRITONSERVER_MetricValue(histogram, &raw mut value)),
                unsupported("HISTOGRAM", "Value")
            );
            assert_eq!(
                result_text(TRITONSERVER_MetricIncrement(histogram, 1.0)),
                unsupported("HISTOGRAM", "Increment")
            );
            assert_eq!(result_text(TRITONSERVER_MetricSet(counter, 1.0)), unsupported("COUNTER", "Set"));
            assert_eq!(
                result_text(TRITONSERVER_MetricObserve(counter, 1.0)),
                unsupported("COUNTER", "Observe")
            );
            assert_eq!(
                result_text(TRITONSERVER_MetricIncrement(counter, -1.0)),
                "Invalid argument: TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by \
                 non-negative values."
            );
            for metric in [histogram, counter] {
                TRITONSERVER_MetricDelete(metric);
            }
            for family in [histograms, counters] {
                TRITONSERVER_MetricFamilyDelete(family);
            }
            TRITONSERVER_MetricArgsDelete(args);
        }
    }

    #[test]
    fn labels_are_texts() {
        let number = 1_i64;
        let gauges = family(1, c"labels_are_texts");
        let mut metric = ptr::null_mut();
        // SAFETY: live handles, each deleted once.
        unsafe {
            let label = TRITONSERVER_ParameterNew(c"n".as_ptr(), 1, ptr::from_ref(&number).cast());
            let error = TRITONSERVER_MetricNew(&raw mut metric, gauges, &raw const label as *const _, 1);
            assert_eq!(
                result_text(error),
                "Invalid argument: Parameter [n] must have a type of TRITONSERVER_PARAMETER_STRING to be added as \
                 a label."
            );
            drop(Box::from_raw(label));
            TRITONSERVER_MetricFamilyDelete(gauges);
        }
    }

    #[test]
    fn the_kind_of_a_metric_is_readable_and_unknown_kinds_are_refused() {
        let (mut kind, mut none) = (9, ptr::null_mut());
        let gauges = family(1, c"kinds_are_told");
        let (_, gauge) = metric(gauges, ptr::null());
        // SAFETY: live handles, each deleted once.
        unsafe {
            assert_eq!(result_text(TRITONSERVER_GetMetricKind(gauge, &raw mut kind)), "fine");
            assert_eq!(
                (kind, result_text(TRITONSERVER_GetMetricFamilyKind(gauges, &raw mut kind)).as_str()),
                (1, "fine")
            );
            assert_eq!(
                result_text(TRITONSERVER_MetricFamilyNew(&raw mut none, 3, c"n".as_ptr(), c"".as_ptr())),
                "Invalid argument: Unsupported kind passed to MetricFamily constructor."
            );
            TRITONSERVER_MetricDelete(gauge);
            TRITONSERVER_MetricFamilyDelete(gauges);
        }
    }

    #[test]
    fn what_is_counted_is_in_the_text() {
        let gauges = family(1, c"in_the_text");
        let (_, gauge) = metric(gauges, ptr::null());
        let mut text = inference::metrics::MetricsText::default();
        // SAFETY: live handles, each deleted once.
        unsafe {
            TRITONSERVER_MetricSet(gauge, 4.0);
            source().append_to(&mut text);
            TRITONSERVER_MetricDelete(gauge);
            TRITONSERVER_MetricFamilyDelete(gauges);
        }
        let text = text.finish();
        assert!(text.contains("# TYPE in_the_text gauge\nin_the_text 4\n"), "{text}");
    }
}
