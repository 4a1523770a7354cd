"""What the house tests look at: the files of the project."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "vramline"

_FOLDERS = (".ci", "docs", "src", "tests")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders or (SOURCE, ROOT / "tests") for path in folder.rglob("*.py"))


def project_files() -> list[Path]:
    """Every text of the project, found without git so that an unpacked archive can be tested too."""
    own = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    below = [path for folder in _FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    found = (path for path in own + below if "__pycache__" not in path.parts)
    return sorted(path for path in found if path.suffix != ".png")
