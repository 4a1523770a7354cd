"""Tokens and certificates that are replaced while we run."""

import asyncio
import json
import ssl
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from controlplane.certificates import Authority
from vramline.errors import RequestError
from vramline.kube.credentials import Credentials, CredentialsError, Presented, TlsContexts
from vramline.kube.target import Cluster, ExecPlugin, PemPair, User

CLUSTER = Cluster(server="https://api:6443")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def plugin(program: str, **more: object) -> User:
    version = "client.authentication.k8s.io/v1"
    entry = ExecPlugin(api_version=version, command=sys.executable, arguments=("-c", program), **more)  # type: ignore[arg-type]
    return User(plugin=entry)


def printing(status: dict[str, object]) -> str:
    return f"print({json.dumps({'kind': 'ExecCredential', 'status': status})!r})"


def test_a_token_file_is_read_again_every_minute(tmp_path: Path) -> None:
    file, clock = tmp_path / "token", Clock()

    async def ask() -> list[str]:
        credentials = Credentials(User(token_file=file), CLUSTER, clock=clock)
        seen = []
        for text, later in (("one\n", 0), ("two\n", 59), ("three\n", 2)):
            file.write_text(text)
            clock.now += later
            seen.append((await credentials.present()).token)
        return seen

    assert asyncio.run(ask()) == ["one", "one", "three"]


def test_a_token_that_was_refused_is_read_again_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"

    async def ask() -> str:
        credentials = Credentials(User(token_file=file), CLUSTER, clock=Clock())
        file.write_text("old")
        await credentials.present()
        file.write_text("new")
        credentials.forget()
        return (await credentials.present()).token

    assert asyncio.run(ask()) == "new"


@pytest.mark.parametrize("content", [None, "", " \n"], ids=["not there", "empty", "blank"])
def test_a_token_file_without_a_token_is_said(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)

    with pytest.raises(CredentialsError, match=r"token file .*/token"):
        asyncio.run(Credentials(User(token_file=tmp_path / "token"), CLUSTER).present())


def test_a_command_prints_a_certificate() -> None:
    user = plugin(printing({"clientCertificateData": "crt", "clientKeyData": "key"}))

    assert asyncio.run(Credentials(user, CLUSTER).present()) == Presented("", PemPair(b"crt", b"key"))


def test_a_command_is_told_the_cluster_and_its_environment(tmp_path: Path) -> None:
    program = (
        "import json, os; told = json.loads(os.environ['KUBERNETES_EXEC_INFO'])['spec']\n"
        "token = told['cluster']['server'] + ' ' + str(told['interactive']) + ' ' + os.environ['REGION']\n"
        "print(json.dumps({'status': {'token': token}}))"
    )
    (tmp_path / "ca.crt").write_text("ca")
    cluster = Cluster(server="https://api:6443", authority=tmp_path / "ca.crt")
    user = plugin(program, wants_cluster=True, environment=(("REGION", "eu"),))

    assert asyncio.run(Credentials(user, cluster).present()) == Presented("https://api:6443 False eu")


def test_a_command_is_run_again_before_its_token_expires() -> None:
    clock, wall = Clock(), Clock()
    program = (
        "import json, uuid\n"
        "status = {'token': uuid.uuid4().hex, 'expirationTimestamp': '1970-01-01T00:05:00Z'}\n"
        "print(json.dumps({'status': status}))"
    )

    async def ask() -> list[str]:
        credentials = Credentials(plugin(program), CLUSTER, clock=clock, wall=wall)
        seen = [(await credentials.present()).token]
        for later in (160, 20):  # it was asked at 100 of 300 seconds
            clock.now += later
            wall.now += later
            seen.append((await credentials.present()).token)
        return seen

    first, second, third = asyncio.run(ask())

    assert first == second
    assert second != third


def test_several_who_ask_at_once_run_the_command_once(tmp_path: Path) -> None:
    program = f"open({str(tmp_path / 'runs')!r}, 'a').write('.'); {printing({'token': 't'})}"

    async def ask() -> None:
        credentials = Credentials(plugin(program), CLUSTER)
        await asyncio.gather(*(credentials.present() for _ in range(5)))

    asyncio.run(ask())

    assert (tmp_path / "runs").read_text() == "."


@pytest.mark.parametrize(
    ("program", "message"),
    [
        pytest.param("import sys; sys.exit('log in first')", "ended with 1: log in first", id="it fails"),
        pytest.param("print('hello')", "did not print an ExecCredential", id="it chats"),
        pytest.param(printing({}), "neither a token nor a certificate", id="it has nothing"),
    ],
)
def test_a_command_that_does_not_help_is_said(program: str, message: str) -> None:
    with pytest.raises(CredentialsError, match=message):
        asyncio.run(Credentials(plugin(program), CLUSTER).present())


def test_a_command_that_is_not_there_comes_with_its_hint() -> None:
    entry = ExecPlugin(
        api_version="client.authentication.k8s.io/v1", command="no-such-command", hint="install it"
    )

    with pytest.raises(CredentialsError, match=r"no-such-command cannot be run: .*; install it"):
        asyncio.run(Credentials(User(plugin=entry), CLUSTER).present())


def test_a_command_of_an_unknown_version_is_refused() -> None:
    entry = ExecPlugin(api_version="client.authentication.k8s.io/v9", command="x")

    with pytest.raises(RequestError, match="apiVersion"):
        asyncio.run(Credentials(User(plugin=entry), CLUSTER).present())


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────────────
def test_settings_are_built_again_when_a_certificate_was_replaced(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    authority.issue_client("me", "me")
    contexts = TlsContexts(Cluster(server="https://api:6443", authority=tmp_path / "ca.crt"))
    certificate = PemPair(tmp_path / "me.crt", tmp_path / "me.key")
    first, again = contexts.current(certificate), contexts.current(certificate)
    authority.issue_client("next", "me")
    for suffix in ("crt", "key"):
        (tmp_path / f"next.{suffix}").rename(tmp_path / f"me.{suffix}")

    assert first is again
    assert contexts.current(certificate) is not first


def test_a_certificate_may_be_given_as_text(tmp_path: Path) -> None:
    Authority.create(tmp_path).issue_client("me", "me")
    pair = PemPair((tmp_path / "me.crt").read_bytes(), (tmp_path / "me.key").read_bytes())
    cluster = Cluster(server="https://api:6443", authority=(tmp_path / "ca.crt").read_bytes())

    assert TlsContexts(cluster).current(pair) is not None


def test_plain_http_needs_no_settings() -> None:
    assert TlsContexts(Cluster(server="http://127.0.0.1:8001")).current(None) is None


def test_only_who_asks_for_it_is_not_verified(tmp_path: Path) -> None:
    Authority.create(tmp_path)
    careful = TlsContexts(Cluster(server="https://api", authority=tmp_path / "ca.crt")).current(None)
    careless = TlsContexts(Cluster(server="https://api", insecure=True)).current(None)

    assert careful is not None
    assert careless is not None
    assert (careful.verify_mode, careful.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (careless.verify_mode, careless.check_hostname) == (ssl.CERT_NONE, False)


def test_a_key_with_a_password_is_refused_instead_of_asking_at_the_terminal(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    authority.issue_client("me", "me")
    key = serialization.load_pem_private_key((tmp_path / "me.key").read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )

    with pytest.raises(CredentialsError, match="protected by a password"):
        TlsContexts(CLUSTER).current(PemPair((tmp_path / "me.crt").read_bytes(), locked))


@pytest.mark.parametrize("content", [None, "no certificate"], ids=["not there", "something else"])
def test_an_authority_that_cannot_be_read_is_said(content: str | None, tmp_path: Path) -> None:
    if content:
        (tmp_path / "ca.crt").write_text(content)

    with pytest.raises(CredentialsError, match="certificates for https://api cannot be used"):
        TlsContexts(Cluster(server="https://api", authority=tmp_path / "ca.crt")).current(None)
