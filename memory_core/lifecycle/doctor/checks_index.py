"""Checks of the index: the catalog against ledger and files, vectors against the catalog, snapshots against both."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import Iterator

from memory_core.errors import StorageFailed
from memory_core.index.documents import (
    Document,
    is_searchable,
    is_session_log,
    log_documents,
    memory_document,
    session_growth,
)
from memory_core.index.encoders.embedder import PASSAGE_LIMIT_COUNT
from memory_core.index.following import numbered
from memory_core.index.vectors import log as vectors
from memory_core.index.vectors.chroma import collection_name
from memory_core.index.vectors.snapshot import Snapshots
from memory_core.index.waiting import passages_without_vector
from memory_core.lifecycle.doctor.examination import Subject, damage_of
from memory_core.lifecycle.doctor.findings import Finding, Severity, gathered
from memory_core.model.changes import text_sha256
from memory_core.model.daily_log import log_day
from memory_core.model.memory_file import parse
from memory_core.model.uri import MemoryUri
from memory_core.storage.file_store import INDEX_NAME

_REPLACED = "it is moved aside and built anew"
_AGAIN = "the index is built anew; vectors of unchanged texts are kept"
_COMPUTED = "they are computed anew"


def check_index(subject: Subject) -> Iterator[Finding]:
    """Findings on the catalog and what hangs on it."""
    path = subject.state / INDEX_NAME
    if subject.catalog is None:
        detail = "it cannot be read" if path.exists() else "there is none yet; the first search builds it"
        yield Finding("index", Severity.WARNING if path.exists() else Severity.NOTICE, INDEX_NAME, detail, _REPLACED)
        return
    try:
        damage = damage_of(subject.catalog)
        yield from gathered("index", Severity.ERROR, damage, "SQLite finds it damaged", _REPLACED)
        if damage:
            return
        behind = _behind(subject)
        if behind is not None:
            yield Finding("index", Severity.NOTICE, INDEX_NAME, behind, "it is brought up to date")
        else:
            yield from gathered(
                "documents",
                Severity.WARNING,
                _wrong_documents(subject),
                "its search entry does not say what it says",
                _AGAIN,
            )
        yield from _words(subject)
        yield from _vectors(subject)
        yield from check_snapshots(subject)
    except sqlite3.Error as error:
        yield Finding("index", Severity.ERROR, INDEX_NAME, f"it cannot be read: {error}", _REPLACED)


def check_snapshots(subject: Subject) -> Iterator[Finding]:
    """Findings on the Chroma folders; none of them is opened by Chroma."""
    assert subject.catalog is not None
    root = subject.state / "chroma"
    names = {
        collection_name(space, fingerprint): (space, fingerprint)
        for space, fingerprint in subject.catalog.execute("SELECT DISTINCT space, fingerprint FROM vectors")
    }
    log_id = vectors.log_id(subject.catalog)
    for home in sorted(root.iterdir()) if root.is_dir() else ():
        shown = f"chroma/{home.name}"
        snapshots = Snapshots(root, home.name)
        if home.name == "aside":
            if any(home.iterdir()):
                yield Finding("snapshots", Severity.NOTICE, shown, "damaged snapshots that were replaced are kept here")
            continue
        if home.name not in names:
            yield Finding(
                "snapshots", Severity.NOTICE, shown, "it is of a space or model without vectors", "it is deleted"
            )
            continue
        if snapshots.crashed() is not None:
            detail = "a process died while it opened this snapshot; the next one tries it in a process of its own"
            yield Finding("snapshots", Severity.NOTICE, shown, detail)
        manifest = snapshots.manifest()
        if manifest is None:
            if any(path.name != "opening" for path in home.iterdir()):
                detail = "it has no manifest that can be read; vectors are scanned until it is built anew"
                yield Finding("snapshots", Severity.WARNING, shown, detail, "it is deleted and built anew")
            continue
        problem = None
        try:
            snapshots.verify(manifest)
        except StorageFailed as error:
            problem = error.message
        row = vectors.by_seq(subject.catalog, [manifest.sealed_seq]).get(manifest.sealed_seq)
        if manifest.log_id != log_id or row is None or zlib.crc32(row.tobytes()) != manifest.sealed_crc32:
            problem = problem or "it is of another vector log"
        if problem is not None:
            yield Finding("snapshots", Severity.WARNING, shown, problem, "it is moved aside and built anew")


def _behind(subject: Subject) -> str | None:
    """Why documents cannot be compared now; None when the catalog has come as far as the ledger."""
    assert subject.catalog is not None
    meta = dict(subject.catalog.execute("SELECT name, value FROM meta"))
    if subject.ledger is None:
        return "there is no ledger to compare it with"
    ledger_id = subject.ledger.execute("SELECT value FROM meta WHERE name = 'ledger_id'").fetchone()
    newest = subject.ledger.execute("SELECT coalesce(max(seq), 0) FROM commits").fetchone()[0]
    if not meta.get("ledger_id"):
        return "it is empty yet; the first search fills it"
    if ledger_id is None or meta["ledger_id"] != ledger_id[0]:
        return "it follows another ledger; the next search builds it anew"
    if "filling" in meta:
        return "it is being built"
    if int(meta.get("seq", 0)) != newest:
        return f"it has followed up to commit {meta.get('seq', 0)} of {newest}; the next search goes on"
    return None


def _wrong_documents(subject: Subject) -> Iterator[str]:
    """Files whose documents are not what their text makes, and documents of no file."""
    assert subject.catalog is not None
    assert subject.ledger is not None
    rows = subject.ledger.execute("SELECT uri, sha256 FROM files")
    names = {uri: sha256 for uri, sha256 in rows if is_searchable(MemoryUri.parse(uri))}
    for uri, sha256 in names.items():
        place = MemoryUri.parse(uri)
        with contextlib.suppress(StorageFailed):
            text = subject.files.text(place)
            if text is not None and text_sha256(text) == sha256 and _differs(subject, place, text):
                yield uri
    for (uri,) in subject.catalog.execute("SELECT DISTINCT uri FROM documents UNION SELECT DISTINCT uri FROM passages"):
        if uri not in names and _is_gone(subject, uri):
            yield uri


def _differs(subject: Subject, uri: MemoryUri, text: str) -> bool:
    assert subject.catalog is not None
    documents = _documents(subject, uri, text)
    held = subject.catalog.execute("SELECT part, own FROM documents WHERE uri = ? ORDER BY part", (str(uri),))
    if held.fetchall() != [(document.part, document.own) for document in documents]:
        return not _is_moving(subject, uri)
    hashes = subject.catalog.execute(
        "SELECT part, content_sha256, text FROM passages WHERE uri = ? ORDER BY part", (str(uri),)
    )
    wanted = [
        (number, text_sha256(passage), passage)
        for document in documents
        for number, passage in enumerate(document.passages, document.part * PASSAGE_LIMIT_COUNT)
    ]
    return hashes.fetchall() != wanted and not _is_moving(subject, uri)


def _documents(subject: Subject, uri: MemoryUri, text: str) -> list[Document]:
    if is_session_log(uri):
        return list(session_growth(uri, [], list(numbered(text))).documents)
    if log_day(uri) is not None:
        return log_documents(uri, text)
    return [memory_document(uri, text, subject.registry.type_at(uri, parse(text).type_name))]


def _is_moving(subject: Subject, uri: MemoryUri) -> bool:
    """Whether a commit came while the documents were compared."""
    assert subject.ledger is not None
    text = subject.files.text(uri)
    row = subject.ledger.execute("SELECT sha256 FROM files WHERE uri = ?", (str(uri),)).fetchone()
    return row is None or text is None or text_sha256(text) != row[0] or _behind(subject) is not None


def _is_gone(subject: Subject, uri: str) -> bool:
    assert subject.ledger is not None
    row = subject.ledger.execute("SELECT 1 FROM files WHERE uri = ?", (uri,)).fetchone()
    return row is None and _behind(subject) is None


def _words(subject: Subject) -> Iterator[Finding]:
    """The full-text table: each document has its row, and the inverted index fits the rows."""
    assert subject.catalog is not None
    lacking = subject.catalog.execute(
        "SELECT count(*) FROM documents WHERE id NOT IN (SELECT id FROM words_docsize)"
    ).fetchone()[0]
    stray = subject.catalog.execute(
        "SELECT count(*) FROM words_docsize WHERE id > 0 AND id NOT IN (SELECT id FROM documents)"
    ).fetchone()[0]
    if lacking or stray:
        detail = f"{lacking:,} documents have no words and {stray:,} rows of words no document"
        yield Finding("words", Severity.WARNING, INDEX_NAME, detail, _AGAIN)
    problem = _inverted(subject.catalog)
    if problem is not None:
        yield Finding("words", Severity.WARNING, INDEX_NAME, f"the full-text index is damaged: {problem}", _AGAIN)


def _inverted(catalog: sqlite3.Connection) -> str | None:
    """What FTS5's own check says; it changes nothing, but is only to be had inside a transaction that writes."""
    catalog.execute("PRAGMA query_only=OFF")
    try:
        catalog.execute("BEGIN IMMEDIATE")
        catalog.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        return None if "locked" in str(error) else str(error)
    finally:
        if catalog.in_transaction:
            catalog.execute("ROLLBACK")
        catalog.execute("PRAGMA query_only=ON")
    return None


def _vectors(subject: Subject) -> Iterator[Finding]:
    catalog = subject.catalog
    assert catalog is not None
    unsound = vectors.unsound(catalog)
    if unsound:
        detail = f"{len(unsound):,} rows hold no vector: a wrong size, no number, or not of length 1"
        yield Finding("vectors", Severity.WARNING, INDEX_NAME, detail, _COMPUTED)
    for fingerprint, lacking in passages_without_vector(catalog).items():
        detail = f"{lacking:,} passages have no vector and do not wait for one"
        yield Finding("vectors", Severity.WARNING, fingerprint, detail, _COMPUTED)
    dead = catalog.execute(
        "SELECT count(*) FROM vectors v WHERE NOT EXISTS (SELECT 1 FROM passages p WHERE p.uri = v.uri "
        "AND p.part = v.part AND p.content_sha256 = v.content_sha256)"
    ).fetchone()[0]
    if dead:
        yield Finding(
            "vectors", Severity.OK, INDEX_NAME, f"{dead:,} vectors are of texts that are gone; rebuild drops them"
        )
    waiting = catalog.execute("SELECT count(*) FROM waiting").fetchone()[0]
    if waiting:
        yield Finding("vectors", Severity.NOTICE, INDEX_NAME, f"{waiting:,} vectors are still to be computed")
    models = [fingerprint for (fingerprint,) in catalog.execute("SELECT fingerprint FROM models ORDER BY last_used")]
    if subject.fingerprint is not None and models and subject.fingerprint not in models:
        detail = f"the model in use, {subject.fingerprint}, has no vectors yet; runebook embed computes them"
        yield Finding("model", Severity.NOTICE, models[-1], detail)
