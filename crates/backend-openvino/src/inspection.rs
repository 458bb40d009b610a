//! What the files of a model say of it, before the library has read them.
use std::num::NonZeroU32;

use config::{ConfigErrors, ModelConfig, rule};
use inference::backend::{ModelInspection, ModelSource};
use native_backend::{
    DefaultBatchSize, DimsRule, ElementType, GraphValue, Rows, Signature, ValueKind, check_config, complete,
    is_complete,
};
use vocabulary::{Error, Name, Shape};

use crate::{
    element_names::datatype_of,
    ir_file::{self, IrFile, IrValue},
    model_file::model_file,
    settings::{OpenVinoSettings, check_fields},
    signature::{tensor_value, unnamed, unreadable_output},
};

/// A version of a model whose parameters are allowed.
pub(crate) struct OpenVinoInspection {
    model: Name,
    /// Known if its file has OpenVINO's own format, and if the inputs have the shapes of the file.
    graph: Option<IrFile>,
    /// The first dimension of all inputs and outputs is open.
    has_batches: bool,
    default_max_batch_size: DefaultBatchSize,
}

impl OpenVinoInspection {
    /// Reads the graph of a version if its file has OpenVINO's own format.
    ///
    /// # Errors
    /// The errors of opening the model, as far as its files tell them.
    pub(crate) fn of(source: &ModelSource) -> Result<Self, Error> {
        let settings = OpenVinoSettings::of(&source.parameters())?;
        let default_max_batch_size = DefaultBatchSize::of(&source.settings)?;
        let file = model_file(source)?;
        let is_ir = file.extension().is_some_and(|extension| extension == "xml");
        let graph = (is_ir && !settings.reshapes).then(|| ir_file::read(&file)).transpose();
        let graph = graph.map_err(|reason| {
            Error::invalid(format!("'{}' is no graph of OpenVINO: {reason}", file.display()))
        })?;
        let has_batches = source.declared.max_batch_size > 0 && !settings.keeps_batch;
        Ok(Self { model: source.name.clone(), graph, has_batches, default_max_batch_size })
    }

    /// The signature that the model will have. Inputs and outputs have the names that the configuration has for them, or
    /// their first ones. Outputs whose shapes the file does not tell are left out.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for an input or output without a name.
    fn signature(&self, graph: &IrFile, inputs: &[&str], outputs: &[&str]) -> Result<Signature, Error> {
        let mut signature = Signature::default();
        for (position, input) in graph.inputs.iter().enumerate() {
            let name = name(input, inputs).ok_or_else(|| unnamed("input", position, &self.model))?;
            signature.inputs.push(GraphValue { name, kind: self.tensor(input) });
        }
        for (position, output) in graph.outputs.iter().enumerate() {
            if output.shape.is_some() {
                let name = name(output, outputs).ok_or_else(|| unnamed("output", position, &self.model))?;
                let unreadable = unreadable_output(datatype_of(&output.element));
                let kind = unreadable.unwrap_or_else(|| self.tensor(output));
                signature.outputs.push(GraphValue { name, kind });
            }
        }
        Ok(signature)
    }

    fn tensor(&self, value: &IrValue) -> ValueKind {
        let element = datatype_of(&value.element)
            .map_or_else(|| ElementType::new(None, value.element.clone()), ElementType::from);
        tensor_value(element, value.shape.as_ref().map(|shape| self.opened(shape)))
    }

    fn opened(&self, shape: &Shape) -> Shape {
        let mut shape = shape.clone();
        if self.has_batches && !shape.is_empty() {
            shape[0] = -1;
        }
        shape
    }
}

/// The name that a configuration has for an input or output, or else its first one.
fn name(value: &IrValue, configured: &[&str]) -> Option<Name> {
    let known = configured.iter().find(|&&name| value.names.iter().any(|own| own == name)).copied();
    known.or_else(|| value.names.first().map(String::as_str)).map(Name::new)
}

impl ModelInspection for OpenVinoInspection {
    fn complete_config(&self, config: &mut proto::ModelConfig) -> Result<Option<NonZeroU32>, Error> {
        let Some(graph) = self.graph.as_ref().filter(|_| !is_complete(config)) else { return Ok(None) };
        let inputs: Vec<_> = config.input.iter().map(|input| input.name.as_str()).collect();
        let outputs: Vec<_> = config.output.iter().map(|output| output.name.as_str()).collect();
        let signature = self.signature(graph, &inputs, &outputs)?;
        complete(config, &signature, self.default_max_batch_size, || {
            Rows::Unknown("nothing was run".to_owned())
        })
    }

    fn completes_all(&self) -> bool {
        self.graph.as_ref().is_some_and(|graph| graph.outputs.iter().all(|output| output.shape.is_some()))
    }

    fn check(&self, config: &ModelConfig, errors: &mut ConfigErrors) {
        errors.begin(rule::BACKEND);
        check_fields(config).err().iter().for_each(|error| errors.push_error("", error));
        let Some(graph) = &self.graph else { return };
        let inputs: Vec<_> = config.inputs.iter().map(|input| input.name.as_str()).collect();
        let outputs: Vec<_> = config.outputs.iter().map(|output| output.name.as_str()).collect();
        let signature = match self.signature(graph, &inputs, &outputs) {
            Ok(signature) => signature,
            Err(error) => {
                errors.begin(rule::GRAPH);
                return errors.push_error("", &error);
            }
        };
        let untold: Vec<_> = graph.outputs.iter().filter(|output| output.shape.is_none()).collect();
        let is_untold = |name: &str| untold.iter().any(|output| output.names.iter().any(|own| own == name));
        let mut known = config.clone();
        known.outputs.retain(|output| !is_untold(&output.name));
        check_config(&known, &signature, DimsRule::Covered, errors);
    }
}
