//! The text format of `config.pbtxt`.
//!
//! Accepts what protobuf's TextFormat accepts for this schema: `#` comments, braces or angle brackets, lists for
//! repeated fields, `,` and `;` after a field, adjacent strings, C escapes and C numbers. It refuses everything else.
//! It reports all misspelt names, wrong values and repeated fields at once, up to the first place where it cannot tell
//! how the source goes on. A report contains the position, the reason and, for a misspelt name, the name that was
//! probably meant.

mod cursor;
mod encoding;
mod error;
mod fault;
mod format;
mod lexer;
mod outline;
mod parser;
mod printable;
mod scalar;
mod source;
mod write;

pub use error::{TextError, marked_line};
pub use fault::MistakeKind;
pub use outline::SourceField;
pub use printable::printable;
pub use source::{format, outline, parse, parse_what_can_be};
pub use write::{ConfigLeaf, leaves, write};
