//! Support for all tests: a model, its instance, requests and their answers, and pictures.
use std::{io::Cursor, num::NonZeroUsize, path::Path, sync::Arc};

use backend_image::ImageBackend;
use bytes::Bytes;
use config::{Completion, CompletionContext, ConfigSource, ModelConfig, ModelLayout, declare, finish};
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use inference::{
    ExecutionTimes, Request, RequestInputs, Response, ResponseStream, Timeline, Timestamp, Unobserved,
    UnreadPolicy,
    backend::{
        Backend, BackendInstance, BackendModel, Batch, BuiltInstance, Execution, InstanceDevice,
        InstanceSpec, ModelSource,
    },
    response_channel,
};
use vocabulary::{DataType, Error, Name, Tensor};

/// The configuration of a model with that output, and with further lines.
pub(crate) fn config(max_batch_size: u32, datatype: &str, dims: &str, rest: &str) -> String {
    format!(
        "backend: 'image' max_batch_size: {max_batch_size}\n\
         input {{ name: 'ENCODED' data_type: TYPE_STRING dims: [ 1 ] }}\n\
         output {{ name: 'PIXELS' data_type: {datatype} dims: [ {dims} ] }}\n{rest}"
    )
}

/// The lines of parameters.
pub(crate) fn parameters(pairs: &[(&str, &str)]) -> String {
    let line = |(key, value): &(&str, &str)| {
        format!("parameters {{ key: '{key}' value: {{ string_value: '{value}' }} }}\n")
    };
    pairs.iter().map(line).collect()
}

fn typed(text: &str) -> Result<(Box<dyn BackendModel>, Arc<ModelConfig>), Error> {
    // The version directory is empty.
    let layout = ModelLayout { name: "model".to_owned(), versions: [(1, Vec::new())].into() };
    let path = Path::new("/nowhere/model/config.pbtxt");
    let source = ConfigSource::Text { path, content: text.as_bytes() };
    let declared = declare(source, &layout, Completion::Auto)?;
    let model = ImageBackend.open(&ModelSource {
        name: "model".into(),
        version: 1,
        model_directory: "/nowhere/model".into(),
        version_directory: "/nowhere/model/1".into(),
        declared: Arc::new(declared.config.clone()),
        settings: Default::default(),
        inferer: None,
        host_policies: Default::default(),
    })?;
    let mut completed = declared.config.clone();
    model.complete_config(&mut completed)?;
    let config = finish(&declared, completed, &CompletionContext::default())?.typed;
    Ok((model, Arc::new(config)))
}

/// A loaded model.
pub(crate) struct Loaded(Box<dyn BackendInstance>);

/// Loads the model of a configuration.
pub(crate) fn load(text: &str) -> Result<Loaded, Error> {
    load_on(text, InstanceDevice::Cpu)
}

pub(crate) fn load_on(text: &str, device: InstanceDevice) -> Result<Loaded, Error> {
    let (model, config) = typed(text)?;
    let spec = InstanceSpec { name: "model_0".into(), device, threads: NonZeroUsize::MIN, passive: false };
    let BuiltInstance::ThreadBound(instance) = model.instance(&config, &spec)? else {
        panic!("a network thread must never decode a picture")
    };
    Ok(Loaded(instance))
}

/// Why the model of a configuration cannot be loaded.
pub(crate) fn refusal(text: &str) -> String {
    load(text).map(|_| ()).unwrap_err().with_code()
}

impl Loaded {
    /// Runs the requests as one batch, after a change to their streams.
    pub(crate) fn run_after(
        &mut self,
        requests: Vec<Request>,
        happening: impl FnOnce(&[ResponseStream]),
    ) -> Vec<Result<Response, Error>> {
        let (executions, streams): (Vec<_>, Vec<_>) = requests
            .into_iter()
            .map(|request| {
                let timeline = Timeline::new(Timestamp::from_nanos(1), 1);
                let (responder, stream) =
                    response_channel(timeline, Arc::new(Unobserved), UnreadPolicy::unlimited());
                (Execution::new(request, responder), stream)
            })
            .unzip();
        happening(&streams);
        let execution_times = Arc::new(ExecutionTimes::start(1, || Timestamp::from_nanos(1)));
        self.0.execute(Batch { executions, execution_times });
        streams.into_iter().map(answer).collect()
    }

    /// Runs the requests as one batch.
    pub(crate) fn run(&mut self, requests: Vec<Request>) -> Vec<Result<Response, Error>> {
        self.run_after(requests, |_| {})
    }

    /// The answer to one picture, for a model without a batch dimension.
    pub(crate) fn picture(&mut self, encoded: &[u8]) -> Result<Response, Error> {
        self.run(vec![request(&[1], &[encoded])]).remove(0)
    }

    /// The pixels of one picture.
    pub(crate) fn pixels(&mut self, encoded: &[u8]) -> Vec<u8> {
        bytes_of(&self.picture(encoded).unwrap()).to_vec()
    }

    /// The text of the error for one picture.
    pub(crate) fn error(&mut self, encoded: &[u8]) -> String {
        self.picture(encoded).unwrap_err().with_code()
    }
}

fn answer(mut stream: ResponseStream) -> Result<Response, Error> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match stream.poll_item(&mut context) {
        std::task::Poll::Ready(Some(item)) => item.result,
        other => panic!("every request is answered when the batch has run: {other:?}"),
    }
}

/// A request with those pictures.
pub(crate) fn request(shape: &[i64], pictures: &[&[u8]]) -> Request {
    let elements = pictures.iter().flat_map(|one| [&(one.len() as u32).to_le_bytes()[..], one].concat());
    let data: Vec<u8> = elements.collect();
    let tensor = Tensor::new(Name::new("ENCODED"), DataType::Bytes, shape.into(), data);
    Request { inputs: RequestInputs::Tensors(vec![tensor]), ..Request::default() }
}

pub(crate) fn bytes_of(response: &Response) -> Bytes {
    response.output("PIXELS").unwrap().host().unwrap().contiguous()
}

pub(crate) fn floats_of(response: &Response) -> Vec<f32> {
    bytes_of(response).chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect()
}

/// A picture from its pixels.
pub(crate) fn rgb(width: u32, pixels: &[[u8; 3]]) -> RgbImage {
    let raw = pixels.as_flattened().to_vec();
    RgbImage::from_raw(width, pixels.len() as u32 / width, raw).unwrap()
}

pub(crate) fn png(picture: impl Into<DynamicImage>) -> Vec<u8> {
    encoded(picture, ImageFormat::Png)
}

pub(crate) fn jpeg(picture: impl Into<DynamicImage>) -> Vec<u8> {
    encoded(picture, ImageFormat::Jpeg)
}

fn encoded(picture: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    picture.into().write_to(&mut file, format).unwrap();
    file.into_inner()
}

/// A picture with as much detail as possible: no two neighbours are equal.
pub(crate) fn detailed(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let value = x.wrapping_mul(97) ^ y.wrapping_mul(61);
        Rgb([value as u8, (value >> 3) as u8, (x * y) as u8])
    })
}

/// Parts of a PNG file that the encoder cannot write.
pub(crate) struct RawPng(Vec<u8>);

impl RawPng {
    /// The signature and the header. `color_type` is that of the format: 3 is a palette.
    pub(crate) fn new(width: u32, height: u32, color_type: u8) -> Self {
        let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, color_type, 0, 0, 0]].concat();
        Self(b"\x89PNG\r\n\x1a\n".to_vec()).chunk(b"IHDR", &header)
    }

    pub(crate) fn chunk(mut self, kind: &[u8; 4], content: &[u8]) -> Self {
        let checked = [kind, content].concat();
        self.0.extend((content.len() as u32).to_be_bytes());
        self.0.extend(&checked);
        self.0.extend(crc(&checked).to_be_bytes());
        self
    }

    /// The pixels, each line after its filter byte, without compression.
    pub(crate) fn pixels(self, lines: &[u8]) -> Self {
        let len = lines.len() as u16;
        let mut stream = vec![0x78, 1, 1];
        stream.extend(len.to_le_bytes());
        stream.extend((!len).to_le_bytes());
        stream.extend(lines);
        stream.extend(adler(lines).to_be_bytes());
        self.chunk(b"IDAT", &stream)
    }

    pub(crate) fn end(self) -> Vec<u8> {
        self.chunk(b"IEND", &[]).0
    }
}

fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, &byte: &u8| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    };
    !bytes.iter().fold(!0, step)
}

fn adler(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), &byte| {
        let a = (a + u32::from(byte)) % 65521;
        (a, (b + a) % 65521)
    });
    b << 16 | a
}

/// The JPEG file with EXIF data that give an orientation, and a preview that has an end of its own.
pub(crate) fn turned(jpeg: &[u8], orientation: u8) -> Vec<u8> {
    let tiff = [
        &b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0"[..],
        &[orientation],
        &b"\0\0\0\0\0\0\xff\xd8\xff\xd9"[..],
    ]
    .concat();
    let len = (tiff.len() as u16 + 2).to_be_bytes();
    [&jpeg[..2], &[0xff, 0xe1], &len, &tiff, &jpeg[2..]].concat()
}
