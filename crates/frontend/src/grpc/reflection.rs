//! Server reflection: tools can call the server without its `.proto` files.
//!
//! The two versions of the service have the same messages. They differ in the description of the service itself.
use std::collections::HashMap;

use bytes::Bytes;
use tonic_reflection::pb::{
    v1::{
        self, ErrorResponse, ExtensionNumberResponse, FileDescriptorResponse, ListServiceResponse,
        ServerReflectionRequest, ServerReflectionResponse, ServiceResponse,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    },
    v1alpha,
};
use vocabulary::Error;

use super::{
    message::wire::{Malformed, WireReader, WireType},
    status::{Code, Status},
};

/// A version of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReflectionVersion {
    V1,
    V1Alpha,
}

/// What both versions of the service tell.
pub(crate) struct Reflection {
    v1: SchemaIndex,
    v1alpha: SchemaIndex,
}

/// The files of a schema, by what tools ask for. The files are encoded `google.protobuf.FileDescriptorProto`.
#[derive(Debug, Default)]
struct SchemaIndex {
    services: Vec<String>,
    by_name: HashMap<String, Bytes>,
    /// The file that defines a message, field, enum, value, service or method.
    by_symbol: HashMap<String, Bytes>,
}

impl Reflection {
    /// Describes every service of the endpoint.
    ///
    /// # Errors
    /// The descriptors cannot be read. That is an error of the build.
    pub(crate) fn new() -> Result<Self, Error> {
        let index = |own: &'static [u8]| {
            SchemaIndex::of([proto::FILE_DESCRIPTOR_SET, own])
                .map_err(|Malformed| Error::internal("the descriptors of the protocol cannot be read"))
        };
        Ok(Self { v1: index(v1::FILE_DESCRIPTOR_SET)?, v1alpha: index(v1alpha::FILE_DESCRIPTOR_SET)? })
    }

    /// The answer to a question.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the question asks nothing.
    pub(super) fn answer(
        &self,
        version: ReflectionVersion,
        question: ServerReflectionRequest,
    ) -> Result<ServerReflectionResponse, Status> {
        let index = match version {
            ReflectionVersion::V1 => &self.v1,
            ReflectionVersion::V1Alpha => &self.v1alpha,
        };
        let Some(query) = &question.message_request else {
            return Err(Status::new(Code::InvalidArgument, "invalid MessageRequest"));
        };
        Ok(ServerReflectionResponse {
            valid_host: question.host.clone(),
            message_response: Some(index.answer(query)),
            original_request: Some(question),
        })
    }
}

impl SchemaIndex {
    /// The index of encoded `google.protobuf.FileDescriptorSet`. Of files with the same name, the first one counts.
    fn of(sets: impl IntoIterator<Item = &'static [u8]>) -> Result<Self, Malformed> {
        let mut index = Self::default();
        for set in sets {
            let frames = [Bytes::from_static(set)];
            WireReader::new(&frames).fields(|reader, number, wire| {
                if number != 1 {
                    return reader.skip(number, wire);
                }
                index.add_file(&frames[0].slice_ref(&reader.bytes(wire)?))
            })?;
        }
        Ok(index)
    }

    fn add_file(&mut self, file: &Bytes) -> Result<(), Malformed> {
        let frames = [file.clone()];
        let reader = WireReader::new(&frames);
        let (name, package) = (text(&reader, 1)?, text(&reader, 2)?);
        if self.by_name.contains_key(&name) {
            return Ok(());
        }
        self.by_name.insert(name, file.clone());
        self.add_parts(reader, Descriptor::File, &package, file)
    }

    /// Adds what a part of a file defines. The names of its parts begin with `prefix`.
    fn add_parts(
        &mut self,
        mut part: WireReader<'_>,
        kind: Descriptor,
        prefix: &str,
        file: &Bytes,
    ) -> Result<(), Malformed> {
        part.fields(|reader, number, wire| {
            let Some(inner) = kind.inner(number) else { return reader.skip(number, wire) };
            let part = reader.part(wire)?;
            let mut name = text(&part, 1)?;
            if !prefix.is_empty() {
                name = format!("{prefix}.{name}");
            }
            if inner == Descriptor::Service {
                self.services.push(name.clone());
            }
            self.add_parts(part, inner, &name, file)?;
            self.by_symbol.insert(name, file.clone());
            Ok(())
        })
    }

    fn answer(&self, question: &MessageRequest) -> MessageResponse {
        let file = |found: Option<&Bytes>, what: &str, name: &str| match found {
            Some(file) => MessageResponse::FileDescriptorResponse(FileDescriptorResponse {
                file_descriptor_proto: vec![file.to_vec()],
            }),
            None => refused(Code::NotFound, format!("{what} '{name}' not found")),
        };
        match question {
            MessageRequest::FileByFilename(name) => file(self.by_name.get(name), "file", name),
            MessageRequest::FileContainingSymbol(name) => file(self.by_symbol.get(name), "symbol", name),
            // The schema has no extensions.
            MessageRequest::FileContainingExtension(_) => {
                refused(Code::NotFound, "extensions are not supported".to_owned())
            }
            MessageRequest::AllExtensionNumbersOfType(_) => {
                MessageResponse::AllExtensionNumbersResponse(ExtensionNumberResponse::default())
            }
            MessageRequest::ListServices(_) => {
                let service = self.services.iter().map(|name| ServiceResponse { name: name.clone() });
                MessageResponse::ListServicesResponse(ListServiceResponse { service: service.collect() })
            }
        }
    }
}

fn refused(code: Code, error_message: String) -> MessageResponse {
    MessageResponse::ErrorResponse(ErrorResponse { error_code: code as i32, error_message })
}

/// What a descriptor describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Descriptor {
    File,
    Message,
    Enum,
    Service,
    /// A field or choice of a message, a value of an enum, or a method of a service.
    Member,
}

impl Descriptor {
    /// What the field of that number contains. Source: google/protobuf/descriptor.proto.
    fn inner(self, field: u32) -> Option<Self> {
        Some(match (self, field) {
            (Self::File, 4) | (Self::Message, 3) => Self::Message,
            (Self::File, 5) | (Self::Message, 4) => Self::Enum,
            (Self::File, 6) => Self::Service,
            (Self::Message, 2 | 8) | (Self::Enum | Self::Service, 2) => Self::Member,
            _ => return None,
        })
    }
}

/// The text in a field of a message. Empty if the message has no such field.
fn text(message: &WireReader<'_>, field: u32) -> Result<String, Malformed> {
    let mut found = String::new();
    message.clone().fields(|reader, number, wire| {
        if number != field || wire != WireType::Delimited {
            return reader.skip(number, wire);
        }
        found = reader.text(wire)?.into_owned();
        Ok(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(version: ReflectionVersion, question: MessageRequest) -> MessageResponse {
        let question = ServerReflectionRequest { host: "h".to_owned(), message_request: Some(question) };
        let answer = Reflection::new().unwrap().answer(version, question.clone()).unwrap();
        assert_eq!((answer.valid_host, answer.original_request), ("h".to_owned(), Some(question)));
        answer.message_response.unwrap()
    }

    fn files(answer: MessageResponse) -> Vec<Vec<u8>> {
        match answer {
            MessageResponse::FileDescriptorResponse(files) => files.file_descriptor_proto,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_part_of_the_schema_leads_to_its_file() {
        let file = files(query(
            ReflectionVersion::V1,
            MessageRequest::FileContainingSymbol("inference.GRPCInferenceService".to_owned()),
        ));
        for symbol in [
            "inference.GRPCInferenceService.ModelInfer",
            "inference.ModelInferRequest",
            "inference.ModelInferRequest.InferInputTensor",
            "inference.ModelInferRequest.InferInputTensor.shape",
            "inference.InferParameter.parameter_choice",
        ] {
            let question = MessageRequest::FileContainingSymbol(symbol.to_owned());
            assert_eq!(files(query(ReflectionVersion::V1, question)), file, "{symbol}");
        }
        let question = MessageRequest::FileContainingSymbol("inference.DataType.TYPE_FP32".to_owned());
        let imported = files(query(ReflectionVersion::V1Alpha, question));
        assert_ne!(imported, file, "enums of the configuration are in a file of their own");
        let frames = [Bytes::from(imported.into_iter().next().unwrap())];
        let name = text(&WireReader::new(&frames), 1).unwrap();
        let question = MessageRequest::FileByFilename(name);
        assert_eq!(files(query(ReflectionVersion::V1, question)), [frames[0].to_vec()]);
    }

    #[test]
    fn each_version_lists_itself() {
        for (version, own) in [
            (ReflectionVersion::V1, "grpc.reflection.v1.ServerReflection"),
            (ReflectionVersion::V1Alpha, "grpc.reflection.v1alpha.ServerReflection"),
        ] {
            let MessageResponse::ListServicesResponse(listed) =
                query(version, MessageRequest::ListServices(String::new()))
            else {
                panic!("the services are listed");
            };
            let mut names: Vec<_> = listed.service.into_iter().map(|service| service.name).collect();
            names.sort();
            assert_eq!(names, ["grpc.health.v1.Health", own, "inference.GRPCInferenceService"]);
        }
    }

    #[test]
    fn what_does_not_exist_is_an_error_within_the_answer() {
        for (question, text) in [
            (MessageRequest::FileByFilename("x".to_owned()), "file 'x' not found"),
            (MessageRequest::FileContainingSymbol("y".to_owned()), "symbol 'y' not found"),
        ] {
            let MessageResponse::ErrorResponse(error) = query(ReflectionVersion::V1, question) else {
                panic!("an error");
            };
            assert_eq!((error.error_code, &*error.error_message), (5, text));
        }
    }
}
