//! What is probably meant by the name of no datatype.
use proto::{did_you_mean, nearest};
use vocabulary::DataType;

/// The most bytes of a client's text that an error repeats.
const MOST_SHOWN_BYTES: usize = 64;

/// What is wrong with a text that is no protocol name, and the name that is probably meant, or all names.
pub fn unknown_datatype(text: &str) -> String {
    let shown = &text[..text.floor_char_boundary(MOST_SHOWN_BYTES)];
    let names = DataType::ALL.map(DataType::protocol_name);
    let of_config = proto::meant_datatype(shown);
    let of_config =
        DataType::ALL.into_iter().find(|datatype| of_config.as_deref() == Some(datatype.config_name()));
    let meant = of_config.map(DataType::protocol_name).or_else(|| nearest(shown, names));
    match meant {
        Some(_) => format!("'{shown}' is not a datatype{}", did_you_mean(meant)),
        None => format!("'{shown}' is not a datatype, datatypes are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_datatype_has_is_told_with_what_is_meant() {
        for (name, meant) in [
            ("FLOAT", "FP32"),
            ("float32", "FP32"),
            ("fp32", "FP32"),
            ("TYPE_FP32", "FP32"),
            ("double", "FP64"),
            ("int64", "INT64"),
            ("long", "INT64"),
            ("STRING", "BYTES"),
            ("object", "BYTES"),
            ("bool", "BOOL"),
            ("UNIT8", "UINT8"),
        ] {
            assert_eq!(
                unknown_datatype(name),
                format!("'{name}' is not a datatype, did you mean '{meant}'?")
            );
        }
        let unknown = unknown_datatype(&"é".repeat(1000));
        let shown = "é".repeat(MOST_SHOWN_BYTES / 2);
        assert!(
            unknown.starts_with(&format!("'{shown}' is not a datatype, datatypes are BOOL, UINT8,")),
            "{unknown}"
        );
    }
}
