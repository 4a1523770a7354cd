"""Which API server, and as whom: kubeconfig files made up for the test."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from vramline.errors import RequestError
from vramline.kube.target import ExecPlugin, PemPair, find_target


def config(user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "current-context": "x",
    }


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_server_and_namespace_come_from_the_current_context(tmp_path: Path) -> None:
    target = find_target({}, kubeconfig=write(tmp_path / "config", config({"token": "t"})))

    assert (target.cluster.server, target.namespace, target.user.token) == ("https://api:6443", "team", "t")


def test_another_context_may_be_named(tmp_path: Path) -> None:
    content = config()
    content["contexts"].append({"name": "y", "context": {"cluster": "c", "user": "u"}})
    path = write(tmp_path / "config", content)

    assert find_target({}, kubeconfig=path, context="y").namespace == "default"


def test_relative_paths_start_at_the_file(tmp_path: Path) -> None:
    user = {"client-certificate": "me.crt", "client-key": "/etc/me.key", "tokenFile": "token"}
    path = write(tmp_path / "deep/config", config(user, {"certificate-authority": "ca.crt"}))
    target = find_target({}, kubeconfig=path)

    assert target.cluster.authority == tmp_path / "deep/ca.crt"
    assert target.user.certificate == PemPair(tmp_path / "deep/me.crt", Path("/etc/me.key"))
    assert target.user.token_file == tmp_path / "deep/token"


def test_what_is_written_inline_wins_over_a_file(tmp_path: Path) -> None:
    data = base64.b64encode(b"pem").decode()
    cluster = {"certificate-authority": "ca.crt", "certificate-authority-data": data}

    assert (
        find_target({}, kubeconfig=write(tmp_path / "config", config({}, cluster))).cluster.authority
        == b"pem"
    )


def test_a_command_is_found_beside_its_file_or_by_name(tmp_path: Path) -> None:
    entry = {
        "command": "./login",
        "args": ["-q"],
        "env": [{"name": "REGION", "value": "eu"}],
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "provideClusterInfo": True,
        "installHint": "install\n  login",
        "interactiveMode": "Never",
    }
    target = find_target({}, kubeconfig=write(tmp_path / "config", config({"exec": entry})))
    by_name = find_target({}, kubeconfig=write(tmp_path / "other", config({"exec": {"command": "login"}})))

    assert target.user.plugin == ExecPlugin(
        api_version="client.authentication.k8s.io/v1beta1",
        command=str(tmp_path / "login"),
        arguments=("-q",),
        environment=(("REGION", "eu"),),
        wants_cluster=True,
        hint="install login",
    )
    assert by_name.user.plugin is not None
    assert by_name.user.plugin.command == "login"


def test_impersonation_becomes_headers(tmp_path: Path) -> None:
    user = {"token": "t", "as": "them", "as-uid": "7", "as-groups": ["a", "b"]}

    assert find_target({}, kubeconfig=write(tmp_path / "config", config(user))).user.headers == (
        ("Impersonate-User", "them"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
    )


def test_of_several_files_the_first_wins(tmp_path: Path) -> None:
    first = {"users": [{"name": "u", "user": {"token": "first"}}], "current-context": "x"}
    second = config({"token": "second"}) | {"current-context": "nowhere"}
    paths = [write(tmp_path / "1", first), tmp_path / "missing", write(tmp_path / "2", second)]
    target = find_target({"KUBECONFIG": ":".join(map(str, paths))})

    assert (target.user.token, target.cluster.server) == ("first", "https://api:6443")


def test_inside_a_pod_the_service_account_counts(tmp_path: Path) -> None:
    for name in ("token", "ca.crt"):
        write(tmp_path / "sa" / name, name)
    write(tmp_path / "sa/namespace", "system\n")
    write(tmp_path / "home/.kube/config", config())
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    target = find_target(environment, home=tmp_path / "home", service_account=tmp_path / "sa")

    assert target.cluster.server == "https://[fd00::1]:6443"
    assert (target.user.token_file, target.namespace) == (tmp_path / "sa/token", "system")


def test_outside_of_a_pod_the_home_folder_counts(tmp_path: Path) -> None:
    write(tmp_path / ".kube/config", config())

    assert (
        find_target({}, home=tmp_path, service_account=tmp_path / "sa").cluster.server == "https://api:6443"
    )


def test_where_there_is_nothing_it_says_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no cluster is configured.*--kubeconfig FILE"):
        find_target({}, home=tmp_path, service_account=tmp_path / "sa")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("{", "is not YAML", id="no YAML"),
        pytest.param({"clusters": 7}, "clusters = 7: must be a list", id="another type"),
        pytest.param(config() | {"current-context": ""}, "current-context: is not set", id="no context"),
        pytest.param(
            config() | {"current-context": "z"}, "contexts = 'z': is not there; accepted: x", id="a wrong one"
        ),
        pytest.param(config() | {"users": []}, "users = 'u': is not there", id="no such user"),
        pytest.param(
            config({}, {"server": "api:6443"}), "server = 'api:6443': is no address", id="no address"
        ),
        pytest.param(config({}, {"proxy-url": "http://p"}), "proxy-url = 'http://p': is not", id="a proxy"),
        pytest.param(config({"username": "me"}), "username: is not supported", id="a password"),
        pytest.param(config({"auth-provider": {}}), "auth-provider: is not supported", id="a provider"),
        pytest.param(config({"as-user-extra": {"a": ["b"]}}), "as-user-extra: is not", id="extra attributes"),
        pytest.param(config({"client-key": "k"}), "client-certificate: is missing", id="half a certificate"),
        pytest.param(config({"client-key-data": "%"}), "data is not base64", id="no base64"),
    ],
)
def test_a_wrong_file_is_explained(content: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError) as wrong:
        find_target({}, kubeconfig=write(tmp_path / "config", content))

    assert str(wrong.value).startswith(f"kubeconfig {tmp_path}/config")
    assert message in str(wrong.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"nothing: cannot be read: No such file"):
        find_target({}, kubeconfig=tmp_path / "nothing")
