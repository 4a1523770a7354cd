"""A proxy between a client and a real API server that goes wrong on command.

It ends TLS, reads every request and answer, and applies the first fault that matches. It runs in a thread of
its own, so that synchronous tests and other processes can use it too.
"""
