"""gRPC's own services: health, and the list of services that tools such as grpcurl ask for."""

import grpc as grpc_library
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICES = {"inference.GRPCInferenceService", "grpc.health.v1.Health"}


@pytest.fixture
def channel(server):
    with grpc_library.insecure_channel(server.grpc) as channel:
        yield channel


@pytest.mark.parametrize("service", ["", "inference.GRPCInferenceService", "anything"])
def test_health_is_that_of_the_server_whatever_service_is_asked_for(channel, service):
    answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_the_services_are_listed(channel):
    assert SERVICES <= set(ProtoReflectionDescriptorDatabase(channel).get_services())


def test_a_service_can_be_called_from_its_description_alone(channel):
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    service = pool.FindServiceByName("inference.GRPCInferenceService")
    method = service.FindMethodByName("ServerReady")
    request, response = (message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type))
    call = channel.unary_unary(f"/{service.full_name}/{method.name}", request.SerializeToString, response.FromString)
    assert call(request()).ready
