"""Text on its way to a terminal."""

__all__ = ["one_line", "printable"]


def printable(text: str) -> str:
    """Take out what would move the cursor or change colours: names come from other people's files."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def one_line(text: str) -> str:
    """Put a text on one printable line."""
    return printable(" ".join(text.split()))
