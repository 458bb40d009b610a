//! `TRITONSERVER_Parameter`: a named value that passes between C and Rust.
use std::{
    ffi::{c_char, c_void},
    ptr,
};

use bytes::Bytes;
use vocabulary::{Error, Name, Parameter};

use super::enums::{
    PARAMETER_BOOL, PARAMETER_BYTES, PARAMETER_DOUBLE, PARAMETER_INT, PARAMETER_STRING, ParameterType,
};
use crate::handle::{Handle, array, delete, readable, text};

/// `TRITONSERVER_Parameter`.
#[derive(Debug, Clone)]
pub struct NamedParameter {
    /// Its name.
    pub name: Name,
    /// Its value.
    pub value: Parameter,
}

impl Handle for NamedParameter {
    const NAME: &'static str = "TRITONSERVER_Parameter";
}

/// The type of a value, and the address where C may read it. The address is valid while the value is not moved.
pub fn show(value: &Parameter) -> (ParameterType, *const c_void) {
    match value {
        Parameter::String(text) => (PARAMETER_STRING, readable(text).cast()),
        Parameter::Int(number) => (PARAMETER_INT, ptr::from_ref(number).cast()),
        Parameter::Bool(truth) => (PARAMETER_BOOL, ptr::from_ref(truth).cast()),
        Parameter::Double(number) => (PARAMETER_DOUBLE, ptr::from_ref(number).cast()),
        Parameter::Bytes(bytes) => (PARAMETER_BYTES, bytes.as_ptr().cast()),
    }
}

/// Reads a value of a type from memory of C.
///
/// # Errors
/// INVALID_ARG for null, for text that is not UTF-8, and for bytes, whose length this call does not pass.
unsafe fn read(kind: ParameterType, value: *const c_void) -> Result<Parameter, Error> {
    if value.is_null() {
        return Err(Error::invalid("unexpected null parameter value"));
    }
    // SAFETY: not null, and of the type that the caller states.
    unsafe {
        match kind {
            PARAMETER_STRING => Ok(Parameter::String(text(value.cast())?.into())),
            PARAMETER_INT => Ok(Parameter::Int(*value.cast())),
            PARAMETER_BOOL => Ok(Parameter::Bool(*value.cast::<u8>() != 0)),
            PARAMETER_DOUBLE => Ok(Parameter::Double(*value.cast())),
            other => Err(Error::invalid(format!("a parameter cannot be made of a value of type {other}"))),
        }
    }
}

fn own(name: Result<&str, Error>, value: Result<Parameter, Error>) -> *mut NamedParameter {
    match (name, value) {
        (Ok(name), Ok(value)) => Box::into_raw(Box::new(NamedParameter { name: name.into(), value })),
        (Err(_), _) | (_, Err(_)) => ptr::null_mut(),
    }
}

/// Makes a parameter of a text, an integer, a boolean or a double, which is copied. Returns null for bytes and for an
/// unknown type. The caller owns the parameter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ParameterNew(
    name: *const c_char,
    kind: ParameterType,
    value: *const c_void,
) -> *mut NamedParameter {
    // SAFETY: a text or null; a value of that type or null.
    unsafe { own(text(name), read(kind, value)) }
}

/// Makes a parameter of that many bytes, which are copied. Returns null without a name. The caller owns the parameter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ParameterBytesNew(
    name: *const c_char,
    bytes: *const c_void,
    size: u64,
) -> *mut NamedParameter {
    // SAFETY: a text or null; that many bytes or null.
    let (name, bytes) = unsafe { (text(name), array(bytes.cast::<u8>(), size)) };
    own(name, bytes.map(|bytes| Parameter::Bytes(Bytes::copy_from_slice(bytes))))
}

/// Deletes a parameter; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ParameterDelete(parameter: *mut NamedParameter) {
    // SAFETY: null or a parameter that the caller does not use after this.
    unsafe { delete(parameter) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_out_as_they_went_in() {
        let (int, double, truth) = (-7_i64, 1.5_f64, true);
        let cases = [
            (PARAMETER_STRING, c"text".as_ptr().cast::<c_void>(), Parameter::String("text".into())),
            (PARAMETER_INT, ptr::from_ref(&int).cast(), Parameter::Int(-7)),
            (PARAMETER_DOUBLE, ptr::from_ref(&double).cast(), Parameter::Double(1.5)),
            (PARAMETER_BOOL, ptr::from_ref(&truth).cast(), Parameter::Bool(true)),
        ];
        for (kind, value, expected) in cases {
            // SAFETY: a value of that type; the parameter is deleted once.
            unsafe {
                let made = TRITONSERVER_ParameterNew(c"name".as_ptr(), kind, value);
                assert_eq!((made.as_ref().unwrap().name.as_str(), &(*made).value), ("name", &expected));
                assert_eq!(show(&(*made).value).0, kind);
                TRITONSERVER_ParameterDelete(made);
            }
        }
        // SAFETY: bytes are refused before they are read.
        let refused =
            unsafe { TRITONSERVER_ParameterNew(c"n".as_ptr(), PARAMETER_BYTES, c"x".as_ptr().cast()) };
        assert!(refused.is_null());
    }
}
