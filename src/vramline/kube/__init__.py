"""The only room that touches the API server: client, reflector, lease, events.

What can be decided without a server (which change an event is, who leads, which event is a repetition) is a
plain function or object without I/O; the loops around them only carry messages.
"""
