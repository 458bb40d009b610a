//! Tests of the text form and the JSON form of configurations.
mod format;
mod json;
mod mutations;
mod random_formats;
mod text;
