//! How sequences begin: a request to its sequence, a sequence to its slot or the backlog.
use super::{Direct, Place, Seat, Sequence, SequenceBatcher, SequenceId, SequenceStep, Service};
use crate::{Entry, Meta, Note, Rejection};

/// Notes that nobody asked for are kept up to this many.
const NOTES_KEPT: usize = 64;

/// What a request is to the sequences there are.
pub(super) enum Role {
    Joins(Place),
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
            self.last_own_id += 1;
            meta.sequence =
                Some(SequenceStep { id: SequenceId::Own(self.last_own_id), start: true, end: false });
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

    pub(super) fn join(&mut self, place: Place, entry: Entry<T>) {
        let step = entry.meta.sequence.as_ref().expect("only a request of a sequence joins one");
        let end = step.end;
        if end {
            // From here on the id stands for a sequence to come.
            self.open.remove(&step.id);
        }
        let seat = match place {
            Place::Backlog(number) => return self.backlog.append(number, entry, end),
            Place::Slot(seat) => seat,
        };
        let slot = self.slots.slot(seat).expect("an open sequence is where its id points to");
        let tenant = slot.tenant.as_mut().expect("an open sequence is where its id points to");
        tenant.push(entry, end);
        let patience_ends = tenant.patience_ends.take();
        let can_run = !slot.running && tenant.requests.len() == 1;
        if let Some(patience_ends) = patience_ends {
            self.silent.remove(&(patience_ends, seat));
        }
        if can_run {
            self.became_ready(seat);
        }
    }

    pub(super) fn begin(&mut self, entry: Entry<T>) {
        let step = entry.meta.sequence.as_ref().expect("only a request of a sequence begins one");
        let open = !step.end && step.id.is_given();
        let mut sequence = Sequence::new(step.id.clone(), open);
        if let Some(seat) = self.slots.claim() {
            sequence.requests.push_back(entry);
            return self.move_in(seat, sequence);
        }
        let id = open.then(|| sequence.id.clone());
        let number = self.backlog.push(sequence, entry);
        self.open.extend(id.map(|id| (id, Place::Backlog(number))));
    }

    pub(super) fn move_in(&mut self, seat: Seat, sequence: Sequence<T>) {
        if sequence.open {
            self.open.insert(sequence.id.clone(), Place::Slot(seat));
        }
        if self.slots.move_in(seat, sequence) {
            self.became_ready(seat);
        }
    }

    pub(super) fn became_ready(&mut self, seat: Seat) {
        let Some(instance) = self.slots.instance_mut(seat.instance) else { return };
        match &self.service {
            Service::Direct(_) => Direct::became_ready(instance, seat.slot),
            Service::Oldest(oldest) => oldest.became_ready(instance, seat.slot, self.latest),
        }
    }
}
