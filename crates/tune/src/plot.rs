//! Plots as SVG: points and lines in a frame with axes.

use std::fmt::Write;

/// A plot.
pub struct SvgPlot {
    /// Above the frame.
    pub title: String,
    /// Below the frame, and beside it.
    pub axes: [PlotAxis; 2],
    /// What is drawn, the first at the back.
    pub marks: Vec<PlotMark>,
}

/// An axis.
pub struct PlotAxis {
    /// What it shows, with the unit.
    pub name: String,
    /// Whether equal distances are equal factors.
    pub is_logarithmic: bool,
}

/// Something in the frame.
pub enum PlotMark {
    /// A dot with a text that appears when the pointer is on it.
    Dot {
        /// Its place.
        at: (f64, f64),
        /// Its colour and size.
        style: DotStyle,
        /// The text.
        text: String,
    },
    /// A line through points.
    Line {
        /// The points.
        through: Vec<(f64, f64)>,
        /// What it is.
        text: String,
    },
    /// A line at a limit, from end to end.
    Limit {
        /// Which axis has the limit: 0 or 1.
        axis: usize,
        /// Where.
        at: f64,
        /// What it is.
        text: String,
    },
}

/// How a dot looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DotStyle {
    /// One of many.
    Plain,
    /// What the model has now.
    Present,
    /// What was chosen.
    Chosen,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 52.0;

/// A text in XML.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The range of an axis, with a margin.
struct PlotRange {
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl PlotRange {
    fn of(values: impl Iterator<Item = f64>, is_logarithmic: bool) -> PlotRange {
        let values: Vec<f64> =
            values.filter(|value| value.is_finite() && (*value > 0.0 || !is_logarithmic)).collect();
        let scale = |value: f64| if is_logarithmic { value.ln() } else { value };
        let mut low = values.iter().copied().map(scale).fold(f64::INFINITY, f64::min);
        let mut high = values.iter().copied().map(scale).fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if !is_logarithmic {
            low = low.min(0.0);
        }
        let margin = ((high - low) * 0.06).max(if is_logarithmic { 0.05 } else { 1e-9 });
        PlotRange {
            low: if is_logarithmic { low - margin } else { low },
            high: high + margin,
            is_logarithmic,
        }
    }

    /// Where a value is, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let value = if self.is_logarithmic { value.max(f64::MIN_POSITIVE).ln() } else { value };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Round numbers within the range.
    fn ticks(&self) -> Vec<f64> {
        if self.is_logarithmic {
            let (low, high) = (self.low.exp(), self.high.exp());
            let first = low.log10().floor() as i32;
            let last = high.log10().ceil() as i32;
            let all =
                (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
            return all.filter(|tick| (low..=high).contains(tick)).collect();
        }
        let rough = (self.high - self.low) / 6.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(power * 10.0);
        let first = (self.low / step).ceil() as i64;
        (first..).map(|count| count as f64 * step).take_while(|tick| *tick <= self.high).take(20).collect()
    }
}

impl SvgPlot {
    /// The picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let range = |axis: usize| {
            let values = self.marks.iter().flat_map(|mark| mark.values(axis));
            PlotRange::of(values, self.axes[axis].is_logarithmic)
        };
        let (across, up) = (range(0), range(1));
        let x = |value: f64| LEFT + across.share(value) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - up.share(value) * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>\n",
            escaped(&self.title)
        );
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in across.ticks() {
            let (x, label) = (x(tick), number(tick));
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#e4e4e4\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{label}</text>",
                bottom + 16.0
            );
        }
        for tick in up.ticks() {
            let (y, label) = (y(tick), number(tick));
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#e4e4e4\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{label}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#555555\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 12.0,
            escaped(&self.axes[0].name),
            f64::midpoint(TOP, bottom),
            escaped(&self.axes[1].name)
        );
        for mark in &self.marks {
            mark.draw(&mut svg, &x, &y);
        }
        svg + "</svg>\n"
    }
}

impl PlotMark {
    fn values(&self, axis: usize) -> Vec<f64> {
        let of = |at: &(f64, f64)| if axis == 0 { at.0 } else { at.1 };
        match self {
            PlotMark::Dot { at, .. } => vec![of(at)],
            PlotMark::Line { through, .. } => through.iter().map(of).collect(),
            PlotMark::Limit { axis: own, at, .. } if *own == axis => vec![*at],
            PlotMark::Limit { .. } => Vec::new(),
        }
    }

    fn draw(&self, svg: &mut String, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let (text, shape) = match self {
            PlotMark::Dot { at, style, text } => {
                let (fill, radius) = match style {
                    DotStyle::Plain => ("#7aa6d6", 3.5),
                    DotStyle::Present => ("#e08a1e", 6.0),
                    DotStyle::Chosen => ("#1a9641", 7.5),
                };
                let (x, y) = (x(at.0), y(at.1));
                (text, format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\""))
            }
            PlotMark::Line { through, text } => {
                let points: Vec<_> =
                    through.iter().map(|at| format!("{:.1},{:.1}", x(at.0), y(at.1))).collect();
                let points = points.join(" ");
                (
                    text,
                    format!(
                        "<polyline points=\"{points}\" fill=\"none\" stroke=\"#1a9641\" stroke-width=\"1.5\""
                    ),
                )
            }
            PlotMark::Limit { axis, at, text } => {
                let path = match axis {
                    0 => format!("M{:.1} {TOP}V{bottom}", x(*at)),
                    _ => format!("M{LEFT} {:.1}H{right}", y(*at)),
                };
                (text, format!("<path d=\"{path}\" stroke=\"#c0392b\" stroke-dasharray=\"5 4\""))
            }
        };
        let name = shape.split([' ', '<']).nth(1).unwrap_or_default().to_owned();
        let _ = writeln!(svg, "{shape}><title>{}</title></{name}>", escaped(text));
    }
}

/// A short text of a number.
#[must_use]
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1e4.. => format!("{:.0}k", value / 1e3),
        10.0.. => format!("{value:.0}"),
        1.0.. => format!("{value:.1}").trim_end_matches(".0").to_owned(),
        _ => format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Requires that every element is closed in order, and that texts have no bare signs of XML.
    pub(crate) fn check_xml(text: &str) {
        let mut open = Vec::new();
        for part in text.split('<').skip(1) {
            let (tag, after) = part.split_once('>').expect("a tag ends");
            assert!(!after.contains('>'), "a bare '>' in {after}");
            assert!(
                !after
                    .replace("&amp;", "")
                    .replace("&lt;", "")
                    .replace("&gt;", "")
                    .replace("&quot;", "")
                    .contains('&')
            );
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
            match (tag.starts_with('/'), tag.ends_with('/')) {
                (true, _) => assert_eq!(open.pop(), Some(name), "</{name}>"),
                (false, true) => {}
                (false, false) => open.push(name),
            }
        }
        assert!(open.is_empty(), "{open:?} stay open");
    }

    fn plot(marks: Vec<PlotMark>, is_logarithmic: bool) -> String {
        let axis = |name: &str| PlotAxis { name: name.to_owned(), is_logarithmic };
        SvgPlot { title: "a < b & \"c\"".into(), axes: [axis("x"), axis("y > 0")], marks }.svg()
    }

    #[test]
    fn every_plot_is_well_formed() {
        let dot =
            |x: f64, y: f64| PlotMark::Dot { at: (x, y), style: DotStyle::Chosen, text: "<dot>".into() };
        for is_logarithmic in [false, true] {
            check_xml(&plot(Vec::new(), is_logarithmic));
            check_xml(&plot(vec![dot(0.0, 0.0)], is_logarithmic));
            check_xml(&plot(vec![dot(1e-9, 1e9), dot(f64::NAN, 3.0)], is_logarithmic));
            let line = PlotMark::Line { through: vec![(1.0, 2.0), (3.0, 4.0)], text: "fit".into() };
            let limit = PlotMark::Limit { axis: 0, at: 2.0, text: "limit".into() };
            let text = plot(vec![line, limit, dot(2.0, 3.0)], is_logarithmic);
            check_xml(&text);
            assert!(
                text.contains("<polyline") && text.contains("stroke-dasharray") && text.contains("<circle")
            );
        }
    }

    #[test]
    fn ticks_are_round_and_within_the_range() {
        let ticks = |low: f64, high: f64, is_logarithmic| {
            PlotRange::of([low, high].into_iter(), is_logarithmic).ticks()
        };
        assert_eq!(ticks(0.0, 10.0, false), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(1.0, 100.0, true), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 0.05, 2.5, 3.0, 250.0, 12_000.0].map(number),
            ["0", "0.05", "2.5", "3", "250", "12k"]
        );
    }
}
