"""What a request asks for, and the responses to it."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils
from vllm.sampling_params import SamplingParams
from vllm.utils import random_uuid


def sampling_of(request):
    """The sampling parameters: an input, otherwise the parameters of the request."""
    given = pb_utils.get_input_tensor_by_name(request, "sampling_parameters")
    text = given.as_numpy()[0].decode() if given else request.parameters()
    return SamplingParams(**json.loads(text))


class Answer:
    def __init__(self, request):
        self.request = request
        self.id = random_uuid()
        self.prompt = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode()
        self.streams = self.flag("stream")
        self.repeats_prompt = not self.flag("exclude_input_in_output", default=self.streams)
        self.sent_characters = 0
        self.sent_tokens = 0

    def flag(self, name, default=False):
        given = pb_utils.get_input_tensor_by_name(self.request, name)
        return default if given is None else bool(given.as_numpy()[0])

    def next(self, output):
        """A response with what is new."""
        [completion] = output.outputs
        text, self.sent_characters = completion.text[self.sent_characters :], len(completion.text)
        tokens, self.sent_tokens = len(completion.token_ids) - self.sent_tokens, len(completion.token_ids)
        return self.response(output, [text], [completion.finish_reason], [tokens])

    def whole(self, output):
        """A response with everything, a text for each of the completions."""
        prompt = output.prompt if self.repeats_prompt else ""
        texts = [prompt + completion.text for completion in output.outputs]
        reasons = [completion.finish_reason for completion in output.outputs]
        return self.response(output, texts, reasons, [len(completion.token_ids) for completion in output.outputs])

    def response(self, output, texts, reasons, tokens):
        tensors = [pb_utils.Tensor("text_output", np.array([text.encode() for text in texts], np.object_))]
        if self.flag("return_finish_reason"):
            tensors.append(pb_utils.Tensor("finish_reason", np.array([str(reason) for reason in reasons], np.object_)))
        if self.flag("return_num_input_tokens"):
            tensors.append(pb_utils.Tensor("num_input_tokens", np.array(len(output.prompt_token_ids), np.uint32)))
        if self.flag("return_num_output_tokens"):
            tensors.append(pb_utils.Tensor("num_output_tokens", np.array(tokens, np.uint32)))
        return pb_utils.InferenceResponse(output_tensors=tensors)
