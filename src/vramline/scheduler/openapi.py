"""What is served, in the words of OpenAPI, made from the routes themselves: none is left out."""

import re
from collections.abc import Iterable
from typing import Any

from starlette.routing import BaseRoute, Route

from vramline import __version__

__all__ = ["describe_routes"]

_TEXT = {"type": "string", "maxLength": 253}
_COUNT = {"type": "integer", "minimum": 1}
_TIME = {"type": "number"}
_CARDS = {**dict.fromkeys(("node", "model", "namespace", "state", "order"), _TEXT), "page": _COUNT}
_PODS = {**dict.fromkeys(("name", "namespace", "status"), _TEXT), "page": _COUNT}
_QUERIES: dict[str, dict[str, dict[str, Any]]] = {
    "/": _CARDS,
    "/live/cluster": _CARDS,
    "/pods": _PODS,
    "/live/pods": _PODS,
    "/what-if": {"pods": _COUNT, "mib": _COUNT, "gpus": _COUNT},
    "/series/{uuid}": {"hours": _COUNT},
    "/api/v1/decisions": {"limit": _COUNT, "pod": _TEXT, "before": _TIME},
    "/api/v1/gpus/{gpu}/history": {"since": _TIME, "until": _TIME, "points": _COUNT},
}
"""By path, what may follow `?`."""

_POD = {"type": "object", "properties": {"metadata": {"type": "object"}, "spec": {"type": "object"}}}
_NAMES = {"type": "array", "items": _TEXT}
_BODIES: dict[str, dict[str, Any]] = {
    "/filter": {"type": "object", "properties": {"Pod": _POD, "NodeNames": _NAMES}, "required": ["Pod"]},
    "/prioritize": {"type": "object", "properties": {"Pod": _POD, "NodeNames": _NAMES}, "required": ["Pod"]},
    "/bind": {
        "type": "object",
        "properties": {"PodName": _TEXT, "PodNamespace": _TEXT, "PodUID": _TEXT, "Node": _TEXT},
    },
    "/preempt": {
        "type": "object",
        "properties": {"Pod": _POD, "NodeNameToVictims": {"type": "object"}},
        "required": ["Pod"],
    },
    "/webhook": {"type": "object", "properties": {"request": {"type": "object"}}},
    "/api/v1/whatif": {
        "anyOf": [
            _POD,
            {
                "type": "object",
                "properties": {"pods": _COUNT, "mib": _COUNT, "gpus": _COUNT},
                "required": ["mib"],
            },
        ]
    },
}
"""By path, what is posted as JSON; not listed: an object of any kind."""

_FORMS = {"/what-if": "manifest", "/sign-in": "token"}
"""By path, the field of a form that is posted."""

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


def describe_routes(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """Return the description of all routes, for programs and for those who test them."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route):
            path = _PARAMETER.sub(r"{\1}", route.path)
            for method in sorted((route.methods or set()) - {"HEAD"}):
                paths.setdefault(path, {})[method.lower()] = _describe(path, method)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Vramline", "version": __version__},
        "paths": paths,
    }


def _describe(path: str, method: str) -> dict[str, Any]:
    told: dict[str, Any] = {
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in _PARAMETER.findall(path)
        ],
        "responses": {
            "2XX": {"description": "what was asked for"},
            "4XX": {"description": "what is wrong with the request, in one sentence"},
        },
    }
    if method == "GET":
        told["parameters"] += [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in _QUERIES.get(path, {}).items()
        ]
    if method == "POST":
        told["requestBody"] = {"required": True, "content": _content(path)}
    return told


def _content(path: str) -> dict[str, Any]:
    if path in _FORMS:
        form = {"type": "object", "properties": {_FORMS[path]: {"type": "string"}}}
        return {"application/x-www-form-urlencoded": {"schema": form}}
    return {"application/json": {"schema": _BODIES.get(path, {"type": "object"})}}
