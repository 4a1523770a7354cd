"""Vramline: VRAM-true GPU scheduling for Kubernetes."""

__all__ = ["__version__"]

__version__ = "0.1.0"
