"""NKeys: the text of keys, and signatures that others verify."""

from __future__ import annotations

import base64

import pytest
from gym_runtime.bus import nkeys
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

# A key pair and a signature as nkeys-py 0.2.1 makes them; they are used nowhere.
SEED = "SUADMFX3PN5ITP7JG5NKXIIDKBWCAGRR3SCWOXH5TOCV3SFR2OCFRJDTCE"
PUBLIC = "UCJCCQE2YCWSWWV3WTZJA54QJ2VJZIX6S2HVZQ7BRM5OSUAEPQ3B47HK"
SIGNATURE = "p0XZJY7RrOFtYnwet12iZhJ7pi41aoMVSHqMpBT+R/tWT41qjfzL/Z8RwCjfL3E8SQ2Vyowsm6oDRHMc1CcBBQ=="


def test_keys_and_signatures_are_those_of_another_implementation() -> None:
    assert nkeys.public_key(SEED) == PUBLIC
    assert nkeys.sign(SEED, "nonce") == SIGNATURE


def test_what_is_signed_is_verified_by_the_public_key() -> None:
    seed = nkeys.new_seed()
    raw = base64.b32decode(nkeys.public_key(seed))[1:33]
    VerifyKey(raw).verify(b"nonce", base64.b64decode(nkeys.sign(seed, "nonce")))
    with pytest.raises(BadSignatureError):
        VerifyKey(raw).verify(b"another", base64.b64decode(nkeys.sign(seed, "nonce")))


def test_new_seeds_differ_and_are_those_of_users() -> None:
    seeds = {nkeys.new_seed() for _ in range(10)}
    assert len(seeds) == 10
    assert {(seed[:2], len(seed)) for seed in seeds} == {("SU", 58)}


@pytest.mark.parametrize("broken", ["", "SU", SEED[:-1], SEED[:10] + "A" + SEED[11:], "1" * 58])
def test_a_broken_seed_is_refused(broken: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        nkeys.public_key(broken)
