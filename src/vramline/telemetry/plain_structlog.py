"""structlog without the library that draws tracebacks, which ours are too plain for: it loads twice as fast.

To be imported before anything that imports structlog.
"""

import sys

_drawing = sys.modules.get("rich")
sys.modules["rich"] = None  # type: ignore[assignment] # how Python is told that there is no such module
try:
    import structlog
finally:
    del sys.modules["rich"]
    if _drawing is not None:
        sys.modules["rich"] = _drawing

__all__ = ["structlog"]
