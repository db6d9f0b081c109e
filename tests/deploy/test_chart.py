"""The Helm chart: linted and rendered by Helm, and every object checked against the schemas of Kubernetes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from gym_deploy.written import Values, write
from gym_runtime.cli.app import application
from gym_runtime.messages.metric_names import QUEUE

helm = pytest.importorskip("helm_python", reason="Helm is not installed: pip install helm-python-sdk")
validate = pytest.importorskip(
    "kubernetes_validate", reason="Kubernetes' schemas are not installed: pip install kubernetes-validate"
)

VALUES = Values(
    environments=("mcqa", "reasoning_gym"),
    model="openai/NAME",
    model_urls=("dns:vllm:8000",),
    concurrency=512,
    prefix="lab",
)
KEDA = {"agents": {"keda": {"enabled": True}}}
HPA = {name: {"hpa": {"enabled": True}} for name in ("agents", "environments", "model")}
EVERYTHING = {
    **KEDA,
    "broker": {"replicas": 3},
    "engine": {"enabled": True, "image": f"vllm/vllm-openai@sha256:{64 * '0'}"},
    "gateway": {"enabled": True, "keySecret": "gateway-key"},
    "gymServer": {"enabled": True, "environments": ["mcqa"], "keySecret": "server-key"},
    "environments": {"sandbox": True},
}
VERSIONS = ("1.27", "1.31", "1.37")


def fields(*required: str, **known: Any) -> dict[str, Any]:
    return {"type": "object", "properties": known, "required": [*required], "additionalProperties": False}


TEXT, COUNT, FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
SCALED_OBJECT = fields(
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    apiVersion={"const": "keda.sh/v1alpha1"},
    kind={"const": "ScaledObject"},
    metadata={"type": "object", "required": ["name"]},
    spec=fields(
        "scaleTargetRef",
        "triggers",
        scaleTargetRef=fields("name", apiVersion=TEXT, kind=TEXT, name=TEXT, envSourceContainerName=TEXT),
        minReplicaCount=COUNT,
        maxReplicaCount={"type": "integer", "minimum": 1},
        idleReplicaCount=COUNT,
        pollingInterval={"type": "integer", "minimum": 1},
        cooldownPeriod=COUNT,
        initialCooldownPeriod=COUNT,
        fallback=fields(
            "failureThreshold", "replicas", failureThreshold=COUNT, replicas=COUNT, behavior=TEXT
        ),
        advanced=fields(
            horizontalPodAutoscalerConfig=fields(behavior={"type": "object"}, name=TEXT),
            restoreToOriginalReplicaCount=FLAG,
            scalingModifiers=fields(activationTarget=TEXT, formula=TEXT, metricType=TEXT, target=TEXT),
        ),
        triggers={
            "type": "array",
            "items": fields(
                "metadata",
                "type",
                type={"const": "nats-jetstream"},
                name=TEXT,
                metricType=TEXT,
                useCachedMetrics=FLAG,
                authenticationRef=fields("name", kind=TEXT, name=TEXT),
                metadata=fields(
                    *("natsServerMonitoringEndpoint", "account", "stream", "consumer", "lagThreshold"),
                    natsServerMonitoringEndpoint=TEXT,
                    account=TEXT,
                    stream=TEXT,
                    consumer=TEXT,
                    lagThreshold={"type": "string", "pattern": "^[0-9]+$"},
                    activationLagThreshold={"type": "string", "pattern": "^[0-9]+$"},
                    useHttps=TEXT,
                ),
            ),
        },
    ),
)
"""What KEDA 2.19 takes: the fields of its custom resource, and those of its scaler for JetStream.

Source: https://keda.sh/docs/2.19/reference/scaledobject-spec, https://keda.sh/docs/2.19/scalers/nats-jetstream
"""


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    write("kubernetes", tmp_path, VALUES)
    return tmp_path / "chart"


def rendered(chart: Path, values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """All objects, by kind and name."""
    texts = helm.Chart.load(chart).render(values, name="gym", namespace="lab").values()
    objects = [one for text in texts for one in yaml.safe_load_all(text) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


@pytest.mark.parametrize("values", [{}, KEDA, HPA, EVERYTHING], ids=["default", "keda", "hpa", "everything"])
def test_kubernetes_knows_every_field(chart: Path, values: dict[str, Any]) -> None:
    helm.lint(chart, values, strict=True)
    objects = rendered(chart, values)
    assert {name for _, name in objects} >= {"gym-broker", "gym-agent", "gym-resource", "gym-model"}
    for version in VERSIONS:
        for (kind, _), one in objects.items():
            if kind != "ScaledObject":
                validate.validate(one, version, strict=True)


def test_containers_run_commands_that_exist_with_the_least_rights(chart: Path) -> None:
    objects = rendered(chart, EVERYTHING)
    pods = [one["spec"]["template"]["spec"] for one in objects.values() if "template" in one.get("spec", {})]
    own = [pod for pod in pods if pod["containers"][0]["name"] != "engine"]
    assert len(own) == 7
    for pod in own:
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            arguments = [argument.replace("$(POD_NAME)", "gym-broker-0") for argument in container["args"]]
            application().parse_args(arguments, exit_on_error=False, print_error=False)
    agent = objects["Deployment", "gym-agent"]["spec"]["template"]["spec"]
    arguments = agent["containers"][0]["args"]
    drain_s = float(arguments[arguments.index("--drain") + 1])
    assert agent["terminationGracePeriodSeconds"] >= drain_s + 15


def test_pods_of_environments_alone_may_have_what_a_sandbox_takes(chart: Path) -> None:
    for values, kinds in (({}, set[str]()), ({"environments": {"sandbox": True}}, {"gym-resource"})):
        pods = {
            name: one["spec"]["template"]["spec"]
            for (_, name), one in rendered(chart, values).items()
            if "template" in one.get("spec", {})
        }
        assert {name for name, pod in pods.items() if pod.get("hostUsers") is False} == kinds
        rights = {name: pod["containers"][0]["securityContext"] for name, pod in pods.items()}
        assert {name for name, right in rights.items() if "procMount" in right} == kinds
        assert all(right["capabilities"] == {"drop": ["ALL"]} for right in rights.values())


def test_a_role_sees_its_own_key_only(chart: Path) -> None:
    objects = rendered(chart, EVERYTHING)
    for role in ("agent", "resource", "model"):
        pod = objects["Deployment", f"gym-{role}"]["spec"]["template"]["spec"]
        secrets = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
        assert secrets == [f"gym-{role}"]


def test_the_scaler_names_the_stream_and_the_consumers_that_there_are(chart: Path) -> None:
    objects = rendered(chart, KEDA)
    scaled = objects["ScaledObject", "gym-agent"]["spec"]
    assert "replicas" not in objects["Deployment", "gym-agent"]["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (0, 40)
    for trigger, agent in zip(scaled["triggers"], ("tool_loop", "single_turn"), strict=True):
        metadata = trigger["metadata"]
        assert metadata["stream"] == "lab_TASKS"
        assert metadata["consumer"] == f"agent-{agent}"
        assert metadata["account"] == "GYM"
        assert metadata["lagThreshold"] == "512"
        assert metadata["natsServerMonitoringEndpoint"] == "gym-broker.lab.svc:8222"
        assert all(isinstance(value, str) for value in metadata.values())
    allowed = objects["NetworkPolicy", "gym-broker"]["spec"]["ingress"]
    assert {"port": "monitor"} in [port for rule in allowed for port in rule["ports"] if "from" in rule]


def test_what_serves_http_has_the_key_of_its_role_and_its_own_secret(chart: Path) -> None:
    objects = rendered(chart, EVERYTHING)
    for kind, role, secrets in (
        ("gateway", "agent", ["gateway-key"]),
        ("gym-server", "client", ["server-key"]),
        ("metrics", "client", []),
    ):
        pod = objects["Deployment", f"gym-{kind}"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        (port,) = container["ports"]
        assert objects["Service", f"gym-{kind}"]["spec"]["ports"] == [
            {"name": "http", "port": port["containerPort"]}
        ]
        assert str(port["containerPort"]) in container["args"]
        assert [one["secretRef"]["name"] for one in container.get("envFrom", [])] == secrets
        joins = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
        assert joins == [f"gym-{role}"]
    with pytest.raises(Exception, match="a Secret with GYM_SERVER_KEY"):
        rendered(chart, {"gymServer": {"enabled": True}})


def test_an_autoscaler_takes_the_place_of_the_number_of_replicas(chart: Path) -> None:
    objects = rendered(chart, HPA)
    for kind in ("agent", "resource", "model"):
        assert "replicas" not in objects["Deployment", f"gym-{kind}"]["spec"]
        assert (
            objects["HorizontalPodAutoscaler", f"gym-{kind}"]["spec"]["scaleTargetRef"]["name"]
            == f"gym-{kind}"
        )
    (metric,) = objects["HorizontalPodAutoscaler", "gym-agent"]["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == QUEUE.name.replace(".", "_")
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "512"}
    with pytest.raises(Exception, match="either keda or hpa"):
        rendered(chart, {"agents": {**KEDA["agents"], **HPA["agents"]}})


def test_keda_knows_every_field(chart: Path) -> None:
    scaled = rendered(chart, KEDA)["ScaledObject", "gym-agent"]
    jsonschema.validate(scaled, SCALED_OBJECT)
    for wrong in ({"maxReplicas": 3}, {"minReplicaCount": -1}, {"maxReplicaCount": "40"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**scaled, "spec": {**scaled["spec"], **wrong}}, SCALED_OBJECT)
    # Its behavior is that of the autoscaler which KEDA makes.
    autoscaler = rendered(chart, HPA)["HorizontalPodAutoscaler", "gym-agent"]
    behavior = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    validate.validate(
        {**autoscaler, "spec": {**autoscaler["spec"], "behavior": behavior}}, VERSIONS[-1], strict=True
    )


def test_secrets_are_made_of_the_keys(tmp_path: Path) -> None:
    write("kubernetes", tmp_path, VALUES)
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text('#!/bin/bash\nset -eu\necho "$4"\nfor f in "${@:5}"; do test -s "${f##*=}"; done\n')
    kubectl.chmod(0o755)
    path = f"{kubectl.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(tmp_path / "make-secrets.sh"), "gym", "3"],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        check=True,
    )
    assert done.stdout.split() == ["gym-broker", "gym-client", "gym-agent", "gym-resource", "gym-model"]
