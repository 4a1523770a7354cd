"""Which of several sources a client command asks."""

from pathlib import Path

import pytest

from vramline.cli.client import DEFAULT_SERVER, Client
from vramline.cli.source import ClusterSource, is_cluster_configured, open_source
from vramline.errors import RequestError

KUBECONFIG = """
clusters: [{name: c, cluster: {server: "https://cluster.example:6443"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any configuration."""
    for variable in ("KUBECONFIG", "VRAMLINE_SERVER", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def configure(home: Path) -> Path:
    path = home / ".kube" / "config"
    path.parent.mkdir()
    path.write_text(KUBECONFIG)
    return path


def test_without_anything_it_is_the_default_address(home: Path) -> None:
    assert home.exists()
    with open_source(None, None, "") as source:
        assert isinstance(source, Client)
        assert source.server == DEFAULT_SERVER
    assert not is_cluster_configured()


def test_a_kubeconfig_wins_over_the_default_address(home: Path) -> None:
    configure(home)

    assert isinstance(open_source(None, None, ""), ClusterSource)
    assert is_cluster_configured()


def test_the_variable_wins_over_a_kubeconfig(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(home)
    monkeypatch.setenv("VRAMLINE_SERVER", "127.0.0.1:1")

    with open_source(None, None, "") as source:
        assert isinstance(source, Client)
        assert source.server == "http://127.0.0.1:1"


def test_a_kubeconfig_that_is_named_wins_over_the_variable(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = configure(home)
    monkeypatch.setenv("VRAMLINE_SERVER", "127.0.0.1:1")

    assert isinstance(open_source(None, path, ""), ClusterSource)


def test_an_address_and_a_kubeconfig_at_once_are_a_mistake(home: Path) -> None:
    with pytest.raises(RequestError, match="together with a kubeconfig"):
        open_source("127.0.0.1:1", configure(home), "")


def test_a_kubeconfig_that_is_named_and_not_there_is_a_mistake(home: Path) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        open_source(None, home / "none", "")


def test_a_broken_kubeconfig_is_said_to_be_one_instead_of_asking_somebody_else(home: Path) -> None:
    configure(home).write_text("contexts: 7")

    with pytest.raises(RequestError, match="kubeconfig"):
        open_source(None, None, "")
