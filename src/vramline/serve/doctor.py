"""`vramline doctor`: whether a cluster is as Vramline needs it, and what to do where it is not."""

import asyncio
import base64
import binascii
import datetime as dt
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramline.kube.certificates import trusted_until
from vramline.kube.client import KubeClient
from vramline.kube.failures import ApiError, DeniedError, NotFoundError
from vramline.kube.objects import LEASES, LeaseObject, ObjectKey
from vramline.probes.options import ProbeOptions
from vramline.serve.findings import Finding, Level, examine_state
from vramline.serve.identity import WEBHOOK_CONFIGURATION
from vramline.serve.local_cards import examine_local_cards
from vramline.serve.reading import read_cluster
from vramline.serve.runtimes import judge_runtimes, read_runtimes
from vramline.settings import Settings
from vramline.wire.times import seconds_of

__all__ = ["Installation", "examine_cluster"]

_OLDEST = (1, 30)
_SOON = dt.timedelta(days=14)
_APPLY = "vramline install … | kubectl apply -f -"
_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
_PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ValidatingAdmissionPolicy": f"{_REGISTRATION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_REGISTRATION}/validatingadmissionpolicybindings",
}

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Installation:
    """What should be there: the objects that `vramline install` prints for a namespace."""

    objects: tuple[Object, ...]
    namespace: str

    def named(self, kind: str) -> list[str]:
        """Return the names of all objects of a kind."""
        return [each["metadata"]["name"] for each in self.objects if each["kind"] == kind]


async def examine_cluster(client: KubeClient, settings: Settings, wanted: Installation) -> list[Finding]:
    """Look at everything; a check that cannot be made is a finding too. Raises where nobody answers."""
    found = [_judge_version(await client.version())]
    checks: tuple[Callable[[KubeClient, Installation], AsyncIterator[Finding]], ...] = (
        _check_objects,
        _check_webhook,
        _check_leases,
        _check_rights,
    )
    for check in checks:
        try:
            found += [each async for each in check(client, wanted)]
        except ApiError as error:
            found.append(
                _warning(check.__name__.removeprefix("_check_"), f"could not be checked: {error}", "")
            )
    reading = await read_cluster(client, settings)
    found += examine_state(reading, max_age_s=settings.observation_max_age_s)
    found += judge_runtimes(await read_runtimes(client, settings, reading))
    library = Path(settings.nvml_library) if settings.nvml_library else None
    options = ProbeOptions(library=library, host_reserve=settings.host_reserve)
    return [*found, *await asyncio.to_thread(lambda: list(examine_local_cards(options)))]


def _judge_version(version: str) -> Finding:
    numbers = re.match(r"v?(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) >= _OLDEST:
        return _ok("version", f"Kubernetes {version}")
    return _problem("version", f"Kubernetes {version} is too old", "upgrade to 1.30 or newer")


async def _check_objects(client: KubeClient, wanted: Installation) -> AsyncIterator[Finding]:
    for kind, path in _PATHS.items():
        missing, names = [], wanted.named(kind)
        for name in names:
            stored = await _get(client, f"{path}/{name}")
            if stored is None or (kind == "CustomResourceDefinition" and not _is_established(stored)):
                missing.append(name)
        if missing:
            yield _problem("objects", f"{kind} missing or not in force: {', '.join(missing)}", _APPLY)
        else:
            yield _ok("objects", f"{len(names)} {kind} objects are there")


def _is_established(crd: Object) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


async def _check_webhook(client: KubeClient, wanted: Installation) -> AsyncIterator[Finding]:
    stored = await _get(client, f"{_REGISTRATION}/mutatingwebhookconfigurations/{WEBHOOK_CONFIGURATION}")
    if stored is None:
        yield _problem("webhook", "there is no MutatingWebhookConfiguration vramline", _APPLY)
        return
    for webhook in stored.get("webhooks") or ():
        yield _judge_webhook(webhook, wanted.namespace)


def _judge_webhook(webhook: Object, namespace: str) -> Finding:
    name, called = webhook["name"], webhook["clientConfig"]
    service = called.get("service")
    if service is not None and service["namespace"] != namespace:
        message = f"{name} calls the namespace {service['namespace']}, not {namespace}"
        return _problem("webhook", message, "name that one with --namespace, or apply the manifests again")
    try:
        until = trusted_until(base64.b64decode(called.get("caBundle") or "", validate=True))
    except binascii.Error:
        until = None
    if until is None:
        message = f"{name} has no caBundle that can be read: every call fails, and GPU pods are not changed"
        return _problem("webhook", message, "let a scheduler run with --webhook-listen: it writes the bundle")
    left = until - dt.datetime.now(dt.UTC)
    if left < dt.timedelta(0):
        message = f"what {name} trusts expired at {until:%Y-%m-%d}"
        return _problem("webhook", message, "look at the scheduler's log for certificate.delayed")
    if left < _SOON:
        message = f"what {name} trusts expires at {until:%Y-%m-%d} and was not renewed"
        return _warning("webhook", message, "look at the scheduler's log for certificate.delayed")
    return _ok("webhook", f"{name} is trusted until {until:%Y-%m-%d}")


async def _check_leases(client: KubeClient, wanted: Installation) -> AsyncIterator[Finding]:
    holders = {}
    for name, program in (("vramline-scheduler", "Vramline"), ("vramline-kube-scheduler", "kube-scheduler")):
        try:
            lease = (await client.get(LEASES, ObjectKey(name, wanted.namespace))).value
        except NotFoundError:
            message = f"no {program} has ever led: there is no Lease {wanted.namespace}/{name}"
            yield _problem("leader", message, "look at the pods of the Deployment vramline-scheduler")
            continue
        holders[program] = lease.spec.holder_identity or ""
        yield _judge_lease(program, lease)
    ours, theirs = (holders.get(each, "").split("_")[0] for each in ("Vramline", "kube-scheduler"))
    if ours and theirs and ours != theirs:
        yield _warning(
            "leader",
            f"Vramline leads in {ours}, kube-scheduler in {theirs}: binds are refused meanwhile",
            "nothing, if it lasts seconds; else look whether --follow-lease names kube-scheduler's Lease",
        )


def _judge_lease(program: str, lease: LeaseObject) -> Finding:
    holder, renewed = lease.spec.holder_identity, lease.spec.renew_time
    if not holder:
        return _problem(
            "leader", f"no {program} leads", "look at the pods of the Deployment vramline-scheduler"
        )
    age = None if renewed is None else time.time() - seconds_of(renewed)
    if age is None or age > 2 * (lease.spec.lease_duration_seconds or 15):
        since = "" if age is None else f" for {age:,.0f} s"
        message = f"{program} {holder} has not renewed its Lease{since}"
        return _problem("leader", message, "look at the pods of the Deployment vramline-scheduler")
    return _ok("leader", f"{program} leads: {holder}")


async def _check_rights(client: KubeClient, wanted: Installation) -> AsyncIterator[Finding]:
    """Ask about every right of the shipped roles for the scheduler's account, or else for ourselves."""
    account = f"system:serviceaccount:{wanted.namespace}:vramline-scheduler"
    user, refused = account, []
    rights = list(_rights(wanted))
    for right in rights:
        try:
            allowed = await _may(client, right, user)
        except DeniedError:
            user = ""  # who may not ask about others may always ask about oneself
            allowed = await _may(client, right, user)
        if not allowed:
            refused.append(f"{right['verb']} {right['resource']}")
    who = account if user else "this user"
    if refused:
        message = f"{who} lacks {len(refused)} of {len(rights)} rights: {', '.join(sorted(set(refused)))}"
        level = Level.PROBLEM if user else Level.WARNING
        advice = _APPLY if user else "run doctor as an administrator to see the scheduler's own rights"
        yield Finding(level=level, check="rights", message=message, advice=advice)
    else:
        yield _ok("rights", f"{who} has all {len(rights)} rights that are needed")


def _rights(wanted: Installation) -> Iterator[Object]:
    """Yield the shipped roles of the scheduler, right by right."""
    for role in wanted.objects:
        if role["kind"] in {"Role", "ClusterRole"} and role["metadata"]["name"] == "vramline-scheduler":
            namespace = role["metadata"].get("namespace", "")
            for rule in role["rules"]:
                for resource in rule["resources"]:
                    for name in rule.get("resourceNames", [""]):
                        for verb in rule["verbs"]:
                            yield {
                                "group": rule["apiGroups"][0],
                                "resource": resource,
                                "name": name,
                                "verb": verb,
                                "namespace": namespace,
                            }


async def _may(client: KubeClient, right: Object, user: str) -> bool:
    resource, _, subresource = right["resource"].partition("/")
    attributes = {**right, "resource": resource, "subresource": subresource}
    spec: Object = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    if user:
        spec["user"] = user
    answer = await client.ask(
        f"/apis/authorization.k8s.io/v1/{kind.lower()}s",
        {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec},
    )
    status = answer.get("status")
    return isinstance(status, dict) and status.get("allowed") is True


async def _get(client: KubeClient, path: str) -> Object | None:
    try:
        return dict(await client.look(path))
    except NotFoundError:
        return None


def _ok(check: str, message: str) -> Finding:
    return Finding(level=Level.OK, check=check, message=message)


def _problem(check: str, message: str, advice: str) -> Finding:
    return Finding(level=Level.PROBLEM, check=check, message=message, advice=advice)


def _warning(check: str, message: str, advice: str) -> Finding:
    return Finding(level=Level.WARNING, check=check, message=message, advice=advice)
