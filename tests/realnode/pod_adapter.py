"""A webhook that changes pods of one namespace when they are made, so that a node of the tests can run them.

Who makes the pods, the product, knows nothing of it: it stands for the image that there is none of.
"""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from controlplane.plane import ControlPlane

__all__ = ["adapted_pods"]

_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
_NAME = "test-adapter"

Object = dict[str, Any]


@contextmanager
def adapted_pods(
    plane: ControlPlane, admin: httpx.Client, namespace: str, adapt: Callable[[Object], Object]
) -> Iterator[None]:
    """Have every new pod of a namespace changed by `adapt`, for the length of a `with` block.

    A reservation pod so changed is no longer of the form that a policy demands: that policy is unbound.
    """
    admin.delete(f"{_BINDINGS}/vramline-only-reservations")
    plane.authority.issue_server(_NAME)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(adapt))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(plane.folder / f"{_NAME}.crt", plane.folder / f"{_NAME}.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        admin.post(
            _CONFIGURATIONS, json=_configuration(plane, namespace, server.server_port)
        ).raise_for_status()
        yield
    finally:
        server.shutdown()
        thread.join(10.0)
        server.server_close()


def _configuration(plane: ControlPlane, namespace: str, port: int) -> Object:
    bundle = base64.b64encode((plane.folder / "ca.crt").read_bytes()).decode()
    webhook = {
        "name": "adapter.example.com",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": bundle},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
    }
    return {"metadata": {"name": _NAME}, "webhooks": [webhook]}


def _handler(adapt: Callable[[Object], Object]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers an AdmissionReview with the whole spec as it shall be."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            patch = [{"op": "replace", "path": "/spec", "value": adapt(request["object"])["spec"]}]
            answer = {
                "uid": request["uid"],
                "allowed": True,
                "patchType": "JSONPatch",
                "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
            }
            review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
            body = json.dumps(review).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
