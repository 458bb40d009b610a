//! What the reading of a long text owes to others: between two pieces of the text it lets them work, and it reserves the
//! memory that the next piece may take.
use std::cell::{Cell, RefCell};

use kserve::long_write::PIECE;
use vocabulary::{BudgetExceeded, ByteReservation, Error};

use super::syntax::JsonSyntaxError;

/// The most bytes of memory that are made of a byte of text: an element of eight bytes takes at least two bytes of text.
const MOST_FOR_A_BYTE: usize = 4;

/// A JSON text, and how it is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JsonText<'a> {
    bytes: &'a [u8],
    /// `None`: it is short, and is read at once.
    reading: Option<&'a LongRead<'a>>,
}

/// The reading of a long text.
pub(crate) struct LongRead<'w> {
    /// Lets others work. False if nobody wants the text to be read any more.
    goes_on: &'w dyn Fn() -> bool,
    reservation: RefCell<ByteReservation>,
    /// The bytes that the reservation had before: those of the text and of what belongs to it.
    before: usize,
    /// The bytes of the tensors that have been read.
    kept: Cell<usize>,
    /// The bytes that the visitor held at the last piece.
    held: Cell<usize>,
    refusal: Cell<Option<BudgetExceeded>>,
}

impl std::fmt::Debug for LongRead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LongRead").field("kept", &self.kept).finish_non_exhaustive()
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for JsonText<'a> {
    /// A text that is read at once.
    fn from(text: &'a T) -> Self {
        Self { bytes: text.as_ref(), reading: None }
    }
}

impl<'a> JsonText<'a> {
    /// A text that is read in pieces.
    pub(crate) fn long(bytes: &'a [u8], reading: &'a LongRead<'a>) -> Self {
        Self { bytes, reading: Some(reading) }
    }

    /// The whole text.
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// How it is read, if it is long.
    pub(super) fn reading(self) -> Option<&'a LongRead<'a>> {
        self.reading
    }

    /// The error of a text whose reading has ended with `error`.
    pub(super) fn explain(self, error: JsonSyntaxError) -> Error {
        match self.reading.and_then(|reading| reading.refusal.take()) {
            Some(refusal) => refusal.into(),
            None => error.into(),
        }
    }
}

impl<'w> LongRead<'w> {
    /// The reading of a text whose bytes are in `reservation`. It calls `goes_on` between two pieces, and stops if that
    /// returns false.
    pub(crate) fn new(reservation: ByteReservation, goes_on: &'w dyn Fn() -> bool) -> Self {
        let before = reservation.bytes();
        let (kept, held, refusal) = (Cell::new(0), Cell::new(0), Cell::new(None));
        Self { goes_on, reservation: RefCell::new(reservation), before, kept, held, refusal }
    }

    /// The bytes of the text and of what was made of it.
    pub(crate) fn into_reservation(self) -> ByteReservation {
        self.reservation.into_inner()
    }

    /// Begins a piece while a visitor holds so many bytes. False if the reading must stop.
    pub(super) fn begin_piece(&self, held: usize) -> bool {
        self.held.set(held);
        let most = self.before + self.kept.get() + held + MOST_FOR_A_BYTE * PIECE;
        match self.reservation.borrow_mut().grow_to(most) {
            Ok(()) => (self.goes_on)(),
            Err(refusal) => {
                self.refusal.set(Some(refusal));
                false
            }
        }
    }

    /// As [`LongRead::begin_piece`], within a string whose bytes so far are besides those of the visitor.
    pub(super) fn begin_piece_of_string(&self, len: usize) -> bool {
        let held = self.held.get();
        let goes_on = self.begin_piece(held + len);
        self.held.set(held);
        goes_on
    }

    /// A tensor of so many bytes has been read, and stays.
    pub(super) fn keep(&self, bytes: usize) {
        self.kept.set(self.kept.get() + bytes);
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::{ByteBudget, DataType, TensorData};

    use super::*;
    use crate::http::json::Document;

    /// The text of a request with so many numbers, each of two bytes.
    fn request(count: usize) -> String {
        let numbers = "1,".repeat(count - 1);
        format!(r#"{{"inputs":[{{"datatype":"INT64","shape":[{count}],"data":[{numbers}1]}}]}}"#)
    }

    /// Reads a text, and its tensor if it has one, of so many elements. Returns how often others worked, and the most bytes
    /// that were reserved then.
    fn read(text: &str, limit: usize, count: Option<usize>) -> (usize, usize, Result<usize, Error>) {
        let budget = ByteBudget::new(limit);
        let (rounds, most) = (Cell::new(0), Cell::new(0));
        let goes_on = || {
            rounds.set(rounds.get() + 1);
            most.set(most.get().max(budget.used()));
            true
        };
        let reading = LongRead::new(budget.reserve(text.len()).unwrap(), &goes_on);
        let document = Document::parse_tensors(JsonText::long(text.as_bytes(), &reading));
        let len = document.and_then(|mut document| {
            let Some(count) = count else { return Ok(0) };
            let elements = document.take_elements(0, DataType::Int64)?;
            Ok(elements.into_bytes(DataType::Int64, count).unwrap().len())
        });
        (rounds.get(), most.get(), len)
    }

    #[test]
    fn others_work_after_each_piece_of_a_text_whatever_it_contains() {
        let count = 10 * PIECE;
        let numbers = request(count);
        let strings = format!("[{}0]", r#""a\n","#.repeat(count / 3));
        let string = format!(r#"["{}"]"#, r"\n".repeat(count));
        let spaces = format!("{}1{}", " ".repeat(count), " ".repeat(count));
        let arrays = format!("[{}0]", "[],".repeat(count / 2));
        for text in [&numbers, &strings, &string, &spaces, &arrays] {
            let (rounds, ..) = read(text, usize::MAX, None);
            let pieces = text.len() / PIECE;
            assert!((pieces - 1..=pieces + 1).contains(&rounds), "{rounds} of {pieces}: {}", &text[..20]);
        }
    }

    #[test]
    fn memory_is_reserved_before_it_is_filled() {
        let (text, count) = (request(10 * PIECE), Some(10 * PIECE));
        let needed = text.len() + 80 * PIECE;
        let (_, most, len) = read(&text, usize::MAX, count);
        assert_eq!(len, Ok(80 * PIECE));
        assert!((needed..needed + 2 * MOST_FOR_A_BYTE * PIECE).contains(&most), "{most} of {needed}");
        let (_, most, refused) = read(&text, needed / 2, count);
        assert!(most <= needed / 2);
        assert!(refused.unwrap_err().message.contains("--max-inflight-bytes"));
    }

    #[test]
    fn a_tensor_that_has_been_read_stays_reserved() {
        let input = request(2 * PIECE);
        let input = input.strip_prefix(r#"{"inputs":["#).unwrap().strip_suffix("]}").unwrap();
        let text = format!(r#"{{"inputs":[{}]}}"#, [input; 5].join(","));
        let (_, most, _) = read(&text, usize::MAX, None);
        assert!(most >= text.len() + 4 * 16 * PIECE, "{most}");
    }

    #[test]
    fn what_is_read_later_is_reserved_like_the_rest() {
        let count = 10 * PIECE;
        let text = format!(r#"{{"data":[{}1],"datatype":"INT64"}}"#, "1,".repeat(count - 1));
        let (rounds, most, len) = read(&text, usize::MAX, Some(count));
        assert_eq!(len, Ok(8 * count));
        assert!(rounds >= 2 * (text.len() / PIECE) - 1, "{rounds}");
        assert!(most >= text.len() + 8 * (count - PIECE), "{most}");
        assert!(
            read(&text, 2 * text.len(), Some(count)).2.unwrap_err().message.contains("--max-inflight-bytes")
        );
    }

    #[test]
    fn a_request_that_nobody_wants_is_read_no_further() {
        let text = request(10 * PIECE);
        let rounds = Cell::new(0);
        let goes_on = || {
            rounds.set(rounds.get() + 1);
            rounds.get() < 3
        };
        let budget = ByteBudget::new(usize::MAX);
        let reading = LongRead::new(budget.reserve(text.len()).unwrap(), &goes_on);
        let context = crate::http::request::DecodeContext {
            model: "m",
            max_input_size: 1 << 30,
            inputs: &[],
            regions: &shared_memory::ClientRegions::forbidden(),
        };
        let text = JsonText::long(text.as_bytes(), &reading);
        assert!(crate::http::request::decode_text(text, &TensorData::default(), context).is_err());
        assert_eq!(rounds.get(), 3);
    }
}
