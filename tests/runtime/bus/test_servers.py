"""Which server of a cluster is tried next, and which are known."""

from __future__ import annotations

from gym_runtime.bus.handshake import Server, Servers


def known(servers: Servers) -> set[str]:
    return {server.url for server in servers._known}


def first_of(servers: Servers) -> Server:
    server = servers.next()
    servers.connected(server)
    return server


def test_urls_are_read_with_their_defaults() -> None:
    assert known(Servers(["nats://a", "tls://b:1", "nats://[::1]:2"])) == {
        "nats://a:4222",
        "tls://b:1",
        "nats://[::1]:2",
    }


def test_the_server_just_lost_comes_after_the_others_and_failures_count_more() -> None:
    servers = Servers(["nats://a", "nats://b"])
    lost = first_of(servers)
    for _ in range(20):
        other = servers.next()
        assert other is not lost
    other.failures += 1
    assert servers.next() is lost
    lost.failures += 2
    assert servers.next() is other
    servers.connected(other)
    assert other.failures == 0


def test_the_cluster_is_learnt_and_those_who_left_it_are_forgotten_but_not_the_named() -> None:
    servers = Servers(["nats://a:1", "nats://b:2"])
    first_of(servers)
    servers.learn(["a:1", "c:3", "10.0.0.4:4", "[::1]:5"])
    assert known(servers) == {
        "nats://a:1",
        "nats://b:2",
        "nats://c:3",
        "nats://10.0.0.4:4",
        "nats://[::1]:5",
    }
    servers.learn(["c:3"])
    assert known(servers) == {"nats://a:1", "nats://b:2", "nats://c:3"}
    servers.learn([])
    assert "nats://c:3" in known(servers)


def test_a_cluster_cannot_lead_out_of_tls() -> None:
    servers = Servers(["tls://broker.example:1"])
    first_of(servers)
    servers.learn(["10.0.0.4:4", "other.example:5"])
    found = {server.host: (server.tls, server.certified) for server in servers._known}
    assert found == {
        "broker.example": (True, "broker.example"),
        "10.0.0.4": (True, "broker.example"),
        "other.example": (True, "other.example"),
    }
