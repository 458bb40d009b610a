//! Which memory a library can use as a tensor, where it is.
use vocabulary::{DataType, ForeignMemory};

/// Bytes of a tensor of fixed-size elements; `None` for strings, negative dimensions and sizes beyond any memory.
pub fn byte_count(datatype: DataType, shape: &[i64]) -> Option<usize> {
    let size = datatype.byte_size()?;
    // With a zero dimension the product is zero, even if the other dimensions would overflow.
    if shape.contains(&0) && shape.iter().all(|&dim| dim >= 0) {
        return Some(0);
    }
    shape.iter().try_fold(size, |bytes, &dim| bytes.checked_mul(usize::try_from(dim).ok()?))
}

/// Whether bytes are aligned to the elements of a datatype. Bytes that are not there always are.
pub fn is_aligned(datatype: DataType, bytes: &[u8]) -> bool {
    bytes.is_empty() || datatype.byte_size().is_some_and(|size| bytes.as_ptr().addr().is_multiple_of(size))
}

/// Whether a tensor of that datatype and shape can be the whole of foreign memory, and its owner allows that.
pub fn can_be_used(datatype: DataType, shape: &[i64], memory: &ForeignMemory) -> bool {
    memory.byte_size() > 0
        && byte_count(datatype, shape) == Some(memory.byte_size())
        && datatype.byte_size().is_some_and(|size| memory.address().addr().is_multiple_of(size))
        && memory.may_be_used_in_place()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_shape_are_counted_without_overflow() {
        assert_eq!(byte_count(DataType::Fp32, &[2, 3]), Some(24));
        assert_eq!(byte_count(DataType::Int64, &[]), Some(8));
        assert_eq!(byte_count(DataType::Fp32, &[i64::MAX, 8, 0]), Some(0));
        assert_eq!(byte_count(DataType::Fp32, &[i64::MAX, 8]), None);
        assert_eq!(byte_count(DataType::Fp32, &[-1, 0]), None);
        assert_eq!(byte_count(DataType::Bytes, &[1]), None);
    }
}
