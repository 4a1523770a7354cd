"""A port that is picked now and used later must not be anybody's in between."""

import socket
from pathlib import Path

import pytest

from vramline.bench.ports import free_port


def test_outgoing_connections_are_not_given_it() -> None:
    first_of_theirs = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first_of_theirs < 32_768:
        pytest.skip("this machine gives nearly every port to outgoing connections")

    assert all(free_port() < first_of_theirs for _ in range(50))


def test_no_port_is_given_twice() -> None:
    given = [free_port() for _ in range(50)]

    assert len(set(given)) == 50


def test_one_that_somebody_listens_on_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", free_port() + 1)) as taken:
        assert free_port() != taken.getsockname()[1]
