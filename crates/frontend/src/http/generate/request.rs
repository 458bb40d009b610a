//! A generate request: one JSON object. The name of each member determines whether it is an input of the model or a
//! parameter.
//!
//! Rules and texts: as Triton's http_server.cc, ConvertGenerateRequest and ExactMappingInput, with two differences.
//! First, parameters that control the request have their effect, and the model also gets them (P-W8). Second, nested
//! arrays define the shape of their tensor (P-W52). A flat array or a scalar is spread over the model's dimensions, and
//! so are arrays of single elements whose nesting does not fit the model.
use std::collections::HashSet;

use config::InputSpec;
use inference::{Request, RequestInputs, id_prefix};
use kserve::lengths;
use vocabulary::{Error, Name, Shape, Tensor};

use crate::http::{
    json::{Document, JsonText, JsonValue, NestedElements, access, during},
    request::{custom, json_datatype, read_control},
};

/// The name of the member whose own members are treated as members of the request.
const PARAMETERS: &str = "parameters";

/// What a decoder needs in addition to the bytes.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Schema<'m> {
    /// The model's inputs.
    pub(in crate::http) inputs: &'m [InputSpec],
    /// Whether clients write a batch dimension before those of the inputs.
    pub(in crate::http) batched: bool,
    /// `--http-max-input-size`, in bytes.
    pub(in crate::http) max_input_size: usize,
}

/// Decodes a request.
///
/// # Errors
/// INTERNAL for JSON of the wrong structure (500, as in the reference), INVALID_ARG for a request that does not fit the
/// model.
pub(in crate::http) fn decode<'t>(
    json: impl Into<JsonText<'t>>,
    schema: Schema<'_>,
) -> Result<Request, Error> {
    // FP16 and BF16 are refused by name before their elements are read.
    let datatype_of = |key: &[u8]| {
        let spec = schema.input(std::str::from_utf8(key).ok()?)?;
        json_datatype(&spec.name, spec.datatype).ok()
    };
    let (document, arrays) = Document::parse_inputs(json, &datatype_of)?;
    let mut conversion = RequestConversion {
        schema,
        arrays: arrays.into_iter().map(Some).collect(),
        request: Request::default(),
        tensors: Vec::with_capacity(schema.inputs.len()),
        bytes: 0,
        seen: HashSet::new(),
    };
    let root = document.root();
    if let Some(id) = root.find("id").filter(|_| schema.input("id").is_none()) {
        conversion.request.id = lengths::id(&id.as_text().map_err(during("Unable to parse 'id'"))?)?;
    }
    let mut has_nested = false;
    for (key, value) in root.members()? {
        let key = String::from_utf8_lossy(key);
        if key != PARAMETERS {
            conversion.member(&key, value)?;
        } else if !std::mem::replace(&mut has_nested, true) {
            conversion.nested(value)?;
        }
    }
    let RequestConversion { mut request, tensors, .. } = conversion;
    request.inputs = RequestInputs::Tensors(tensors);
    Ok(request)
}

impl<'m> Schema<'m> {
    fn input(self, name: &str) -> Option<&'m InputSpec> {
        self.inputs.iter().find(|input| input.name == name)
    }
}

/// A request during its conversion from JSON.
struct RequestConversion<'m> {
    schema: Schema<'m>,
    /// The arrays of the document that have not become tensors yet.
    arrays: Vec<Option<NestedElements>>,
    request: Request,
    tensors: Vec<Tensor>,
    /// The bytes of all tensors so far.
    bytes: usize,
    /// The names of the parameters so far. The first parameter of a name counts.
    seen: HashSet<Name>,
}

impl RequestConversion<'_> {
    fn nested(&mut self, object: JsonValue<'_>) -> Result<(), Error> {
        if self.schema.input(PARAMETERS).is_some() {
            return Err(Error::invalid(format!(
                "Keyword '{PARAMETERS}' for nested schema also given as input tensor name"
            )));
        }
        let members = object.members().map_err(|_| {
            Error::internal(format!("Expected JSON object for keyword: '{PARAMETERS}': {}", access::OBJECT))
        })?;
        for (key, value) in members {
            self.member(&String::from_utf8_lossy(key), value)
                .map_err(during("Converting keyword: 'parameters'"))?;
        }
        Ok(())
    }

    fn member(&mut self, key: &str, value: JsonValue<'_>) -> Result<(), Error> {
        match self.schema.input(key) {
            Some(spec) => self.input(spec, value),
            None => self.parameter(key, value),
        }
    }

    fn input(&mut self, spec: &InputSpec, value: JsonValue<'_>) -> Result<(), Error> {
        let name = &spec.name;
        if self.tensors.iter().any(|tensor| tensor.name() == name) {
            let prefix = id_prefix(&self.request.id);
            return Err(Error::invalid(format!("{prefix}input '{name}' already exists in request")));
        }
        let datatype = json_datatype(name, spec.datatype)?;
        let array = value.tensor().and_then(|index| self.arrays.get_mut(index)?.take());
        let elements = array.unwrap_or_else(|| value.only_element(datatype));
        let (bytes, nesting) = elements.into_parts().map_err(|error| error.explain(datatype, name, &[]))?;
        let nesting = nesting.ok_or_else(|| {
            Error::invalid(format!("{}: its arrays differ in length or depth", no_shape(name)))
        })?;
        // Shape tensors have no batch dimension.
        let batched = self.schema.batched && !spec.is_shape_tensor;
        let batch = batched.then_some(-1);
        let dims: Shape = batch.into_iter().chain(spec.dims.iter().copied()).collect();
        let shape = shape_of(&nesting, &dims, batched);
        let shape = shape.ok_or_else(|| Error::invalid(no_shape(name)))?;
        self.bytes += bytes.len();
        if self.bytes > self.schema.max_input_size {
            return Err(Error::invalid(format!(
                "request size of {} bytes with input '{name}' of size {} bytes exceeds the maximum allowed input size of \
                 {}. Use --http-max-input-size to increase the limit.",
                self.bytes,
                bytes.len(),
                self.schema.max_input_size
            )));
        }
        self.tensors.push(Tensor::new(name.clone(), datatype, shape, bytes));
        Ok(())
    }

    fn parameter(&mut self, key: &str, value: JsonValue<'_>) -> Result<(), Error> {
        let name = lengths::name("the key of a parameter", key)?;
        if !self.seen.insert(name.clone()) {
            return Ok(());
        }
        read_control(key, value, &mut self.request)?;
        self.request.parameters.push((name, custom(key, value)?));
        Ok(())
    }
}

fn no_shape(name: &Name) -> String {
    format!("The schema can not convert input '{name}' to tensor with proper shape")
}

/// The shape of elements with this nesting, for a model with these dimensions. `dims` includes the batch dimension.
/// `None` if the elements cannot be spread. The engine checks whether a shape from nested arrays fits the model.
fn shape_of(nesting: &[i64], dims: &[i64], batched: bool) -> Option<Shape> {
    let shape: Shape = match nesting {
        [] => return spread(1, dims),
        [count] => return spread(*count, dims),
        // One row of a batch.
        row if batched && row.len() + 1 == dims.len() => [&[1], row].concat().into(),
        whole => whole.into(),
    };
    let fits = shape.len() == dims.len() && shape.iter().zip(dims).all(|(size, dim)| *dim < 0 || size == dim);
    // As Triton: elements in arrays of their own are a flat array, here where their nesting is not that of the model.
    if let [count, inner @ ..] = nesting
        && !fits
        && inner.iter().all(|size| *size == 1)
    {
        return spread(*count, dims);
    }
    Some(shape)
}

/// Spreads `count` elements over `dims`. Fixed dimensions keep their size, the innermost free dimension takes the rest,
/// and the other free dimensions are 1.
pub(super) fn spread(count: i64, dims: &[i64]) -> Option<Shape> {
    let mut rest = count;
    for &dim in dims.iter().filter(|&&dim| dim >= 0) {
        rest = match rest.checked_rem(dim) {
            Some(0) => rest / dim,
            // With a dimension of zero the tensor has no elements, so only a `count` of zero fits.
            None if rest == 0 => 1,
            Some(_) | None => return None,
        };
    }
    let mut shape: Shape = dims.into();
    for dim in shape.iter_mut().rev().filter(|dim| **dim < 0) {
        *dim = std::mem::replace(&mut rest, 1);
    }
    (rest == 1).then_some(shape)
}
