"""Who we are to a broker is said by files, and never to a broker that was told otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from gym_runtime.bus import nkeys
from gym_runtime.bus.addresses import parse
from gym_runtime.bus.identity import (
    CA,
    CERTIFICATE,
    CREDENTIALS,
    KEY,
    Identity,
    Keys,
    credentials_for,
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


def test_a_user_a_token_or_nothing_proves_who_it_is() -> None:
    assert Identity(user="me", password="").proof("") == {"user": "me", "pass": ""}
    assert Identity(token="t").proof("nonce") == {"auth_token": "t"}
    assert Identity().proof("nonce") == {}


def test_keys_sign_what_the_broker_asks_to_be_signed(tmp_path: Path) -> None:
    file, seed = tmp_path / "file", nkeys.new_seed()
    file.write_text(seed)
    identity = Identity(credentials=file)
    assert identity.proof("") == {}
    proof = identity.proof("nonce")
    assert proof == {"nkey": nkeys.public_key(seed), "sig": nkeys.sign(seed, "nonce")}
    file.write_text(CREDS.replace(SEED, seed))
    assert identity.proof("nonce") == {"jwt": "eyJ0-e_x.A.b", "sig": proof["sig"]}


def test_a_damaged_seed_is_refused_and_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(SEED)
    with pytest.raises(UsageError, match="checksum") as caught:
        Identity(credentials=tmp_path / "file").proof("nonce")
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
            f"{CERTIFICATE}=.*bad.pem, {KEY}=.*none.pem: ",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_by_its_variable(
    tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    (tmp_path / "bad.pem").write_text("no certificate")
    with pytest.raises(UsageError, match=message):
        trust({name: str(tmp_path / file) for name, file in variables.items()})
