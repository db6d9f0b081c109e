"""NKeys: the Ed25519 keys by which a NATS broker knows its users, and the text in which they are written.

A seed is 32 secret bytes, a public key the 32 bytes that follow from it. Both are written in base32 with a
prefix that says what they are (``SU…`` the seed of a user, ``U…`` a user's public key) and a checksum.

Source: https://github.com/nats-io/nkeys (the encoding); Ed25519 is libsodium's, by PyNaCl.
"""

from __future__ import annotations

import base64
import binascii
import secrets

# Five bits are one letter in base32: 18 is S, 20 is U. A seed says both, and that it is a user's.
_USER = 20 << 3
_SEED = 18 << 3
_SEED_PREFIX = bytes([_SEED | _USER >> 5, (_USER & 31) << 3])
SEED_BYTES = 32


def new_seed() -> str:
    """A new secret key of a user."""
    return _encode(_SEED_PREFIX + secrets.token_bytes(SEED_BYTES))


def public_key(seed: str) -> str:
    """The public key of a user; brokers are configured with it.

    Raises:
        ValueError: The seed is not one of a user, or damaged.
    """
    from nacl.signing import SigningKey

    return _encode(bytes([_USER]) + bytes(SigningKey(_decode_seed(seed)).verify_key))


def sign(seed: str, nonce: str) -> str:
    """The signature of what a broker asks to be signed, in base64.

    Raises:
        ValueError: The seed is not one of a user, or damaged.
    """
    from nacl.signing import SigningKey

    return base64.b64encode(SigningKey(_decode_seed(seed)).sign(nonce.encode()).signature).decode()


def _encode(raw: bytes) -> str:
    # `crc_hqx` is the CRC-16/XMODEM that NKeys use; they write it with the low byte first.
    checksum = binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw + checksum).decode().rstrip("=")


def _decode_seed(seed: str) -> bytes:
    # NKeys are written without the padding that Python's decoder asks for.
    raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    content, checksum = raw[:-2], raw[-2:]
    if binascii.crc_hqx(content, 0).to_bytes(2, "little") != checksum:
        raise ValueError("its checksum does not match: a character is wrong or missing")
    if not content.startswith(_SEED_PREFIX) or len(content) != len(_SEED_PREFIX) + SEED_BYTES:
        raise ValueError("it is not the seed of a user (SU…)")
    return content[len(_SEED_PREFIX) :]
