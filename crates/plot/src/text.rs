//! The texts of a plot.

/// A text in XML or HTML.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number with three significant digits, and no zeros at the end.
#[must_use]
pub fn short_number(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return "0".to_owned();
    }
    let decimals = (2 - number.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A time of microseconds in a unit that people read.
#[must_use]
pub fn time(micros: f64) -> String {
    match micros {
        0.0 => "0".to_owned(),
        ..1e3 => format!("{} us", short_number(micros)),
        ..1e6 => format!("{} ms", short_number(micros / 1e3)),
        _ => format!("{} s", short_number(micros / 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let written = [0.0, 0.05, 2.5, 3.0, 12.345, 250.0, 12_000.0].map(short_number);
        assert_eq!(written, ["0", "0.05", "2.5", "3", "12.3", "250", "12000"]);
    }

    #[test]
    fn times_have_a_unit() {
        let written = [0.0, 12.345, 999.0, 1500.0, 2e6].map(time);
        assert_eq!(written, ["0", "12.3 us", "999 us", "1.5 ms", "2 s"]);
    }
}
