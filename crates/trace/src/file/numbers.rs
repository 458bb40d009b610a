//! The elements of a tensor as text, separated by commas.
use half::{bf16, f16};
use vocabulary::{DataType, bytes_elements};

/// The elements of a tensor with these bytes. An incomplete element at the end is left out.
pub(super) fn text(datatype: DataType, data: &[u8]) -> String {
    match datatype {
        DataType::Bool => joined::<1>(data, |[byte]| u8::from(byte != 0).to_string()),
        DataType::Uint8 => joined::<1>(data, |[byte]| byte.to_string()),
        DataType::Uint16 => joined(data, |bytes| u16::from_le_bytes(bytes).to_string()),
        DataType::Uint32 => joined(data, |bytes| u32::from_le_bytes(bytes).to_string()),
        DataType::Uint64 => joined(data, |bytes| u64::from_le_bytes(bytes).to_string()),
        DataType::Int8 => joined(data, |bytes| i8::from_le_bytes(bytes).to_string()),
        DataType::Int16 => joined(data, |bytes| i16::from_le_bytes(bytes).to_string()),
        DataType::Int32 => joined(data, |bytes| i32::from_le_bytes(bytes).to_string()),
        DataType::Int64 => joined(data, |bytes| i64::from_le_bytes(bytes).to_string()),
        DataType::Fp16 => joined(data, |bytes| short(f16::from_le_bytes(bytes).to_f32())),
        DataType::Bf16 => joined(data, |bytes| short(bf16::from_le_bytes(bytes).to_f32())),
        DataType::Fp32 => joined(data, |bytes| short(f32::from_le_bytes(bytes))),
        DataType::Fp64 => joined(data, |bytes| decimal(f64::from_le_bytes(bytes))),
        DataType::Bytes => {
            let elements = bytes_elements(data).map_while(Result::ok);
            let quoted = elements.map(|element| format!("\"{}\"", String::from_utf8_lossy(element)));
            quoted.collect::<Vec<_>>().join(",")
        }
    }
}

fn joined<const SIZE: usize>(data: &[u8], element: impl Fn([u8; SIZE]) -> String) -> String {
    let (elements, _) = data.as_chunks::<SIZE>();
    elements.iter().map(|bytes| element(*bytes)).collect::<Vec<_>>().join(",")
}

/// The shortest decimal number that is read as the same value.
fn short(value: f32) -> String {
    if value.is_finite() { plain(ryu::Buffer::new().format_finite(value)) } else { decimal(value.into()) }
}

fn decimal(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    plain(ryu::Buffer::new().format_finite(value))
}

/// Whole numbers have no decimal point, as in Triton.
fn plain(number: &str) -> String {
    number.strip_suffix(".0").unwrap_or(number).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datatype_has_its_text() {
        let cases: [(DataType, Vec<u8>, &str); 14] = [
            (DataType::Bool, vec![0, 1, 7], "0,1,1"),
            (DataType::Uint8, vec![0, 255], "0,255"),
            (DataType::Uint16, vec![255, 255], "65535"),
            (DataType::Uint32, vec![255; 4], "4294967295"),
            (DataType::Uint64, vec![255; 8], "18446744073709551615"),
            (DataType::Int8, vec![65, 255], "65,-1"),
            (DataType::Int16, vec![255, 255], "-1"),
            (DataType::Int32, [3_i32, -4].map(i32::to_le_bytes).concat(), "3,-4"),
            (DataType::Int64, i64::MIN.to_le_bytes().to_vec(), "-9223372036854775808"),
            (
                DataType::Fp16,
                [1.5, -0.25].map(|value| f16::from_f32(value).to_le_bytes()).concat(),
                "1.5,-0.25",
            ),
            (DataType::Bf16, bf16::from_f32(3.0).to_le_bytes().to_vec(), "3"),
            (DataType::Fp32, [0.1_f32, 1e20, f32::NAN].map(f32::to_le_bytes).concat(), "0.1,1e20,nan"),
            (DataType::Fp64, [0.1_f64, f64::NEG_INFINITY].map(f64::to_le_bytes).concat(), "0.1,-inf"),
            (DataType::Bytes, b"\x02\0\0\0ab\x01\0\0\0\"".to_vec(), "\"ab\",\"\"\""),
        ];
        for (datatype, data, expected) in cases {
            assert_eq!(text(datatype, &data), expected, "{datatype:?}");
            assert_eq!(text(datatype, &[]), "");
        }
    }

    #[test]
    fn an_incomplete_element_is_left_out() {
        assert_eq!(text(DataType::Int32, &[1, 0, 0, 0, 9]), "1");
        assert_eq!(text(DataType::Bytes, b"\x01\0\0\0a\x09\0\0\0b"), "\"a\"");
    }
}
