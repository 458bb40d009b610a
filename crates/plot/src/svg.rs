//! A plot that is being drawn.

use std::fmt::{Arguments, Write};

use crate::{DotStyle, PlotAxis, PlotColor, PlotScale, escaped};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
// The frame.
const LEFT: f64 = 80.0;
const RIGHT: f64 = 830.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 410.0;
/// The base line of the legend and the note.
const LEGEND: f64 = 466.0;

const STYLE: &str = "\
svg{color-scheme:light dark;--paper:#fff;--ink:#1f2328;--faint:#d0d7de;--blue:#0969da;--green:#1a7f37;--orange:#c46b00;--red:#cf222e}
@media (prefers-color-scheme:dark){svg{--paper:#0d1117;--ink:#e6edf3;--faint:#30363d;--blue:#58a6ff;--green:#3fb950;\
--orange:#e09b2a;--red:#f85149}}
text{fill:var(--ink);font:13px system-ui,sans-serif}.title{font-size:16px;font-weight:600}.small{font-size:11px}
.paper{fill:var(--paper)}.grid{stroke:var(--faint)}.axis{fill:none;stroke:var(--ink)}
.blue{--color:var(--blue)}.green{--color:var(--green)}.orange{--color:var(--orange)}.red{--color:var(--red)}
.line,.limit{fill:none;stroke:var(--color);stroke-width:2}.limit{stroke-dasharray:4 3;stroke-width:1.5}
.dot,.bar{fill:var(--color)}.dot{stroke:var(--color);stroke-width:2}.hollow{fill:var(--paper)}";

/// A plot: one element of SVG that needs nothing outside of it. It can be a file, or a part of a page.
///
/// Places are values of the axis below the frame and of the one beside it. What is drawn first is at the back. A text appears
/// when the pointer is on what it describes; the legend below the frame shows the texts of lines and limits, too.
pub struct SvgPlot {
    scales: [PlotScale; 2],
    svg: String,
    /// Where the next entry of the legend begins.
    legend: f64,
}

impl SvgPlot {
    /// A plot with nothing in its frame. Title and details stand above it.
    #[must_use]
    pub fn new(title: &str, details: &str, axes: [PlotAxis<'_>; 2]) -> SvgPlot {
        let scales = axes.map(|axis| axis.scale);
        let mut plot = SvgPlot { scales, svg: String::new(), legend: LEFT + 20.0 };
        plot.draw(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">"#
        ));
        plot.draw(format_args!("<title>{}</title><style>{STYLE}</style>", escaped(title)));
        plot.draw(format_args!(r#"<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>"#));
        plot.text((LEFT, 30.0), "title", "start", title);
        plot.text((LEFT, 50.0), "small", "start", details);
        plot.axes(axes);
        plot
    }

    /// Draws a dot.
    pub fn dot(&mut self, at: (f64, f64), style: DotStyle, text: &str) {
        let DotStyle { color, radius, is_hollow } = style;
        let ((x, y), color) = (self.place(at), class(color));
        let hollow = if is_hollow { " hollow" } else { "" };
        let circle = format_args!(r#"class="dot {color}{hollow}" cx="{x:.1}" cy="{y:.1}" r="{radius}""#);
        self.shape("circle", circle, text);
    }

    /// Draws a line through places.
    pub fn line(&mut self, through: &[(f64, f64)], color: PlotColor, text: &str) {
        let places = through.iter().map(|at| self.place(*at));
        let points: Vec<String> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let (color, points) = (class(color), points.join(" "));
        self.shape("polyline", format_args!(r#"class="line {color}" points="{points}""#), text);
        self.legend("line", color, text);
    }

    /// Draws a dashed line at a value of the axis below the frame, from end to end.
    pub fn limit_across(&mut self, at: f64, color: PlotColor, text: &str) {
        let (x, _) = self.place((at, 0.0));
        self.limit(format_args!("M{x:.1} {TOP}V{BOTTOM}"), color, text);
    }

    /// Draws a dashed line at a value of the axis beside the frame, from end to end.
    pub fn limit_up(&mut self, at: f64, color: PlotColor, text: &str) {
        let (_, y) = self.place((0.0, at));
        self.limit(format_args!("M{LEFT} {y:.1}H{RIGHT}"), color, text);
    }

    /// Draws a bar between two values of the axis below the frame.
    pub fn bar(&mut self, (from, to): (f64, f64), height: f64, color: PlotColor, text: &str) {
        let ((left, top), (right, _)) = (self.place((from, height)), self.place((to, height)));
        let (color, x, width, height) = (class(color), left + 0.5, right - left - 1.0, BOTTOM - top);
        let rect = format_args!(
            r#"class="bar {color}" x="{x:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}""#
        );
        self.shape("rect", rect, text);
    }

    /// Writes a text above a place.
    pub fn label(&mut self, at: (f64, f64), text: &str) {
        let (x, y) = self.place(at);
        self.text((x, y - 9.0), "small", "middle", text);
    }

    /// Writes a text beside the legend.
    pub fn note(&mut self, text: &str) {
        self.text((RIGHT, LEGEND), "small", "end", text);
    }

    /// The picture.
    #[must_use]
    pub fn finish(self) -> String {
        self.svg + "</svg>\n"
    }

    fn axes(&mut self, [across, up]: [PlotAxis<'_>; 2]) {
        for tick in up.scale.ticks() {
            let (_, y) = self.place((0.0, tick));
            self.draw(format_args!(r#"<path class="grid" d="M{LEFT} {y:.1}H{RIGHT}"/>"#));
            self.text((LEFT - 8.0, y + 4.0), "small", "end", &(up.label)(tick));
        }
        for tick in across.scale.ticks() {
            let (x, _) = self.place((tick, 0.0));
            self.draw(format_args!(r#"<path class="grid" d="M{x:.1} {TOP}V{BOTTOM}"/>"#));
            self.text((x, BOTTOM + 16.0), "small", "middle", &(across.label)(tick));
        }
        self.draw(format_args!(r#"<path class="axis" d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"/>"#));
        self.text((f64::midpoint(LEFT, RIGHT), BOTTOM + 36.0), "", "middle", across.name);
        let (middle, name) = (f64::midpoint(TOP, BOTTOM), escaped(up.name));
        self.draw(format_args!(
            r#"<text x="20" y="{middle}" text-anchor="middle" transform="rotate(-90 20 {middle})">{name}</text>"#
        ));
    }

    /// Where the values of both axes meet, in pixels.
    fn place(&self, at: (f64, f64)) -> (f64, f64) {
        let [across, up] = &self.scales;
        (LEFT + across.share(at.0) * (RIGHT - LEFT), BOTTOM - up.share(at.1) * (BOTTOM - TOP))
    }

    fn limit(&mut self, path: Arguments<'_>, color: PlotColor, text: &str) {
        let color = class(color);
        self.shape("path", format_args!(r#"class="limit {color}" d="{path}""#), text);
        self.legend("limit", color, text);
    }

    fn legend(&mut self, style: &str, color: &str, text: &str) {
        let (left, middle) = (self.legend, LEGEND - 4.0);
        self.draw(format_args!(r#"<path class="{style} {color}" d="M{left} {middle}h22"/>"#));
        self.text((left + 28.0, LEGEND), "small", "start", text);
        // A letter is about 6.5 pixels wide.
        self.legend += 50.0 + 6.5 * text.chars().count() as f64;
    }

    fn shape(&mut self, name: &str, attributes: Arguments<'_>, text: &str) {
        self.draw(format_args!("<{name} {attributes}><title>{}</title></{name}>", escaped(text)));
    }

    fn text(&mut self, (x, y): (f64, f64), class: &str, anchor: &str, text: &str) {
        self.draw(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
            escaped(text)
        ));
    }

    fn draw(&mut self, element: Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.svg, "{element}");
    }
}

fn class(color: PlotColor) -> &'static str {
    match color {
        PlotColor::Blue => "blue",
        PlotColor::Green => "green",
        PlotColor::Orange => "orange",
        PlotColor::Red => "red",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::short_number;

    /// Requires that every element is closed in order, and that texts have no bare signs of XML.
    fn check_xml(text: &str) {
        let mut open = Vec::new();
        for part in text.split('<').skip(1) {
            let (tag, after) = part.split_once('>').expect("a tag ends");
            assert!(!after.contains('>'), "a bare '>' in {after}");
            let entities = ["&amp;", "&lt;", "&gt;", "&quot;"];
            let bare = entities.iter().fold(after.to_owned(), |text, entity| text.replace(entity, ""));
            assert!(!bare.contains('&'), "a bare '&' in {after}");
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

    fn plot(scale: PlotScale) -> SvgPlot {
        let axis = |name| PlotAxis { name, scale, label: short_number };
        SvgPlot::new("a < b & \"c\"", "<details>", [axis("x"), axis("y > 0")])
    }

    #[test]
    fn every_plot_is_well_formed() {
        let (color, text) = (PlotColor::Green, "<mark>");
        let style = DotStyle { color, radius: 3.5, is_hollow: false };
        for scale in [PlotScale::linear([3.0]), PlotScale::logarithmic([1.0, 3.0])] {
            check_xml(&plot(scale).finish());
            let mut drawn = plot(scale);
            drawn.bar((1.0, 2.0), 2.0, color, text);
            drawn.line(&[(1.0, 2.0), (3.0, 3.0)], color, text);
            drawn.limit_across(2.0, color, text);
            drawn.limit_up(2.0, color, text);
            drawn.label((2.0, 3.0), text);
            drawn.note("<note>");
            for at in [(2.0, 3.0), (0.0, -1.0), (1e-9, 1e9), (f64::NAN, f64::INFINITY)] {
                drawn.dot(at, style, text);
            }
            let svg = drawn.finish();
            check_xml(&svg);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            let count = |part: &str| svg.matches(part).count();
            let classes = ["bar", "line", "limit", "dot"].map(|name| count(&format!("\"{name} green\"")));
            assert_eq!(classes, [1, 2, 4, 4], "{svg}");
            assert_eq!(count("&lt;mark&gt;</text>"), 4, "the label, and the legend's three: {svg}");
        }
    }
}
