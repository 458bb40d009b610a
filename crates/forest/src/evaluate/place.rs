//! The element of a slice at an index that is proved.

/// The element at `index`, which the layout has proved to be less than the length.
#[inline(always)]
pub(crate) fn at<T: Copy>(slice: &[T], index: usize) -> T {
    slice[index]
}
