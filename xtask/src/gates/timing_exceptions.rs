//! The lines of test code that may sleep or measure time, and why.

use std::fmt;

/// Lines of a file that may do so.
pub(super) struct TimingException {
    /// The path of the file in the repository, or of the folder, which ends with a slash.
    pub(super) path: &'static str,
    /// What the lines contain: nothing, if all lines of the file may do so.
    pub(super) line: &'static str,
    pub(super) reason: &'static str,
}

impl TimingException {
    pub(super) fn covers(&self, path: &str, line: &str) -> bool {
        let here = path == self.path || (self.path.ends_with('/') && path.starts_with(self.path));
        here && line.contains(self.line)
    }
}

impl fmt::Display for TimingException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, '{}': {}", self.path, self.line, self.reason)
    }
}

pub(super) const EXCEPTIONS: &[TimingException] = &[
    TimingException {
        path: "crates/backend-python/tests/python/leaving.rs",
        line: "sleep(0.001)",
        reason: "models in Python that ask again and again until a file is there",
    },
    TimingException {
        path: "crates/backend-python/tests/python/requests.rs",
        line: "asyncio.sleep(0.001)",
        reason: "models in Python that ask again and again until something is so",
    },
    TimingException {
        path: "crates/backend-python/tests/python/support.rs",
        line: "PATIENCE",
        reason: "the helper `eventually`; its limit decides only when a broken test ends",
    },
    TimingException {
        path: "crates/backend-python/tests/python/workers.rs",
        line: "time.sleep(1000)",
        reason: "models in Python that never end; a limit of the server, or the test, ends them",
    },
    TimingException {
        path: "crates/perf/src/report/profile.rs",
        line: "start.elapsed() < Duration::from_micros(20)",
        reason: "work of a known length, which a slow machine only makes longer",
    },
    TimingException {
        path: "crates/client/src/timer.rs",
        line: "timer.sleep(wanted)",
        reason: "the tested timer; the test checks that it never ends early",
    },
    TimingException {
        path: "tests/chaos/__main__.py",
        line: "time.monotonic()",
        reason: "how long a campaign looks for a small history",
    },
    TimingException {
        path: "tests/chaos/campaign.py",
        line: "time.monotonic()",
        reason: "how long a campaign lasts; what it judges has no time",
    },
    TimingException {
        path: "tests/chaos/changes.py",
        line: "time.monotonic()",
        reason: "how long stops take, which is printed",
    },
    TimingException {
        path: "tests/chaos/python_models/",
        line: "sleep(",
        reason: "models in Python that let others run before they answer",
    },
    TimingException {
        path: "tests/differential/__main__.py",
        line: "time.monotonic()",
        reason: "how long a comparison lasts; what it compares has no time",
    },
    TimingException {
        path: "tests/differential/python_models/",
        line: "sleep(",
        reason: "models in Python that ask again and again until a file is there",
    },
    TimingException {
        path: "tests/clients/stand_ins/vllm.py",
        line: "asyncio.sleep(0.001)",
        reason: "the steps of an engine; tests hold at any pace",
    },
    TimingException {
        path: "tests/clients/balancer.py",
        line: "",
        reason: "a program that asks servers at a pace and prints its rate; no test compares it",
    },
    TimingException {
        path: "tests/clients/browser.py",
        line: "asyncio.sleep(0.01)",
        reason: "the helper `until` of a page; its limit decides only when a broken test ends",
    },
    TimingException {
        path: "tests/clients/callers.py",
        line: "",
        reason: "callers that send at a pace; no test is right because of it",
    },
    TimingException {
        path: "tests/clients/python_models/custom_metrics.py",
        line: "monotonic_ns()",
        reason: "an example of Triton, which measures for a metric that no test compares",
    },
    TimingException {
        path: "tests/clients/python_models/",
        line: "sleep(",
        reason: "models that ask again until something is so, or wait as long as the client says",
    },
    TimingException {
        path: "tests/clients/serving.py",
        line: "",
        reason: "the helper `eventually`; its limit decides only when a broken test ends",
    },
    TimingException {
        path: "tests/clients/test_completions.py",
        line: "deadline",
        reason: "reads of a terminal; the limit decides only when a broken test ends",
    },
    TimingException {
        path: "tests/clients/test_dynamic_batching.py",
        line: "monotonic_ns()",
        reason: "intervals of the test contain intervals of the server: an order of events",
    },
    TimingException {
        path: "tests/clients/test_model_killed.py",
        line: "chosen.random()",
        reason: "a random moment at which a server is killed; the test holds at each",
    },
    TimingException {
        path: "tests/clients/test_model_operations.py",
        line: "monotonic()",
        reason: "the order of events of several threads, and the length of the run, which is printed",
    },
    TimingException {
        path: "tests/clients/test_model_polling.py",
        line: "monotonic_ns()",
        reason: "a content that differs from each earlier one",
    },
    TimingException {
        path: "tests/clients/test_model_polling.py",
        line: "time.sleep(0.3)",
        reason: "lets a mistake show itself; the test holds however long it is",
    },
    TimingException {
        path: "tests/clients/test_model_polling_torture.py",
        line: "",
        reason: "random pauses between updates; updates that the machine has stretched are not judged",
    },
    TimingException {
        path: "tests/clients/test_python_operations.py",
        line: "time.sleep(0.001)",
        reason: "a model in Python that asks again until a file is there",
    },
    TimingException {
        path: "tests/clients/test_python_supervision.py",
        line: "time.sleep(1000)",
        reason: "a model in Python that never ends; the test ends it",
    },
    TimingException {
        path: "tests/clients/test_shutdown.py",
        line: "begun = time.monotonic()",
        reason: "the beginning of an interval with a lower bound",
    },
    TimingException {
        path: "tests/clients/test_shutdown_delay.py",
        line: "time.monotonic()",
        reason: "intervals with lower bounds: times that were configured",
    },
    TimingException {
        path: "tests/clients/test_tracing.py",
        line: "time.time_ns()",
        reason: "spans lie between two looks at the clock: an order of events",
    },
];
