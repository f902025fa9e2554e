# SPDX-License-Identifier: Apache-2.0
"""Bytes -> BLAKE2b digests: keys and checksums of what is kept on disk."""

from __future__ import annotations

try:  # what hashlib would give; importing that loads OpenSSL (4 ms)
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b


def digest(content: bytes) -> bytes:
    """32 bytes."""
    return blake2b(content, digest_size=32).digest()


def hexdigest(content: bytes) -> str:
    """40 hexadecimal figures."""
    return blake2b(content, digest_size=20).hexdigest()
