"""The server of these tests leaves nothing behind, whoever listens when it stops."""

import socket

from dashboard.serving import serve
from dashboard.worlds import app_of, busy_cluster
from open_sockets import sockets_at


def test_a_page_that_is_open_when_the_server_stops_leaves_no_socket() -> None:
    with serve(app_of(busy_cluster())) as served:
        port = int(served.base.rpartition(":")[2])
        browser = socket.create_connection(("127.0.0.1", port))
        browser.sendall(b"GET /live/cluster HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert browser.recv(1 << 16).startswith(b"HTTP/1.1 200")

    with browser:
        assert sockets_at(port) == 0
