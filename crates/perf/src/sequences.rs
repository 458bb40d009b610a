//! The sequences of a run: their ids, lengths and steps. Pure: it neither sends nor waits.
//!
//! Each caller has at most one sequence at a time. Ids are unique among the sequences that are open.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::options::SequenceOptions;

/// The length of a sequence if nothing else gives it. As perf_analyzer.
const DEFAULT_LENGTH: u32 = 20;

/// Gives sequences to callers.
pub(crate) struct SequenceSource {
    options: SequenceOptions,
    /// For each stream of the input data, the indexes of its requests.
    streams: Vec<Vec<usize>>,
    /// Whether the streams come from files and so determine the lengths.
    from_files: bool,
    next_stream: usize,
    next_id: u64,
    open: BTreeSet<u64>,
    random: StdRng,
}

/// A sequence that a caller has begun.
#[derive(Debug)]
pub(crate) struct OpenSequence {
    pub(crate) id: u64,
    stream: usize,
    length: u32,
    sent: u32,
}

/// The place of a request in its sequence.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(crate) struct PlannedPosition {
    pub(crate) id: u64,
    pub(crate) start: bool,
    pub(crate) end: bool,
}

impl PlannedPosition {
    /// That of a request that begins and ends its sequence.
    pub(crate) const ONLY: Self = Self { id: 1, start: true, end: true };
}

impl SequenceSource {
    /// `streams` are the indexes of the requests of each stream; none is empty.
    ///
    /// # Errors
    /// The range of ids is smaller than the number of sequences that are open at the same time.
    pub(crate) fn new(
        options: &SequenceOptions,
        streams: Vec<Vec<usize>>,
        from_files: bool,
        seed: u64,
        most_open: usize,
    ) -> Result<SequenceSource> {
        if let Some(end) = options.end_id {
            let ids = end - options.first_id;
            ensure!(
                ids >= most_open as u64,
                "--sequence-id-range has {ids} ids, but {most_open} sequences are open at the same time"
            );
        }
        Ok(SequenceSource {
            next_id: options.first_id,
            options: options.clone(),
            streams,
            from_files,
            next_stream: 0,
            open: BTreeSet::new(),
            random: StdRng::seed_from_u64(seed),
        })
    }

    /// Begins a sequence: the streams take turns.
    pub(crate) fn begin(&mut self) -> OpenSequence {
        let stream = self.next_stream;
        self.next_stream = (stream + 1) % self.streams.len();
        let length = match self.options.length {
            None if self.from_files => self.streams[stream].len() as u32,
            given => self.varied(given.unwrap_or(DEFAULT_LENGTH)),
        };
        OpenSequence { id: self.take_id(), stream, length, sent: 0 }
    }

    /// The next request of a sequence, and its place. `None` after the last one.
    pub(crate) fn next(&mut self, sequence: &mut OpenSequence) -> Option<(usize, PlannedPosition)> {
        if sequence.sent == sequence.length {
            return None;
        }
        let steps = &self.streams[sequence.stream];
        let index = steps[sequence.sent as usize % steps.len()];
        sequence.sent += 1;
        let position = PlannedPosition {
            id: sequence.id,
            start: sequence.sent == 1,
            end: sequence.sent == sequence.length,
        };
        Some((index, position))
    }

    /// The request that ends a sequence early. `None` if nothing of it was sent, or its end.
    pub(crate) fn cut(&mut self, sequence: &mut OpenSequence) -> Option<(usize, PlannedPosition)> {
        if sequence.sent == 0 || sequence.sent == sequence.length {
            return None;
        }
        sequence.length = sequence.sent + 1;
        self.next(sequence)
    }

    /// The id can be used again.
    pub(crate) fn close(&mut self, sequence: &OpenSequence) {
        self.open.remove(&sequence.id);
    }

    fn varied(&mut self, length: u32) -> u32 {
        let share = self.options.variation / 100.0;
        let offset = self.random.random_range(-share..=share) * f64::from(length);
        // Towards zero, as perf_analyzer.
        (f64::from(length) + offset.trunc()).max(1.0) as u32
    }

    fn take_id(&mut self) -> u64 {
        // The range is not smaller than the number of open sequences, so a free id exists.
        loop {
            let id = self.next_id;
            self.next_id = match self.options.end_id {
                Some(end) if id + 1 >= end => self.options.first_id,
                _ => id.checked_add(1).unwrap_or(self.options.first_id),
            };
            if self.open.insert(id) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(length: Option<u32>, variation: f64, end_id: Option<u64>) -> SequenceOptions {
        SequenceOptions {
            of_one_request: false,
            length,
            variation,
            first_id: 5,
            end_id,
            count: 4,
            header: None,
        }
    }

    fn sequences(options: &SequenceOptions, streams: &[&[usize]], from_files: bool) -> SequenceSource {
        let streams = streams.iter().map(|stream| stream.to_vec()).collect();
        SequenceSource::new(options, streams, from_files, 1, 2).unwrap()
    }

    /// All requests of the next sequence.
    fn whole(sequences: &mut SequenceSource) -> Vec<(usize, PlannedPosition)> {
        let mut sequence = sequences.begin();
        let requests = std::iter::from_fn(|| sequences.next(&mut sequence)).collect();
        sequences.close(&sequence);
        requests
    }

    #[test]
    fn files_give_each_sequence_a_stream_of_its_own() {
        let mut sequences = sequences(&options(None, 20.0, None), &[&[0, 1, 2], &[3]], true);
        let indexes = |requests: Vec<(usize, PlannedPosition)>| {
            requests.into_iter().map(|(index, _)| index).collect::<Vec<_>>()
        };
        assert_eq!(indexes(whole(&mut sequences)), [0, 1, 2]);
        assert_eq!(whole(&mut sequences), [(3, PlannedPosition { id: 6, start: true, end: true })]);
        assert_eq!(indexes(whole(&mut sequences)), [0, 1, 2]);
    }

    #[test]
    fn a_sequence_starts_once_and_ends_once() {
        let mut sequences = sequences(&options(Some(4), 0.0, None), &[&[0, 1]], true);
        let requests = whole(&mut sequences);
        let flags: Vec<_> = requests.iter().map(|(index, at)| (*index, at.id, at.start, at.end)).collect();
        assert_eq!(
            flags,
            [(0, 5, true, false), (1, 5, false, false), (0, 5, false, false), (1, 5, false, true)]
        );
    }

    #[test]
    fn lengths_vary_by_the_percentage_around_the_length() {
        let mut sequences = sequences(&options(None, 20.0, None), &[&[0]], false);
        let lengths: Vec<usize> = (0..500).map(|_| whole(&mut sequences).len()).collect();
        assert!(lengths.iter().all(|length| (16..=24).contains(length)));
        assert!(lengths.contains(&17) && lengths.contains(&23));
        let mut short = self::sequences(&options(Some(1), 100.0, None), &[&[0]], false);
        assert!((0..50).all(|_| whole(&mut short).len() <= 2));
    }

    #[test]
    fn open_sequences_never_share_an_id_and_ids_stay_in_the_range() {
        let mut sequences = sequences(&options(Some(2), 0.0, Some(7)), &[&[0]], false);
        let (first, second) = (sequences.begin(), sequences.begin());
        assert_eq!((first.id, second.id), (5, 6));
        sequences.close(&first);
        assert_eq!(sequences.begin().id, 5);
        let few = SequenceSource::new(&options(None, 0.0, Some(6)), vec![vec![0]], false, 1, 2);
        assert!(few.err().unwrap().to_string().contains("1 ids, but 2 sequences"));
    }

    #[test]
    fn a_sequence_that_is_cut_ends_with_one_more_request() {
        let mut sequences = sequences(&options(Some(9), 0.0, None), &[&[0]], false);
        let mut sequence = sequences.begin();
        assert_eq!(sequences.cut(&mut sequence), None);
        sequences.next(&mut sequence);
        assert!(sequences.cut(&mut sequence).is_some_and(|(_, at)| at.end && !at.start));
        assert_eq!(sequences.next(&mut sequence), None);
        assert_eq!(sequences.cut(&mut sequence), None);
    }
}
