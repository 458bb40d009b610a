//! A table by instance. It is read without a lock; instances may be added meanwhile.
use std::sync::Arc;

use arc_swap::ArcSwap;
use scheduling::InstanceId;

/// A value for each instance, by its number. Values of instances that have left stay until their numbers are used again.
#[derive(Debug)]
pub(crate) struct InstanceTable<T>(ArcSwap<Vec<Arc<T>>>);

impl<T: Default> InstanceTable<T> {
    /// A table for the instances that are numbered from 0.
    pub(crate) fn new(instances: usize) -> Self {
        Self(ArcSwap::from_pointee((0..instances).map(|_| Arc::default()).collect()))
    }

    /// Adds values up to this instance. Those that exist stay.
    pub(crate) fn grow(&self, instance: InstanceId) {
        self.0.rcu(|values| {
            let missing = (values.len()..=instance).map(|_| Arc::default());
            values.iter().cloned().chain(missing).collect::<Vec<_>>()
        });
    }

    /// Gives an instance a value of its own: nothing is left of another instance that had its number.
    pub(crate) fn renew(&self, instance: InstanceId) {
        self.grow(instance);
        let value = Arc::<T>::default();
        self.0.rcu(|values| {
            let mut values = values.to_vec();
            values[instance] = value.clone();
            values
        });
    }

    /// The value of an instance.
    pub(crate) fn get(&self, instance: InstanceId) -> Arc<T> {
        self.0.load()[instance].clone()
    }

    /// The values of all instances.
    pub(crate) fn all(&self) -> Arc<Vec<Arc<T>>> {
        self.0.load_full()
    }

    /// Uses the value of an instance for a short time.
    pub(crate) fn with<R>(&self, instance: InstanceId, using: impl FnOnce(&T) -> R) -> R {
        using(&self.0.load()[instance])
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    #[test]
    fn values_stay_when_the_table_grows_until_they_are_renewed() {
        let table = InstanceTable::<AtomicU32>::new(2);
        table.with(1, |value| value.store(7, SeqCst));
        table.grow(3);
        table.grow(0);
        assert_eq!([0, 1, 2, 3].map(|instance| table.get(instance).load(SeqCst)), [0, 7, 0, 0]);
        let before = table.get(1);
        table.renew(1);
        table.renew(4);
        assert_eq!((before.load(SeqCst), table.get(1).load(SeqCst), table.get(4).load(SeqCst)), (7, 0, 0));
    }
}
