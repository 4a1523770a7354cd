"""The one image of a real node, made from the machine's static busybox: every pod's, and the pause image."""

import gzip
import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path
from typing import Any

__all__ = ["IMAGE", "write_image"]

IMAGE = "localhost/vramline-busybox:test"
_EMPTY_FOLDERS = ("dev", "etc", "proc", "root", "sys", "tmp", "usr", "var")
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def write_image(path: Path, busybox: Path) -> None:
    """Write an OCI archive whose root is busybox and its links; without a command it sleeps."""
    layer = _layer(busybox)
    packed = gzip.compress(layer, compresslevel=1, mtime=0)
    blobs: dict[str, bytes] = {}
    configuration = {
        "architecture": _architecture(),
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _add_blob(blobs, "application/vnd.oci.image.config.v1+json", _encode(configuration)),
        "layers": [_add_blob(blobs, "application/vnd.oci.image.layer.v1.tar+gzip", packed)],
    }
    described = _add_blob(blobs, _MANIFEST, _encode(manifest))
    described["annotations"] = {
        "io.containerd.image.name": IMAGE,
        "org.opencontainers.image.ref.name": "test",
    }
    with tarfile.open(path, "w") as archive:
        _add_file(archive, "oci-layout", _encode({"imageLayoutVersion": "1.0.0"}))
        _add_file(archive, "index.json", _encode({"schemaVersion": 2, "manifests": [described]}))
        for digest, blob in blobs.items():
            _add_file(archive, f"blobs/sha256/{digest.removeprefix('sha256:')}", blob)


def _layer(busybox: Path) -> bytes:
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for folder in ("bin", *_EMPTY_FOLDERS):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        _add_file(archive, "bin/busybox", busybox.read_bytes(), mode=0o755)
        for name in names:
            if name != "busybox":
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
    return written.getvalue()


def _add_file(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _add_blob(blobs: dict[str, bytes], media_type: str, content: bytes) -> dict[str, Any]:
    digest = _digest(content)
    blobs[digest] = content
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _encode(value: object) -> bytes:
    return json.dumps(value).encode()


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
