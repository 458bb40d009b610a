//! How sequences begin: a request to its sequence, a sequence to its slot or the backlog.
use super::{
    Direct, Sequence, SequenceBatcher, SequenceId, SequenceLocation, SequenceStep, SlotId, StrategyState,
};
use crate::{Entry, Meta, Note, Rejection};

/// Notes that nobody asked for are kept up to this many.
const NOTES_KEPT: usize = 64;

/// What a request is to the sequences there are.
pub(super) enum Role {
    Joins(SequenceLocation),
    Begins,
}

impl<T> SequenceBatcher<T> {
    /// What a request is to the sequences there are. One of an iterative model that names no sequence is
    /// one itself, and is told so.
    // Order of the rules as Triton: sequence_batch_scheduler.cc, SequenceBatchScheduler::Enqueue.
    pub(super) fn role(&mut self, meta: &mut Meta) -> Result<Role, Rejection> {
        if meta.rows() > 1 {
            return Err(Rejection::MultipleRows);
        }
        let given = meta.sequence.as_ref().filter(|step| step.id.is_given());
        if given.is_none() && !self.config.iterative {
            return Err(Rejection::MissingSequence);
        }
        if self.draining && given.is_none_or(|step| step.start) {
            return Err(Rejection::Draining);
        }
        let Some(step) = given else {
            self.last_generated_id += 1;
            meta.sequence = Some(SequenceStep {
                id: SequenceId::ServerGenerated(self.last_generated_id),
                start: true,
                end: false,
            });
            return Ok(Role::Begins);
        };
        let place = self.open.get(&step.id).copied();
        if place.is_some() && step.start && self.notes.len() < NOTES_KEPT {
            self.notes.push(Note::Restarted(step.id.clone()));
        }
        match place {
            Some(place) => Ok(Role::Joins(place)),
            None if step.start => Ok(Role::Begins),
            None => Err(Rejection::MissingStart),
        }
    }

    pub(super) fn join(&mut self, place: SequenceLocation, entry: Entry<T>) {
        let step = entry.meta.sequence.as_ref().expect("only a request of a sequence joins one");
        let end = step.end;
        if end {
            // From here on the id stands for a sequence to come.
            self.open.remove(&step.id);
        }
        let slot_id = match place {
            SequenceLocation::Backlog(number) => return self.backlog.append(number, entry, end),
            SequenceLocation::Slot(slot_id) => slot_id,
        };
        let slot = self.slots.slot(slot_id).expect("an open sequence is where its id points to");
        let occupant = slot.occupant.as_mut().expect("an open sequence is where its id points to");
        occupant.push(entry, end);
        let idle_deadline = occupant.idle_deadline.take();
        let can_run = !slot.running && occupant.requests.len() == 1;
        if let Some(idle_deadline) = idle_deadline {
            self.idle_sequences.remove(&(idle_deadline, slot_id));
        }
        if can_run {
            self.became_ready(slot_id);
        }
    }

    pub(super) fn begin(&mut self, entry: Entry<T>) {
        let step = entry.meta.sequence.as_ref().expect("only a request of a sequence begins one");
        let open = !step.end && step.id.is_given();
        let mut sequence = Sequence::new(step.id.clone(), open);
        if let Some(slot_id) = self.slots.claim() {
            sequence.requests.push_back(entry);
            return self.move_in(slot_id, sequence);
        }
        let id = open.then(|| sequence.id.clone());
        let number = self.backlog.push(sequence, entry);
        self.open.extend(id.map(|id| (id, SequenceLocation::Backlog(number))));
    }

    pub(super) fn move_in(&mut self, slot_id: SlotId, sequence: Sequence<T>) {
        if sequence.open {
            self.open.insert(sequence.id.clone(), SequenceLocation::Slot(slot_id));
        }
        if self.slots.move_in(slot_id, sequence) {
            self.became_ready(slot_id);
        }
    }

    pub(super) fn became_ready(&mut self, slot_id: SlotId) {
        let Some(instance) = self.slots.instance_mut(slot_id.instance) else { return };
        match &self.service {
            StrategyState::Direct(_) => Direct::became_ready(instance, slot_id.slot),
            StrategyState::Oldest(oldest) => oldest.became_ready(instance, slot_id.slot, self.latest),
        }
    }
}
