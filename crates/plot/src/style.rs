//! How axes, lines and dots look.

use crate::PlotScale;

/// An axis.
#[derive(Clone, Copy)]
pub struct PlotAxis<'a> {
    /// What it shows, with the unit if the labels have none.
    pub name: &'a str,
    /// Where its values are.
    pub scale: PlotScale,
    /// The text of a value: [`crate::short_number`] or [`crate::time`].
    pub label: fn(f64) -> String,
}

/// The colour of what is drawn. Dark pages have a lighter one of each.
#[derive(Clone, Copy)]
pub enum PlotColor {
    /// Blue.
    Blue,
    /// Green.
    Green,
    /// Orange.
    Orange,
    /// Red.
    Red,
}

/// How a dot looks.
#[derive(Clone, Copy)]
pub struct DotStyle {
    /// The colour of its rim, and of its inside unless it is hollow.
    pub color: PlotColor,
    /// From the centre to the middle of the rim, in pixels.
    pub radius: f64,
    /// Whether the inside has the colour of the page.
    pub is_hollow: bool,
}
