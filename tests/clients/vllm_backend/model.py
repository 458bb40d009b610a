"""A backend for vLLM that asks of the server what Triton's asks: the thread of an event loop, senders that another thread uses,
cancellation, metrics of an engine, and `utils` beside this file. Its inputs, outputs and texts are those of Triton's."""

import asyncio
import json
import os
import queue
import threading

import triton_python_backend_utils as pb_utils
from utils.answers import Answer, sampling_of
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from utils import engine_metrics

OPTIONAL_INPUTS = {
    "stream": "TYPE_BOOL",
    "sampling_parameters": "TYPE_STRING",
    "exclude_input_in_output": "TYPE_BOOL",
    "return_finish_reason": "TYPE_BOOL",
    "return_num_input_tokens": "TYPE_BOOL",
    "return_num_output_tokens": "TYPE_BOOL",
}
OUTPUTS = {"text_output": "TYPE_STRING", "finish_reason": "TYPE_STRING", "num_output_tokens": "TYPE_UINT32"}
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    @classmethod
    def auto_complete_config(cls, config):
        config.add_input({"name": "text_input", "data_type": "TYPE_STRING", "dims": [1]})
        for name, kind in OPTIONAL_INPUTS.items():
            config.add_input({"name": name, "data_type": kind, "dims": [1], "optional": True})
        for name, kind in OUTPUTS.items():
            config.add_output({"name": name, "data_type": kind, "dims": [-1]})
        config.add_output({"name": "num_input_tokens", "data_type": "TYPE_UINT32", "dims": [1]})
        config.set_model_transaction_policy({"decoupled": True})
        config.set_max_batch_size(0)
        return config

    def initialize(self, args):
        assert args["model_instance_kind"] == "MODEL"
        self.name = args["model_name"]
        config = json.loads(args["model_config"])
        assert pb_utils.using_decoupled_model_transaction_policy(config)
        with open(os.path.join(pb_utils.get_model_dir(), "model.json")) as file:
            self.engine_args = AsyncEngineArgs(**json.load(file))
        self.checks_health = self.is_set(config, "ENABLE_VLLM_HEALTH_CHECK")
        self.loggers = []
        if self.is_set(config, "REPORT_CUSTOM_METRICS") and not self.engine_args.disable_log_stats:
            labels = {"model": self.name, "version": args["model_version"]}
            self.loggers.append(engine_metrics.Factory(labels))
        self.start_engine()
        self.responses = queue.Queue()
        self.sending = threading.Thread(target=self.send_responses)
        self.sending.start()

    @staticmethod
    def is_set(config, name):
        return config["parameters"].get(name, {}).get("string_value", "").lower() == "true"

    def start_engine(self):
        started = queue.Queue()
        self.serving = threading.Thread(target=asyncio.run, args=(self.serve(started),))
        self.serving.start()
        failure = started.get()
        if failure:
            self.serving.join()
            raise failure

    async def serve(self, started):
        try:
            engine_config = self.engine_args.create_engine_config(UsageContext.OPENAI_API_SERVER)
            self.engine = AsyncLLM.from_vllm_config(engine_config, UsageContext.OPENAI_API_SERVER, self.loggers)
            self.loop, self.ended = asyncio.get_running_loop(), asyncio.Event()
        except Exception as failure:
            started.put(failure)
            return
        started.put(None)
        await self.ended.wait()
        self.engine.shutdown()

    def execute(self, requests):
        if self.checks_health and not self.is_healthy():
            for request in requests:
                self.refuse(request, "Model is unavailable due to unhealthy vLLM engine", pb_utils.TritonError.UNAVAILABLE)
            return None
        for request in requests:
            asyncio.run_coroutine_threadsafe(self.answer(request), self.loop)
        return None

    def is_healthy(self):
        try:
            asyncio.run_coroutine_threadsafe(self.engine.check_health(), self.loop).result()
        except RuntimeError as failure:
            pb_utils.Logger.log_error(f"[vllm] {failure}")
            pb_utils.unload_model(self.name)
            return False
        return True

    @staticmethod
    def refuse(request, text, code=None):
        error = pb_utils.TritonError(text) if code is None else pb_utils.TritonError(message=text, code=code)
        request.get_response_sender().send(pb_utils.InferenceResponse(error=error), flags=FINAL)

    async def answer(self, request):
        answer = Answer(request)
        sender = request.get_response_sender()
        try:
            sampling = sampling_of(request)
            async for output in self.engine.generate(answer.prompt, sampling, answer.id):
                if sender.is_cancelled():
                    await self.engine.abort(answer.id)
                    pb_utils.Logger.log_info("[vllm] Successfully cancelled the request")
                    cancelled = pb_utils.TritonError(message="Request was cancelled", code=pb_utils.TritonError.CANCELLED)
                    self.responses.put((sender, pb_utils.InferenceResponse(error=cancelled), FINAL))
                    return
                if answer.streams:
                    self.responses.put((sender, answer.next(output), FINAL if output.finished else 0))
            if not answer.streams:
                self.responses.put((sender, answer.whole(output), FINAL))
        except Exception as failure:
            self.refuse(request, f"Error generating stream: {failure}")

    def send_responses(self):
        while (item := self.responses.get()) is not None:
            sender, response, flags = item
            sender.send(response, flags)

    def finalize(self):
        self.loop.call_soon_threadsafe(self.ended.set)
        self.serving.join()
        self.responses.put(None)
        self.sending.join()
        pb_utils.Logger.log_info("[vllm] the engine has ended")
