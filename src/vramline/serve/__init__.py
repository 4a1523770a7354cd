"""The scheduler as a process: API server in, extender, API and webhook out."""
