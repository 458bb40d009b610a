//! The formatter on random texts: each token and each comment is there as often as before.
use std::collections::BTreeMap;

use proto::text::{format, parse};

const TEXTS: u64 = 1_500;

/// A small reproducible generator of numbers (Knuth's constants).
struct TextRandom(u64);

impl TextRandom {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

/// A configuration under construction, token for token.
struct RandomText {
    random: TextRandom,
    tokens: Vec<String>,
}

impl RandomText {
    fn add(&mut self, tokens: &[&str]) {
        self.tokens.extend(tokens.iter().map(|token| (*token).to_owned()));
    }

    /// Nothing, or what may stand behind a field.
    fn separator(&mut self) {
        match self.random.roll(4) {
            0 => self.add(&[","]),
            1 => self.add(&[";"]),
            _ => {}
        }
    }

    /// A message with up to two of these fields, each at most once.
    fn message(&mut self, fields: &[fn(&mut Self)]) {
        let (open, close) = if self.random.roll(3) == 0 { ("<", ">") } else { ("{", "}") };
        self.add(&[open]);
        for field in fields {
            if self.random.roll(2) == 0 {
                field(self);
                self.separator();
            }
        }
        self.add(&[close]);
    }

    fn list(&mut self, element: fn(&mut Self)) {
        self.add(&["["]);
        for position in 0..self.random.roll(4) {
            if position > 0 {
                self.add(&[","]);
            }
            element(self);
        }
        self.add(&["]"]);
    }

    fn string(&mut self) {
        for _ in 0..=self.random.roll(2) {
            let text = self.random.pick(&["\"a\"", "'b c'", "'it\"s'", "\"#no\"", "'{;,'", "'\\''", "''"]);
            self.add(&[text]);
        }
    }

    fn dim(&mut self) {
        match self.random.roll(3) {
            0 => self.add(&["-", "1"]),
            1 => self.add(&["0x10"]),
            _ => self.add(&["3"]),
        }
    }

    fn dims(&mut self) {
        self.add(&["dims", ":"]);
        if self.random.roll(3) == 0 { self.dim() } else { self.list(Self::dim) }
    }

    fn name(&mut self) {
        self.add(&["name", ":"]);
        self.string();
    }

    fn data_type(&mut self) {
        let datatype = self.random.pick(&["TYPE_FP32", "TYPE_INT8"]);
        self.add(&["data_type", ":", datatype]);
    }

    fn shape(&mut self) {
        self.add(&["shape", ":"]);
        self.list(Self::dim);
    }

    fn reshape(&mut self) {
        self.add(&["reshape"]);
        self.message(&[Self::shape]);
    }

    fn tensor(&mut self) {
        self.message(&[Self::name, Self::data_type, Self::dims, Self::reshape]);
    }

    fn delay(&mut self) {
        self.add(&["max_queue_delay_microseconds", ":", "5"]);
    }

    fn sizes(&mut self) {
        self.add(&["preferred_batch_size", ":"]);
        self.list(|text| text.add(&["4"]));
    }

    fn field(&mut self) {
        match self.random.roll(3) {
            0 => {
                self.add(&["input"]);
                self.tensor();
            }
            1 => {
                self.add(&["output", ":"]);
                self.list(Self::tensor);
            }
            _ => {
                self.add(&["instance_group"]);
                self.message(&[Self::name, |text| text.add(&["count", ":", "2"])]);
            }
        }
    }

    fn config(&mut self) {
        self.add(&["max_batch_size", ":", "8"]);
        self.separator();
        for _ in 0..self.random.roll(4) {
            self.field();
            self.separator();
        }
        if self.random.roll(2) == 0 {
            self.add(&["dynamic_batching"]);
            self.message(&[Self::delay, Self::sizes]);
            self.separator();
        }
    }

    /// The tokens with random blanks, line ends and comments between them.
    fn source(mut self) -> String {
        let mut source = String::new();
        for (number, token) in self.tokens.iter().enumerate() {
            for step in 0..=self.random.roll(3) {
                match self.random.roll(6) {
                    0 => source.push('\n'),
                    1 => source.push_str("\r\n \n\n"),
                    2 => source.push_str(&format!("#c{number}.{step} {{ 'x', \t\n")),
                    3 => source.push('\t'),
                    _ => source.push(' '),
                }
            }
            source.push_str(token);
        }
        if self.random.roll(2) == 0 { source + " # the last one" } else { source + "\n" }
    }
}

fn random_source(seed: u64) -> String {
    let mut text = RandomText { random: TextRandom(seed), tokens: Vec::new() };
    text.config();
    text.source()
}

/// How often each comment and each token is in a source, by a reader of its own. What the formatter makes uniform is the
/// same here: brackets of messages and quotation marks. Separators and colons do not count.
fn pieces(source: &str) -> BTreeMap<String, usize> {
    let mut pieces = BTreeMap::new();
    let mut letters = source.chars().peekable();
    while let Some(letter) = letters.next() {
        let mut piece = String::from(letter);
        match letter {
            '#' => {
                while let Some(more) = letters.next_if(|letter| *letter != '\n') {
                    piece.push(more);
                }
                piece.truncate(piece.trim_end().len());
            }
            '"' | '\'' => {
                piece = String::from("\"");
                while let Some(more) = letters.next_if(|more| *more != letter) {
                    piece.push(more);
                    if more == '\\' {
                        piece.extend(letters.next());
                    }
                }
                letters.next();
            }
            '<' => piece = String::from("{"),
            '>' => piece = String::from("}"),
            ' ' | '\t' | '\r' | '\n' | ',' | ';' | ':' => continue,
            letter if letter.is_ascii_alphanumeric() => {
                while let Some(more) =
                    letters.next_if(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
                {
                    piece.push(more);
                }
            }
            _ => {}
        }
        *pieces.entry(piece).or_default() += 1;
    }
    pieces
}

#[test]
fn random_texts_keep_each_token_and_each_comment() {
    let (mut comments, mut separated) = (0, 0);
    for seed in 0..TEXTS {
        let source = random_source(seed);
        let formatted = format(source.as_bytes()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(pieces(&formatted), pieces(&source), "seed {seed}\n{source}\n-----\n{formatted}");
        let read = |text: &str| parse(text.as_bytes()).unwrap().config;
        assert_eq!(read(&formatted), read(&source), "seed {seed}");
        assert_eq!(format(formatted.as_bytes()).unwrap(), formatted, "seed {seed}\n{source}");
        comments += source.matches("#c").count();
        separated += source.matches([',', ';']).count();
    }
    assert!(comments > 10_000 && separated > 5_000, "{comments} comments, {separated} separators");
}

#[test]
fn a_comment_after_a_separator_stays_beside_one_before_it() {
    let source = "max_batch_size: 8 # for the T4\n; # TODO raise\nname: 'm'\n# why\n; # end\n\
                  input { dims: [ 1 # one\n, # comma\n 2 ] }";
    let wanted = "max_batch_size: 8  # for the T4\n# TODO raise\nname: \"m\"\n# why\n# end\ninput {\n  dims: [\n    \
                  1,  # one\n    # comma\n    2\n  ]\n}\n";
    assert_eq!(format(source.as_bytes()).unwrap(), wanted);
}
