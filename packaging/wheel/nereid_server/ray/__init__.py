"""Servers as replicas of Ray Serve: `deployment` makes an application of them, and `add_servicer` gives it gRPC.

A replica owns a server, and passes on requests and answers as bytes: over HTTP, over gRPC and from handles.
"""

from __future__ import annotations

import os
import shlex
from typing import Any, Mapping, Sequence

from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingContext, RequestRouterConfig

from .messages import add_servicer as add_servicer
from .replica import Replica

# Work that waits for longer than this wants another replica.
_LONGEST_QUEUE_S = 0.2
# Replicas that are busier than this are not made fewer.
_BUSIEST = 0.6
_ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"


def deployment(
    model_repository: str | os.PathLike[str],
    options: Sequence[str] = (),
    *,
    sequences: bool = False,
    program: str | os.PathLike[str] | None = None,
    restart_wait_s: float = 30.0,
    **serve_options: Any,
) -> Application:
    """An application of Ray Serve whose replicas are servers.

    `model_repository` is a folder that each machine of the cluster has, or an address such as `s3://...`. `options` are those
    of the program, as on its command line. With `sequences` all requests of a session (header `x-session-id`, metadata of gRPC
    `session_id`) reach the same replica. `program` is used instead of the server of this package. Requests that come while a
    server starts again wait for `restart_wait_s` seconds.

    All further options are those of `ray.serve.deployment`. With `autoscaling_config`, `by_queued_work` decides.
    """
    # The server queues requests itself, and makes batches of those that it has. To stop takes 30 seconds at most, after 30 more
    # with HAProxy in front.
    merged: dict[str, Any] = {"name": "nereid", "max_ongoing_requests": 1000, "graceful_shutdown_timeout_s": 65.0}
    if sequences:
        # Ray's proxies keep the router that a deployment of this name had before.
        merged["name"] = "nereid-sequences"
        # Without fallback: no other replica has the sequence.
        kwargs = {"num_fallback_replicas": 0}
        merged["request_router_config"] = RequestRouterConfig(request_router_class=_ROUTER, request_router_kwargs=kwargs)
    merged |= serve_options
    if isinstance(merged.get("autoscaling_config"), Mapping):
        policy = {"policy_function": "nereid_server.ray:by_queued_work"}
        merged["autoscaling_config"] = {"look_back_period_s": 5.0, "policy": policy, **merged["autoscaling_config"]}
    bound = os.fspath(model_repository), list(options), program and os.fspath(program), restart_wait_s
    return serve.deployment(**merged)(serve.ingress()(Replica)).bind(*bound)


def application(arguments: dict[str, Any]) -> Application:
    """As `deployment`, with its arguments as `serve run nereid_server.ray:application NAME=VALUE ...` or a file gives them.

    `options` may be one text.
    """
    options = arguments.get("options", ())
    return deployment(**{**arguments, "options": shlex.split(options) if isinstance(options, str) else options})


def by_queued_work(context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
    """The policy of replicas: one more while work waits for too long, one less while fewer could do it all."""
    wanted = context.target_num_replicas
    if context.current_num_replicas < wanted:
        # The last one that was wanted is not there yet.
        return wanted, {}
    metrics = context.aggregated_metrics or {}
    queued = metrics.get("queued_work_seconds", {}).values()
    busy = metrics.get("instance_busy_ratio", {}).values()
    if queued and sum(queued) / len(queued) > _LONGEST_QUEUE_S:
        return wanted + 1, {}
    if len(busy) == wanted and wanted > 1 and sum(busy) <= _BUSIEST * (wanted - 1):
        return wanted - 1, {}
    return wanted, {}
