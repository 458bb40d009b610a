//! The inputs and outputs of a graph.
use std::{
    borrow::Cow,
    ffi::{CStr, CString, c_char, c_int},
    ptr::{self, NonNull},
};

use native_backend::{GraphValue, OtherKind, Signature, ValueKind};
use ort_sys as sys;
use vocabulary::{Name, Shape};

use super::{Element, OrtError, Runtime, runtime::not_null};

/// The names of inputs and outputs, in the form for runs and in the order of their slots.
#[derive(Default)]
pub(super) struct Symbols {
    pub(super) feeds: Vec<CString>,
    pub(super) outputs: Vec<CString>,
}

/// Reads the inputs and outputs of a live session.
pub(super) fn read_signature(
    runtime: &Runtime,
    session: NonNull<sys::OrtSession>,
) -> Result<(Signature, Symbols), OrtError> {
    // SAFETY: reading function pointers of a live table.
    let groups = unsafe {
        let api = runtime.api();
        [
            ((*api).SessionGetInputCount, (*api).SessionGetInputName, (*api).SessionGetInputTypeInfo),
            (
                (*api).SessionGetOverridableInitializerCount,
                (*api).SessionGetOverridableInitializerName,
                (*api).SessionGetOverridableInitializerTypeInfo,
            ),
            ((*api).SessionGetOutputCount, (*api).SessionGetOutputName, (*api).SessionGetOutputTypeInfo),
        ]
    };
    let [inputs, overridable, outputs] =
        groups.map(|(count, name, kind)| Group { runtime, session, count, name, kind });
    let mut symbols = Symbols::default();
    let signature = Signature {
        inputs: inputs.values(&mut symbols.feeds)?,
        overridable: overridable.values(&mut symbols.feeds)?,
        outputs: outputs.values(&mut symbols.outputs)?,
    };
    Ok((signature, symbols))
}

type CountFunction = unsafe extern "system" fn(*const sys::OrtSession, *mut usize) -> sys::OrtStatusPtr;
type NameFunction = unsafe extern "system" fn(
    *const sys::OrtSession,
    usize,
    *mut sys::OrtAllocator,
    *mut *mut c_char,
) -> sys::OrtStatusPtr;
type KindFunction =
    unsafe extern "system" fn(*const sys::OrtSession, usize, *mut *mut sys::OrtTypeInfo) -> sys::OrtStatusPtr;

/// The three functions that describe inputs, initialisers or outputs.
struct Group<'a> {
    runtime: &'a Runtime,
    session: NonNull<sys::OrtSession>,
    count: CountFunction,
    name: NameFunction,
    kind: KindFunction,
}

impl Group<'_> {
    /// The inputs or outputs, whose names become symbols.
    fn values(&self, symbols: &mut Vec<CString>) -> Result<Vec<GraphValue>, OrtError> {
        let mut count = 0;
        // SAFETY: the session lives; `count` is writable.
        self.runtime.check(unsafe { (self.count)(self.session.as_ptr(), &raw mut count) })?;
        (0..count)
            .map(|index| {
                let symbol = self.symbol(index)?;
                let name = Name::new(&symbol.to_string_lossy());
                symbols.push(symbol);
                Ok(GraphValue { name, kind: self.kind(index)? })
            })
            .collect()
    }

    fn symbol(&self, index: usize) -> Result<CString, OrtError> {
        let (runtime, mut text) = (self.runtime, ptr::null_mut());
        // SAFETY: the session lives, `index` is below the count, `text` is writable.
        runtime.check(unsafe {
            (self.name)(self.session.as_ptr(), index, runtime.allocator(), &raw mut text)
        })?;
        let text = not_null(text, "name")?.as_ptr();
        // SAFETY: a text that ends with NUL and the runtime allocated it for this function with the default allocator;
        // copied, then freed.
        unsafe {
            let symbol = CStr::from_ptr(text).to_owned();
            runtime.check(((*runtime.api()).AllocatorFree)(runtime.allocator(), text.cast()))?;
            Ok(symbol)
        }
    }

    fn kind(&self, index: usize) -> Result<ValueKind, OrtError> {
        let (runtime, mut pointer) = (self.runtime, ptr::null_mut());
        // SAFETY: the session lives, `index` is below the count, `pointer` is writable.
        runtime.check(unsafe { (self.kind)(self.session.as_ptr(), index, &raw mut pointer) })?;
        let pointer = not_null(pointer, "type")?.as_ptr();
        let kind = read_kind(runtime, pointer);
        // SAFETY: this function owns the value and frees it once; the kind has copied what it needs.
        unsafe { ((*runtime.api()).ReleaseTypeInfo)(pointer) };
        kind
    }
}

/// A type that is no tensor, by the runtime's name.
pub(crate) fn other_kind(name: impl Into<Cow<'static, str>>) -> ValueKind {
    ValueKind::Other(OtherKind { name: name.into(), noun: "ONNX Type", tensor: "ONNX_TYPE_TENSOR" })
}

fn read_kind(runtime: &Runtime, pointer: *const sys::OrtTypeInfo) -> Result<ValueKind, OrtError> {
    let api = runtime.api();
    let mut kind: c_int = 0;
    // SAFETY: `pointer` lives; the result is an enum of the size of `kind`, read as a number.
    runtime.check(unsafe { ((*api).GetOnnxTypeFromTypeInfo)(pointer, (&raw mut kind).cast()) })?;
    if kind != sys::ONNXType::ONNX_TYPE_TENSOR as c_int {
        const NAMES: [&str; 7] =
            ["UNKNOWN", "TENSOR", "SEQUENCE", "MAP", "OPAQUE", "SPARSETENSOR", "OPTIONAL"];
        let name = usize::try_from(kind).ok().and_then(|kind| NAMES.get(kind)).unwrap_or(&NAMES[0]);
        return Ok(other_kind(format!("ONNX_TYPE_{name}")));
    }
    let mut tensor = ptr::null();
    // SAFETY: `pointer` lives and is a tensor's; the result is borrowed from it.
    runtime.check(unsafe { ((*api).CastTypeInfoToTensorInfo)(pointer, &raw mut tensor) })?;
    let tensor = not_null(tensor.cast_mut(), "tensor type")?;
    let (element, shape) = element_and_shape(runtime, tensor)?;
    Ok(ValueKind::Tensor(element.into(), shape))
}

/// Reads a tensor's type, which the caller keeps alive.
pub(super) fn element_and_shape(
    runtime: &Runtime,
    tensor: NonNull<sys::OrtTensorTypeAndShapeInfo>,
) -> Result<(Element, Shape), OrtError> {
    let (api, tensor) = (runtime.api(), tensor.as_ptr());
    let mut element: c_int = 0;
    let mut rank = 0;
    // SAFETY: `tensor` lives; the result is an enum of the size of `element`, read as a number.
    runtime.check(unsafe { ((*api).GetTensorElementType)(tensor, (&raw mut element).cast()) })?;
    // SAFETY: `tensor` lives; `rank` is writable.
    runtime.check(unsafe { ((*api).GetDimensionsCount)(tensor, &raw mut rank) })?;
    let mut shape = Shape::from_elem(0, rank);
    // SAFETY: `tensor` lives; `shape` has room for `rank` dimensions.
    runtime.check(unsafe { ((*api).GetDimensions)(tensor, shape.as_mut_ptr(), rank) })?;
    Ok((Element(element), shape))
}
