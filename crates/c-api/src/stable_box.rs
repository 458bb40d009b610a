//! An owned object whose address a library stores.
use std::{fmt, ops::Deref, ptr::NonNull};

/// Owns an object on the heap and gives out its address.
///
/// A [`Box`] promises to the compiler that no other pointer to its content is used, and repeats the promise each time
/// it is moved. A library that reads through an older pointer would break it. This type makes no such promise: it only
/// drops the object. It gives shared references only; what changes in the object is protected by atomics and locks.
pub(crate) struct StableBox<T>(NonNull<T>);

// SAFETY: as a `Box`; a value that is moved to another thread takes the object with it.
unsafe impl<T: Send> Send for StableBox<T> {}
// SAFETY: gives shared references only.
unsafe impl<T: Sync> Sync for StableBox<T> {}

impl<T> StableBox<T> {
    pub(crate) fn new(value: T) -> Self {
        // SAFETY: a box is not null.
        Self(unsafe { NonNull::new_unchecked(Box::into_raw(Box::new(value))) })
    }

    /// The address as C functions take it. It stays the same and is readable until `self` is dropped.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T: Default> Default for StableBox<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Deref for StableBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the object lives until `self` is dropped, and there is no mutable reference.
        unsafe { self.0.as_ref() }
    }
}

impl<T> StableBox<T> {
    /// Takes the object out.
    pub(crate) fn into_inner(self) -> T {
        let content = self.0;
        std::mem::forget(self);
        // SAFETY: made from a box, and not dropped, because `self` is forgotten. The library no longer uses the
        // address.
        *unsafe { Box::from_raw(content.as_ptr()) }
    }
}

impl<T> Drop for StableBox<T> {
    fn drop(&mut self) {
        // SAFETY: made from a box, and dropped once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<T: fmt::Debug> fmt::Debug for StableBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicU32, atomic::Ordering::Relaxed};

    use super::*;

    #[test]
    fn an_address_that_was_handed_out_stays_good_while_its_owner_moves() {
        let mut all = Vec::new();
        let mut addresses = Vec::new();
        for number in 0..10 {
            let stable = StableBox::new(AtomicU32::new(number));
            addresses.push(stable.as_ptr());
            all.push(stable);
        }
        for address in addresses {
            // SAFETY: `all` has it.
            unsafe { &*address }.fetch_add(1, Relaxed);
        }
        let numbers: Vec<_> = all.into_iter().map(|stable| stable.into_inner().into_inner()).collect();
        assert_eq!(numbers, (1..=10).collect::<Vec<_>>());
    }

    #[test]
    fn the_object_is_dropped_with_its_owner() {
        let inside = Arc::new(());
        drop(StableBox::new(inside.clone()));
        let taken = StableBox::new(inside.clone()).into_inner();
        assert_eq!(Arc::strong_count(&inside), 2);
        drop(taken);
        assert_eq!(Arc::strong_count(&inside), 1);
    }
}
