"""Inference services: how much memory a model needs, where it fits, and the cluster as seed users see it."""
