//! Numbers as people read them.
use std::time::Duration;

/// `83 %`; below one percent `0.4 %`. Nothing of nothing is `0 %`.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let share = share(part, whole) * 100.0;
    if share > 0.0 && share < 1.0 { format!("{share:.1} %") } else { format!("{share:.0} %") }
}

/// From 0 to 1; 0 of nothing.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// `850 µs`, `5.2 ms` or `1.3 s`: two or three digits that matter.
pub(super) fn duration(duration: Duration) -> String {
    seconds(duration.as_secs_f64())
}

/// The same of a number of seconds.
pub(super) fn seconds(seconds: f64) -> String {
    let (value, unit) = match seconds {
        at_least_1 if at_least_1 >= 0.9995 => (at_least_1, "s"),
        milliseconds if milliseconds >= 0.000_999_5 => (milliseconds * 1e3, "ms"),
        microseconds => (microseconds * 1e6, "µs"),
    };
    if value >= 9.95 || value == 0.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

/// `no requests`, `1 request` or `7 requests`, with the verb that follows.
pub(super) fn counted(count: u64, noun: &str, (one, many): (&str, &str)) -> String {
    match count {
        0 => format!("no {noun} {one}"),
        1 => format!("1 {noun} {one}"),
        _ => format!("{count} {noun}s {many}"),
    }
}

/// The first line of an error, without the full stop at its end. Of an exception in Python also the place that it names, which
/// is the first one outside of Python's own modules.
pub(super) fn summary(error: &str) -> String {
    let error = error.trim();
    let line = error.lines().next().unwrap_or_default();
    let line = line.trim_end_matches(['.', ':', ' ']);
    let frames = error.split_once("\n\nAt:\n").map(|(_, frames)| frames).unwrap_or_default();
    match frames.lines().map(str::trim).find(|frame| !frame.is_empty() && !frame.starts_with('<')) {
        Some(frame) => format!("{line}, at {frame}"),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_in_one_line_with_the_place_of_an_exception() {
        for (error, line) in [
            ("bad\n", "bad"),
            ("it failed.", "it failed"),
            ("1:1: 'bakend' is no field\n  bakend: 'x'\n  ^", "1:1: 'bakend' is no field"),
            (
                "Internal: ModuleNotFoundError: No module named 'x'\n\nAt:\n  /m/1/model.py(2): <module>\n  <frozen \
                 importlib._bootstrap>(488): _call\n",
                "Internal: ModuleNotFoundError: No module named 'x', at /m/1/model.py(2): <module>",
            ),
            ("RuntimeError: no\n\nAt:\n  <frozen importlib._bootstrap>(488): _call\n", "RuntimeError: no"),
        ] {
            assert_eq!(summary(error), line);
        }
    }

    #[test]
    fn small_shares_are_not_nothing() {
        for (part, whole, text) in [(0, 0, "0 %"), (5, 6, "83 %"), (1, 250, "0.4 %"), (7, 7, "100 %")] {
            assert_eq!(percent(part, whole), text);
        }
    }

    #[test]
    fn durations_have_the_unit_that_fits() {
        for (nanos, text) in [
            (0, "0 µs"),
            (1_500, "1.5 µs"),
            (850_000, "850 µs"),
            (999_600, "1.0 ms"),
            (5_240_000, "5.2 ms"),
            (12_300_000, "12 ms"),
            (999_900_000, "1.0 s"),
            (90_000_000_000, "90 s"),
        ] {
            assert_eq!(duration(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn nouns_and_verbs_follow_the_number() {
        let waits = |count| counted(count, "request", ("waits", "wait"));
        assert_eq!(
            [waits(0), waits(1), waits(2)],
            ["no request waits", "1 request waits", "2 requests wait"]
        );
    }
}
