"""Names that a copy from another system wrote in their decomposed Unicode form.

URIs are composed (NFC). macOS and its archives write ``é`` as two characters (NFD); on a file system that tells the
two apart, such a file is not found under the name that its URI gives.
"""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path


def as_stored(root: Path, parts: tuple[str, ...]) -> Path:
    """The path below ``root`` as it is spelt on disk; composed where nothing is there.

    Args:
        root: An existing folder.
        parts: Composed names; of two files whose names differ in form alone the composed one counts.
    """
    path = root.joinpath(*parts)
    if all(part.isascii() for part in parts) or os.path.lexists(path):
        return path
    path = root
    for part in parts:
        composed, decomposed = path / part, path / unicodedata.normalize("NFD", part)
        path = decomposed if not os.path.lexists(composed) and os.path.lexists(decomposed) else composed
    return path
