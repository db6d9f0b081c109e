"""The plan of a broker, and the keys, certificates and configuration of ``nats-server`` for it."""

from __future__ import annotations

import re
import socket
from importlib.resources import files
from pathlib import Path

import msgspec
from gym_runtime.bus import Names
from gym_runtime.errors import UsageError

from gym_deploy import identities

BROKER_LINGER_S = 28.0
"""How long it waits for workers to finish their work: a little longer than `DRAIN_S`, and less than
platforms wait."""

_HOST = re.compile(r"[A-Za-z0-9._-]+")
_STORE = "jetstream-"
ROUTE_PORT = 6222
LEAF_PORT = 7422
# Nodes tell each other and clients of themselves by name: their certificates do not hold the addresses.
_CLUSTER = """
client_advertise: "{client}"
cluster {{
  name: gym
  listen: "{host}:{port}"
  advertise: "{node}:{port}"
  tls {{ cert_file: $SERVER_CERTIFICATE, key_file: $SERVER_KEY, ca_file: $CA, verify: true }}
  routes: [{routes}]
}}
"""
_JETSTREAM = re.compile(
    r"^jetstream \{.*?^\}\n|^    jetstream: enabled\n|^    (?:ex|im)ports: \[.*?^    \]\n",
    re.MULTILINE | re.DOTALL,
)
_TLS = "tls {{ cert_file: $SERVER_CERTIFICATE, key_file: $SERVER_KEY, ca_file: $CA{more} }}"
_LEAVES = 'leafnodes {{ listen: "{listen}"{advertise}, {tls} }}\n'
_LEAF_OF = 'leafnodes {{ remotes: [{{ urls: [{urls}], account: USERS, nkey: "{seed}", {tls} }}] }}\n'
_LEAF_USER = '      { nkey: $SITE, allowed_connection_types: ["LEAFNODE"] }\n'


class BrokerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What broker to run.

    Attributes:
        folder: for its keys, configuration and streams; nodes may share it.
        listen: ``HOST:PORT`` for clients and workers.
        hosts: names and addresses by which they reach it; by default this machine's.
        nodes: the hosts of all nodes of a cluster, this one included; empty for a broker alone.
        node: this one's host; by default this machine's name.
        monitor: ``HOST:PORT`` of the broker's statistics.
        leaves: ``HOST:PORT`` for the brokers of other sites; empty for none.
        leaf_of: ``HOST`` or ``HOST:PORT`` of the brokers at the first site, of which this one is a leaf: it
            stores nothing, and its folder begins as a copy of theirs.
        prefix: of the system's subjects.
        linger_s: how many seconds it waits, after the signal to stop, for workers to finish their work.
    """

    folder: Path
    listen: str = "0.0.0.0:4222"
    hosts: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    node: str = ""
    monitor: str = "127.0.0.1:8222"
    leaves: str = ""
    leaf_of: tuple[str, ...] = ()
    prefix: str = "gym"
    linger_s: float = BROKER_LINGER_S

    @property
    def name(self) -> str:
        """This node's."""
        return self.node or socket.gethostname()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens.

        Raises:
            UsageError: that is no ``HOST:PORT``.
        """
        return self.addresses["--listen"]

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """All addresses where it listens, by the option.

        Raises:
            UsageError: one is no ``HOST:PORT``.
        """
        named = {"--listen": self.listen, "--monitor": self.monitor, "--leaves": self.leaves}
        found = {name: _parse(name, text) for name, text in named.items() if text or name != "--leaves"}
        return found | ({"--nodes": (found["--listen"][0], ROUTE_PORT)} if self.nodes else {})

    @property
    def store(self) -> Path:
        """The folder of this node's streams."""
        return self.folder.absolute() / f"{_STORE}{self.name}"

    @property
    def monitor_address(self) -> str:
        """Where this machine reaches the broker's statistics."""
        host, _, port = self.monitor.rpartition(":")
        return f"127.0.0.1:{port}" if host in ("", "0.0.0.0", "::", "[::]") else self.monitor

    @property
    def reached_at(self) -> tuple[str, ...]:
        """The hosts in the URLs of join files."""
        return self.nodes or self.hosts[:1] or (self.name,)


def _parse(name: str, address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"{name} {address}: expected HOST:PORT, such as 0.0.0.0:4222")
    return host, int(port)


def configure(plan: BrokerPlan) -> Path:
    """Write keys, certificates, join files and the configuration; its path.

    Raises:
        UsageError: the plan contradicts itself or what the folder holds, or the folder cannot be used.
    """
    host, port = plan.address
    names = Names(plan.prefix)  # refuses what no system can have
    for name in (plan.name, *plan.hosts, *plan.nodes, *(host for host, _ in map(_hub, plan.leaf_of))):
        if not _HOST.fullmatch(name) and not identities.is_address(name.strip("[]")):
            what = f"{name!r} is no host's name (letters, digits and ._- only) or address, which has no port"
            raise UsageError(f"{what}; give others with --host, --node, --nodes or --leaf-of")
    if len(set(plan.nodes)) < len(plan.nodes):
        raise UsageError(f"--nodes {','.join(plan.nodes)}: each broker has a name of its own; name each once")
    if len(plan.nodes) == 2:
        what = f"--nodes {','.join(plan.nodes)}: of two brokers neither stores anything without the other"
        raise UsageError(f"{what}; name three")
    if plan.nodes and plan.name not in plan.nodes:
        what = f"--nodes {','.join(plan.nodes)}: this node, {plan.name}, is not among them"
        raise UsageError(f"{what}; name it: --node NAME")
    if plan.leaf_of and (plan.nodes or plan.leaves):
        raise UsageError("--leaf-of: a leaf is a single broker; leave out --nodes and --leaves")
    if plan.leaf_of and not (plan.folder / f"{identities.SITE}.seed").exists():
        raise UsageError(
            f"--leaf-of: {plan.folder} has no site.seed; it must begin as a copy of the folder of a broker "
            "that was started with --leaves"
        )
    _look_for_streams(plan)
    folder = plan.folder.absolute()
    here = () if host in ("0.0.0.0", "::", "[::]") else (host.strip("[]"),)
    hosts = [
        *(one.strip("[]") for one in plan.hosts),
        plan.name,
        socket.getfqdn(),
        *here,
        "localhost",
        "127.0.0.1",
    ]
    urls = [f"tls://{_in_url(one)}:{port}" for one in plan.reached_at]
    identities.make(folder, node=plan.name, hosts=hosts, urls=urls, leaves=bool(plan.leaves or plan.leaf_of))
    settings = {
        "SERVER_NAME": plan.name,
        "LISTEN": plan.listen,
        "MONITOR": plan.monitor,
        "SERVER_CERTIFICATE": str(folder / f"{plan.name}.pem"),
        "SERVER_KEY": str(folder / f"{plan.name}.key"),
        "CA": str(folder / "ca.pem"),
    }
    if not plan.leaf_of:
        settings["STORE"] = str(plan.store)
    text = (files("gym_deploy") / "templates" / "secure.conf").read_text()
    streams = names.stream("task").removesuffix("TASKS")
    text = text.replace("gym_", streams).replace("gym.", f"{plan.prefix}.")
    if plan.nodes:
        others = [one for one in plan.nodes if one != plan.name]
        routes = ", ".join(f'"nats-route://{_in_url(one)}:{ROUTE_PORT}"' for one in others)
        node = _in_url(plan.name)
        client = f"{node}:{port}"
        text += _CLUSTER.format(host=host, port=ROUTE_PORT, node=node, client=client, routes=routes)
    text = _with_sites(plan, text)
    path = folder / f"{plan.name}.conf"
    lines = [f"{name}: {_quoted(value)}\n" for name, value in settings.items()]
    identities.write_secret(path, "".join(lines) + 'include "identities.conf"\n' + text)
    return path


def _look_for_streams(plan: BrokerPlan) -> None:
    """Refuse a broker that would begin without the streams of its folder, under another name."""
    if plan.leaf_of or plan.store.exists():
        return
    found = {one.name.removeprefix(_STORE) for one in plan.folder.glob(f"{_STORE}*")}
    # A new node of a cluster gets the streams of the others.
    if found.isdisjoint(plan.nodes) and (others := sorted(found)):
        # Renamed, a cluster takes over the streams of a broker alone, and the other way round.
        named = "" if plan.nodes else f"name it, --node {others[-1]}, or "
        raise UsageError(
            f"{plan.folder} has the runs of broker {' and '.join(others)}, and this one is {plan.name}: "
            f"{named}rename {_STORE}{others[-1]} to {plan.store.name} to go on with them, or move it away"
        )


def _with_sites(plan: BrokerPlan, text: str) -> str:
    """The configuration of a broker that has leaves, or is a leaf."""
    if plan.leaves or plan.leaf_of:
        # A leaf has no use for this user, but nats-server refuses a variable that is not used.
        users = "    users: [\n"
        text = text.replace(users, users + _LEAF_USER)
        # Without it requests to JetStream stay at the site where they are made.
        text += 'default_js_domain { USERS: "" }\n'
    if plan.leaves:
        # Brokers of other sites are told of all nodes, as above.
        port = plan.leaves.rpartition(":")[2]
        advertise = f', advertise: "{_in_url(plan.name)}:{port}"' if plan.nodes else ""
        text += _LEAVES.format(
            listen=plan.leaves, advertise=advertise, tls=_TLS.format(more=", verify: true")
        )
    if plan.leaf_of:
        text = _JETSTREAM.sub("", text)
        hubs = [f"{_in_url(host)}:{port}" for host, port in map(_hub, plan.leaf_of)]
        seed = (plan.folder / f"{identities.SITE}.seed").read_text().strip()
        urls = ", ".join(f'"tls://{hub}"' for hub in hubs)
        text += _LEAF_OF.format(urls=urls, seed=seed, tls=_TLS.format(more=""))
    return text


def _hub(text: str) -> tuple[str, int]:
    """A broker at the first site: its host, and its port for brokers of other sites.

    >>> _hub("broker.example"), _hub("broker.example:7000"), _hub("[fd00::5]:7000"), _hub("fd00::5")
    (('broker.example', 7422), ('broker.example', 7000), ('[fd00::5]', 7000), ('fd00::5', 7422))
    """
    if ":" not in text or identities.is_address(text.strip("[]")):
        return text, LEAF_PORT
    return _parse("--leaf-of", text)


def _in_url(host: str) -> str:
    """A host as it stands before a port.

    >>> _in_url("broker.example"), _in_url("fd00::5")
    ('broker.example', '[fd00::5]')
    """
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
