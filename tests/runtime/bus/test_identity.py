"""Who we are to a broker is said by files, and never to a broker that was told otherwise."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from gym_runtime.bus.identity import (
    CA,
    CERTIFICATE,
    CREDENTIALS,
    KEY,
    Keys,
    credentials_for,
    new_seed,
    parse,
    proof,
    public_key,
    read_keys,
    trust,
)
from gym_runtime.errors import UsageError

SEED = "SU" + "A" * 56


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nats://broker:4222", True),
        ("tls://one:4222,tls://two:4222", True),
        ("nats://user:password@broker:4222", False),
        ("nats://token@broker:4222", False),
    ],
)
def test_a_broker_whose_url_says_who_we_are_is_told_nothing_else(url: str, told: bool) -> None:
    found = credentials_for(parse(url), {CREDENTIALS: "/a/file"})
    assert found == (Path("/a/file") if told else None)


@pytest.mark.parametrize("url", ["http://h", "nats://:4222", "nats://h:0", "a..b", "x" * 64, "\u202e"])
def test_what_is_no_broker(url: str) -> None:
    with pytest.raises(UsageError, match=r"expected nats://HOST:PORT or tls://HOST:PORT"):
        parse(url)


def test_without_variables_there_is_nothing() -> None:
    assert credentials_for(parse("nats://broker"), {}) is None
    assert credentials_for(parse("nats://broker"), {CREDENTIALS: ""}) is None
    assert trust({}) is None
    assert trust({CA: "", CERTIFICATE: "", KEY: ""}) is None


CREDS = f"""-----BEGIN NATS USER JWT-----
eyJ0-e_x.A.b
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
{SEED}
------END USER NKEY SEED------
"""


@pytest.mark.parametrize(
    ("content", "keys"), [(f"{SEED}\n", Keys(SEED)), (SEED, Keys(SEED)), (CREDS, Keys(SEED, "eyJ0-e_x.A.b"))]
)
def test_seeds_and_creds_files_are_told_apart(tmp_path: Path, content: str, keys: Keys) -> None:
    (tmp_path / "file").write_text(content)
    assert read_keys(tmp_path / "file") == keys


def told(given: dict[str, Any]) -> dict[str, Any]:
    """What nats-py is given, with its functions called."""
    return {name: what() if name in ("user", "password", "token") else what for name, what in given.items()}


def who(url: str, credentials: Path | None = None) -> dict[str, Any]:
    return proof(parse(url), credentials, "client", lambda: None)


def test_a_user_a_token_or_nothing_proves_who_it_is() -> None:
    assert told(who("nats://me:@broker")) == {"user": "me", "password": "", "token": None}
    assert told(who("nats://t@broker")) == {"token": "t"}
    assert told(who("nats://broker")) == {"token": None}


def test_nothing_is_told_before_the_guard_allows_it() -> None:
    def guard() -> None:
        raise PermissionError

    for url in ("nats://me:secret@broker", "nats://t@broker", "nats://broker"):
        for tell in proof(parse(url), None, "client", guard).values():
            with pytest.raises(PermissionError):
                tell()


def test_keys_sign_what_the_broker_asks_to_be_signed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(KNOWN_SEED)
    assert told(who("nats://broker", file)) == {"nkeys_seed_str": KNOWN_SEED, "token": None}
    file.write_text(CREDS.replace(SEED, KNOWN_SEED))
    given = who("nats://broker", file)
    assert (given["user_jwt_cb"](), given["signature_cb"]("nonce")) == (b"eyJ0-e_x.A.b", SIGNATURE)


# A key pair and a signature; they are used nowhere.
KNOWN_SEED = "SUADMFX3PN5ITP7JG5NKXIIDKBWCAGRR3SCWOXH5TOCV3SFR2OCFRJDTCE"
PUBLIC = "UCJCCQE2YCWSWWV3WTZJA54QJ2VJZIX6S2HVZQ7BRM5OSUAEPQ3B47HK"
SIGNATURE = b"p0XZJY7RrOFtYnwet12iZhJ7pi41aoMVSHqMpBT+R/tWT41qjfzL/Z8RwCjfL3E8SQ2Vyowsm6oDRHMc1CcBBQ=="


def test_a_key_has_one_public_key() -> None:
    assert public_key(KNOWN_SEED) == PUBLIC
    seeds = {new_seed() for _ in range(10)}
    assert len({public_key(seed) for seed in seeds}) == 10
    assert {(seed[:2], len(seed)) for seed in seeds} == {("SU", 58)}


@pytest.mark.parametrize("broken", ["", "SU", PUBLIC, KNOWN_SEED[:10] + "A" + KNOWN_SEED[11:], "1" * 58])
def test_a_damaged_seed_is_refused_and_not_repeated(tmp_path: Path, broken: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        public_key(broken)
    (tmp_path / "file").write_text(SEED)
    with pytest.raises(UsageError, match="checksum") as caught:
        who("nats://broker", tmp_path / "file")
    assert SEED not in str(caught.value)


@pytest.mark.parametrize(
    "content", ["", "SA" + "A" * 56, "password", SEED + "A", SEED.lower(), CREDS.partition("--END")[0]]
)
def test_what_is_neither_is_refused_and_not_repeated(tmp_path: Path, content: str) -> None:
    (tmp_path / "file").write_text(content)
    with pytest.raises(UsageError, match="neither an NKey seed") as caught:
        read_keys(tmp_path / "file")
    assert not content or content not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({KEY: "key"}, f"{KEY} is set and {CERTIFICATE} is not"),
        ({CA: "none.pem"}, f"{CA}=.*none.pem: No such file"),
        ({CA: "bad.pem"}, f"{CA}=.*bad.pem: "),
        (
            {CERTIFICATE: "bad.pem", KEY: "none.pem"},
            f"{CERTIFICATE}=.*bad.pem, {KEY}=.*none.pem: .*/none.pem: No such file",
        ),
        (
            {CERTIFICATE: "own.pem"},
            f"{CERTIFICATE}=.*own.pem, {KEY}=: a certificate and its private key in PEM",
        ),
        ({CERTIFICATE: "own.pem", KEY: "bad.pem"}, "a certificate and its private key in PEM are needed"),
        ({CERTIFICATE: "own.pem", KEY: "other.key"}, "other.key: they do not belong together"),
        # OpenSSL would ask for the pass phrase at the terminal.
        ({CERTIFICATE: "own.pem", KEY: "locked.key"}, "locked.key: the key is encrypted; store it without"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_by_its_variable(
    tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    (tmp_path / "bad.pem").write_text("no certificate")
    for name in ("own", "other"):
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", f"{name}.key", "-nodes"]
        openssl(tmp_path, "req", "-x509", "-subj", f"/CN={name}", *new, "-out", f"{name}.pem")
    openssl(tmp_path, "pkey", "-in", "own.key", "-aes256", "-passout", "pass:phrase", "-out", "locked.key")
    with pytest.raises(UsageError, match=message):
        trust({name: str(tmp_path / file) for name, file in variables.items()})


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=30)
