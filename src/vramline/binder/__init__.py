"""Keeps cards out of kubelet's hands while pods share them, and records every bind."""
