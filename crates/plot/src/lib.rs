//! Plots as SVG: lines, dots and bars in a frame with axes, for light and dark pages.
#![forbid(unsafe_code)]

mod scale;
mod style;
mod svg;
mod text;

pub use scale::PlotScale;
pub use style::{DotStyle, PlotAxis, PlotColor};
pub use svg::SvgPlot;
pub use text::{escaped, short_number, time};
