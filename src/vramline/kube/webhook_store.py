"""Where our servers' identity is kept, a Secret, and where others are told whom to trust.

API servers find that in the webhook's configuration, the nodes' agents in a ConfigMap. All objects are there
already; this only fills them. Every failure of the API server is a reason to try again later: what is served
meanwhile stays valid for weeks.
"""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from vramline.errors import TransientError
from vramline.kube.client import KubeClient, Patch
from vramline.kube.failures import ApiError, ConflictError
from vramline.kube.objects import Body, ObjectKey, Resource

__all__ = ["WebhookStore"]

_Object = dict[str, Any]


def _decode(raw: Body) -> _Object:
    return msgspec.json.decode(raw, type=_Object)


SECRETS: Resource[_Object] = Resource(kind="Secret", plural="secrets", namespaced=True, decode=_decode)
CONFIGURATIONS: Resource[_Object] = Resource(
    group="admissionregistration.k8s.io",
    kind="MutatingWebhookConfiguration",
    plural="mutatingwebhookconfigurations",
    decode=_decode,
)
CONFIG_MAPS: Resource[_Object] = Resource(
    kind="ConfigMap", plural="configmaps", namespaced=True, decode=_decode
)
_BUNDLE = "ca.crt"


class WebhookStore:
    """The identity of our servers at the API server."""

    def __init__(
        self,
        client: KubeClient,
        *,
        secret: ObjectKey,
        configuration: ObjectKey | None = None,
        bundle: ObjectKey | None = None,
    ) -> None:
        """`configuration`: of the webhook, where one is served; `bundle`: the agents' ConfigMap, likewise."""
        self._client = client
        self._secret = secret
        self._configuration = configuration
        self._bundle = bundle

    async def read(self) -> tuple[dict[str, bytes], str]:
        """Return the data of the Secret and its version."""
        async with _as_transient():
            stored = await self._client.get(SECRETS, self._secret)
        data = {name: base64.b64decode(text) for name, text in (stored.value.get("data") or {}).items()}
        return data, str(stored.version)

    async def write(self, data: dict[str, bytes], version: str) -> bool:
        """Replace the data if the Secret is still at this version; False: it is not."""
        async with _as_transient():
            stored = await self._client.get(SECRETS, self._secret)
            if str(stored.version) != version:
                return False
            encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
            try:
                await self._client.update(SECRETS, self._secret, {**stored.value, "data": encoded})
            except ConflictError:
                return False
        return True

    async def publish(self, trusted: bytes) -> None:
        """Make API servers and agents trust exactly this bundle, unless they do already."""
        async with _as_transient():
            if self._configuration is not None:
                await self._tell_api_servers(self._configuration, base64.b64encode(trusted).decode())
            if self._bundle is not None:
                await self._tell_agents(self._bundle, trusted.decode())

    async def _tell_api_servers(self, configuration: ObjectKey, bundle: str) -> None:
        stored = await self._client.get(CONFIGURATIONS, configuration)
        changes: list[_Object] = []
        for number, webhook in enumerate(stored.value.get("webhooks") or ()):
            path = f"/webhooks/{number}"
            if webhook["clientConfig"].get("caBundle") != bundle:
                changes += [
                    {"op": "test", "path": f"{path}/name", "value": webhook["name"]},
                    {"op": "add", "path": f"{path}/clientConfig/caBundle", "value": bundle},
                ]
        if changes:
            patch = Patch(changes, "application/json-patch+json")
            await self._client.patch(CONFIGURATIONS, configuration, patch)

    async def _tell_agents(self, key: ObjectKey, bundle: str) -> None:
        stored = await self._client.get(CONFIG_MAPS, key)
        if (stored.value.get("data") or {}).get(_BUNDLE) != bundle:
            await self._client.patch(CONFIG_MAPS, key, Patch({"data": {_BUNDLE: bundle}}))


@asynccontextmanager
async def _as_transient() -> AsyncIterator[None]:
    try:
        yield
    except ApiError as error:
        raise TransientError(str(error)) from error
