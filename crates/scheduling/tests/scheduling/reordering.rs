//! Tests that responses leave in the order of their tickets and as early as possible, whatever order they arrive in.
use proptest::{collection, prelude::*, sample};
use scheduling::{ReorderBuffer, Ticket};

/// The next step of a ticket's owner.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The ticket's next item. It may also be the last.
    Item {
        last: bool,
    },
    Close,
}

fn life() -> impl Strategy<Value = Vec<Step>> {
    (0..4usize, any::<bool>()).prop_map(|(items, close)| {
        let mut steps = vec![Step::Item { last: false }; items];
        match steps.last_mut() {
            Some(last) if !close => *last = Step::Item { last: true },
            _ => steps.push(Step::Close),
        }
        steps
    })
}

/// Item `number` of ticket `owner`.
type Item = (usize, usize);

/// Requests arrive one after another. Between the arrivals, any existing request takes its next step.
struct RandomHistory {
    buffer: ReorderBuffer<Item>,
    lives: Vec<Vec<Step>>,
    tickets: Vec<Ticket>,
    /// The number of steps that each request has taken.
    taken: Vec<usize>,
    released: Vec<Item>,
}

impl RandomHistory {
    fn begin(lives: Vec<Vec<Step>>) -> Self {
        Self {
            buffer: ReorderBuffer::new(),
            lives,
            tickets: Vec::new(),
            taken: Vec::new(),
            released: Vec::new(),
        }
    }

    fn unfinished(&self) -> Vec<usize> {
        (0..self.tickets.len()).filter(|&owner| self.taken[owner] < self.lives[owner].len()).collect()
    }

    fn step(&mut self, owner: usize) {
        let (number, ticket) = (self.taken[owner], self.tickets[owner]);
        self.taken[owner] += 1;
        let release = |item| self.released.push(item);
        match self.lives[owner][number] {
            Step::Item { last } => self.buffer.push(ticket, (owner, number), last, release),
            Step::Close => self.buffer.close(ticket, release),
        }
    }

    /// The items that must have left by now: all items of the tickets before the first unfinished one, and the items
    /// of that ticket so far.
    fn expected(&self) -> Vec<Item> {
        let turn = self.unfinished().first().copied().unwrap_or(self.tickets.len());
        let mut expected = Vec::new();
        for owner in 0..self.tickets.len().min(turn + 1) {
            for number in 0..self.taken[owner] {
                if matches!(self.lives[owner][number], Step::Item { .. }) {
                    expected.push((owner, number));
                }
            }
        }
        expected
    }
}

proptest! {

    #[test]
    fn items_leave_in_order_and_as_early_as_they_can(
        lives in collection::vec(life(), 0..12),
        choices in collection::vec(any::<(bool, sample::Index)>(), 100),
    ) {
        let mut story = RandomHistory::begin(lives);
        for (comes, chosen) in choices {
            let unfinished = story.unfinished();
            let more = story.tickets.len() < story.lives.len();
            if more && (comes || unfinished.is_empty()) {
                let ticket = story.buffer.ticket();
                story.tickets.push(ticket);
                story.taken.push(0);
            } else if !unfinished.is_empty() {
                story.step(*chosen.get(&unfinished));
            }
            prop_assert_eq!(&story.released, &story.expected());
        }
        prop_assert_eq!(story.tickets.len(), story.lives.len(), "the story was too short");
        prop_assert!(story.unfinished().is_empty(), "the story was too short");
        prop_assert_eq!(story.buffer.open(), 0);
    }
}
