"""What a pod is called, also where a manifest leaves it out."""

from vramline.wire.kubernetes import ObjectMeta

__all__ = ["key_of", "namespace_of", "subject_of", "uid_of"]


def namespace_of(meta: ObjectMeta) -> str:
    """Return the namespace; a manifest without one means `default`."""
    return meta.namespace or "default"


def key_of(meta: ObjectMeta) -> str:
    """Return namespace/name."""
    return f"{namespace_of(meta)}/{meta.name or ''}"


def uid_of(meta: ObjectMeta) -> str:
    """Return the UID; a manifest without one gets a stable stand-in."""
    return meta.uid or f"uid:{key_of(meta)}"


def subject_of(meta: ObjectMeta) -> str:
    """Return how an error names the pod; one that is yet to get its name is `web-5d9c-*`."""
    if not meta.name and meta.generate_name:
        return f"Pod {namespace_of(meta)}/{meta.generate_name}*"
    return f"Pod {key_of(meta)}"
