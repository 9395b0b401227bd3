"""One connection on loopback between two processes that know the same key: frames of bytes, bounded, in time.

Owns the handshake and the framing. Both ends prove that they know the key, and neither sends it: a process that took
over the port of a dead server learns nothing from who calls, and is not believed. The listening end proves itself
first, and the two proofs are over both ends' random numbers and under different names, so that none can be sent back
or kept for later. Own code rather than ``multiprocessing.connection``: there the two proofs are alike, so a stranger
could have one caller answer for him to another, nothing has a time limit, and it costs twice as much to import.

Does not encrypt: what passes on loopback is read by nobody but the machine's owner. Imports the standard library only.
"""

from __future__ import annotations

import hmac
import os
import socket
import threading
import time
from contextlib import suppress

#: Changes with what is said on the line; ends with different ones do not talk.
PROTOCOL = 1
KEY_BYTES = 32
#: What a handshake may take with a process that is busy.
HANDSHAKE_SECONDS = 2.0

_MAGIC = b"runebook line %d\n" % PROTOCOL
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_LENGTH_BYTES = 4
_CHUNK_BYTES = 1 << 16
_LAST_WORD_SECONDS = 0.1


class ChannelBroken(Exception):
    """The other end is gone, late, a stranger, or says what cannot be read. Never leaves this package."""


class Channel:
    """Frames over a connected socket; sends are safe from many threads, receives from one.

    Args:
        connection: Connected; belongs to the channel from now on.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        with suppress(OSError):  # only faster
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, payload: bytes, deadline: float | None = None) -> None:
        """Send one frame, whole.

        Args:
            payload: Up to 4 GiB.
            deadline: On the monotonic clock; None keeps the patience of before.

        Raises:
            ChannelBroken: If it could not be sent; the channel is of no use then.
        """
        with self._sending:
            try:
                if deadline is not None:
                    self._socket.settimeout(_left(deadline))
                self._socket.sendall(len(payload).to_bytes(_LENGTH_BYTES, "big") + payload)
            except (OSError, OverflowError) as error:
                raise ChannelBroken(str(error)) from error

    def say_last(self, payload: bytes) -> None:
        """Send a short frame if that can be done at once, and hang up."""
        if self._sending.acquire(timeout=_LAST_WORD_SECONDS):
            try:
                self._socket.settimeout(_LAST_WORD_SECONDS)
                self._socket.sendall(len(payload).to_bytes(_LENGTH_BYTES, "big") + payload)
            except OSError:
                pass  # it has left, or does not listen: hanging up says enough
            finally:
                self._sending.release()
        self.close()

    def wait_for_ever(self) -> None:
        """From now on what has no deadline waits until the other end leaves."""
        with suppress(OSError):  # it has left: the next frame says so
            self._socket.settimeout(None)

    def receive(self, limit_bytes: int, deadline: float | None = None) -> bytes | None:
        """The next frame; None when the other end has said all it had to say.

        Args:
            limit_bytes: Of the payload; a longer one breaks the channel unread.
            deadline: On the monotonic clock, by which it must be here, whole; None keeps the patience of before.

        Raises:
            ChannelBroken: If it ends within a frame, is too long or late.
        """
        head = self._receive_exactly(_LENGTH_BYTES, deadline, may_end=True)
        if not head:
            return None
        length = int.from_bytes(head, "big")
        if length > limit_bytes:
            raise ChannelBroken(f"a frame of {length:,} bytes")
        return self._receive_exactly(length, deadline)

    def finish_sending(self) -> None:
        """Tell the other end that nothing more comes; what it says can still be received."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the connection, also for a thread that waits on it; safe to call twice."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def abandon(self) -> None:
        """In a forked child: let go of the socket and leave the connection to the parent."""
        self._socket.close()

    def gone(self) -> bool:
        """Whether the other end is known to have left altogether."""
        return self._polled("POLLHUP", "POLLERR")

    def said_all(self) -> bool:
        """Whether the other end is known to send nothing more, apart from what is still to be received."""
        return self._polled("POLLHUP", "POLLERR", "POLLRDHUP")

    def _polled(self, *names: str) -> bool:
        import select

        if not hasattr(select, "poll"):
            return False
        wanted = 0
        for name in names:
            wanted |= getattr(select, name, 0)
        poll = select.poll()
        with suppress(OSError, ValueError):  # closed meanwhile
            poll.register(self._socket, wanted)
            return any(event & wanted for _, event in poll.poll(0))
        return True

    def prove_as_caller(self, key: bytes, deadline: float) -> None:
        """The caller's part of the handshake.

        Raises:
            ChannelBroken: If the other end does not know the key, or not in time.
        """
        ours = os.urandom(_NONCE_BYTES)
        self._send_raw(_MAGIC + ours, deadline)
        answer = self._receive_exactly(_NONCE_BYTES + _PROOF_BYTES, deadline)
        theirs, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
        if not hmac.compare_digest(proof, _proof(key, b"listener", ours, theirs)):
            raise ChannelBroken("the other end does not know the key")
        self._send_raw(_proof(key, b"caller", ours, theirs), deadline)

    def prove_as_listener(self, key: bytes, deadline: float) -> None:
        """The listener's part of the handshake.

        Raises:
            ChannelBroken: If the other end does not know the key, or not in time.
        """
        greeting = self._receive_exactly(len(_MAGIC), deadline)
        if greeting != _MAGIC:
            raise ChannelBroken("the other end speaks something else")
        theirs, ours = self._receive_exactly(_NONCE_BYTES, deadline), os.urandom(_NONCE_BYTES)
        self._send_raw(ours + _proof(key, b"listener", theirs, ours), deadline)
        proof = self._receive_exactly(_PROOF_BYTES, deadline)
        if not hmac.compare_digest(proof, _proof(key, b"caller", theirs, ours)):
            raise ChannelBroken("the other end does not know the key")

    def _send_raw(self, data: bytes, deadline: float) -> None:
        try:
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(data)
        except OSError as error:
            raise ChannelBroken(str(error)) from error

    def _receive_exactly(self, length: int, deadline: float | None, *, may_end: bool = False) -> bytes:
        """``length`` bytes, or none at all where the other end may have ended."""
        parts: list[bytes] = []
        missing = length
        try:
            while missing:
                if deadline is not None:
                    self._socket.settimeout(_left(deadline))
                part = self._socket.recv(min(missing, _CHUNK_BYTES))
                if not part:
                    if may_end and missing == length:
                        return b""
                    raise ChannelBroken("the other end left")
                parts.append(part)
                missing -= len(part)
        except OSError as error:
            raise ChannelBroken(str(error)) from error
        return b"".join(parts)


def call(address: tuple[str, int], key: bytes, deadline: float) -> Channel:
    """A proven channel to who listens at ``address``.

    Args:
        address: On loopback.
        key: The one that was announced.
        deadline: On the monotonic clock.

    Raises:
        ChannelBroken: If nobody is there who knows the key, or not in time.
    """
    try:
        channel = Channel(socket.create_connection(address, timeout=_left(deadline)))
    except OSError as error:
        raise ChannelBroken(str(error)) from error
    try:
        channel.prove_as_caller(key, deadline)
    except ChannelBroken:
        channel.close()
        raise
    return channel


def _proof(key: bytes, role: bytes, callers: bytes, listeners: bytes) -> bytes:
    return hmac.digest(key, role + callers + listeners, "sha256")


def _left(deadline: float) -> float:
    """Seconds until ``deadline``; a timeout of 0 would mean not to wait at all."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("out of time")
    return left
