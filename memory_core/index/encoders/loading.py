"""Loading a model once, in the background, and telling why it is not there.

Owns the thread, the wait and the memory of a failure; which model it is, its loader says. Promises that one load
runs at a time, that a failed one is tried again after a pause (a network may come back, a package may be
installed), and that nobody is kept waiting for one that has been loading for long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from memory_core.errors import EmbeddingFailed
from memory_core.model.waiting import waited

Model = TypeVar("Model")

#: A load that has taken so long is a download: searches no longer wait for it.
_PATIENCE_SECONDS = 20.0
_RETRY_SECONDS = 300.0


class BackgroundModel(Generic[Model]):
    """A model that is loaded by a thread of its own.

    Args:
        load: Loads and returns the model; raises EmbeddingFailed when it cannot.
        retry_seconds: How long a failure stands before loading is tried again.
    """

    def __init__(self, load: Callable[[], Model], *, retry_seconds: float = _RETRY_SECONDS) -> None:
        self._load = load
        self._retry_seconds = retry_seconds
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._running = False
        self._began = 0.0
        self._failed_at = 0.0
        self._model: Model | None = None
        self._failure: EmbeddingFailed | None = None

    @property
    def failure(self) -> EmbeddingFailed | None:
        """Why the model cannot be used; None while it loads, and when it is there."""
        return self._failure

    def start(self) -> None:
        """Begin loading, unless the model is there, being loaded, or failed a moment ago."""
        with self._lock:
            if self._running or self._model is not None:
                return
            if self._failure is not None and time.monotonic() < self._failed_at + self._retry_seconds:
                return
            self._running, self._began, self._failure = True, time.monotonic(), None
            self._settled.clear()
            threading.Thread(target=self._run, name="runebook-model", daemon=True).start()

    def ready(self, timeout_seconds: float = 0.0) -> bool:
        """Whether the model is there, waiting up to the timeout, but not for a load that takes very long."""
        if self._model is None:
            self.start()
            patience = self._began + _PATIENCE_SECONDS - time.monotonic()
            waited(self._settled.wait, max(0.0, min(timeout_seconds, patience)), "the model is being loaded")
        return self._model is not None

    def get(self) -> Model:
        """The model, however long it takes to load.

        Raises:
            EmbeddingFailed: If it cannot be loaded.
        """
        if self._model is None:
            self.start()
            self._settled.wait()
        if self._model is None:
            raise self._failure or EmbeddingFailed(
                "the model's loading ended unexpectedly.", hint="See standard error, and report it."
            )
        return self._model

    def _run(self) -> None:
        try:
            self._model = self._load()
        except EmbeddingFailed as error:
            self._failure = error
        finally:
            with self._lock:
                self._running = False
                self._failed_at = time.monotonic()
                if self._model is None and self._failure is None:
                    self._failure = EmbeddingFailed(
                        "the model's loading ended unexpectedly.", hint="See standard error, and report it."
                    )
                self._settled.set()
