"""The Helm chart: linted and rendered by Helm, and every object checked against the schemas of Kubernetes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from deploy.brokers import serving, until_ready
from deploy.keda import SCALED_OBJECT
from gym_deploy.written import Values, write
from gym_runtime.cli.app import application
from gym_runtime.environment import catalogue
from gym_runtime.messages.metric_names import QUEUE
from runtime.cli.started import SCRIPT

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
}
POD = {
    "nodeSelector": {"pool": "gym"},
    "tolerations": [{"key": "gym", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "podAffinityTerm": {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "gym-runtime"}},
                    },
                }
            ]
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "priorityClassName": "research",
    "annotations": {"owner": "lab"},
    "env": [{"name": "HTTPS_PROXY", "valueFrom": {"secretKeyRef": {"name": "proxy", "key": "url"}}}],
    "envFrom": [{"secretRef": {"name": "from-the-vault"}}],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/datasets", "readOnly": True}],
}
PLACED = {**EVERYTHING, "pods": POD, "imagePullSecrets": [{"name": "registry-key"}]}
VERSIONS = ("1.27", "1.31", "1.37")


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    write("kubernetes", tmp_path, VALUES)
    return tmp_path / "chart"


def rendered(chart: Path, values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """All objects, by kind and name."""
    texts = helm.Chart.load(chart).render(values, name="gym", namespace="lab").values()
    objects = [one for text in texts for one in yaml.safe_load_all(text) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def pods_of(objects: dict[tuple[str, str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every Pod's specification, by the name of its Deployment or StatefulSet without that of the release."""
    templates = {
        name: one["spec"]["template"] for (_, name), one in objects.items() if "template" in one["spec"]
    }
    return {name.removeprefix("gym-"): template["spec"] for name, template in templates.items()}


@pytest.mark.parametrize(
    "values",
    [{}, KEDA, HPA, EVERYTHING, PLACED],
    ids=["default", "keda", "hpa", "everything", "placed"],
)
def test_kubernetes_knows_every_field(chart: Path, values: dict[str, Any]) -> None:
    assert helm.lint(chart, values, strict=True)["errors"] == []
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
    for values, kinds in (({}, {"gym-resource"}), ({"environments": {"sandbox": False}}, set[str]())):
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


def test_every_pod_is_placed_as_the_values_say_and_a_part_may_say_it_otherwise(chart: Path) -> None:
    objects = rendered(chart, PLACED)
    assert len(pods_of(objects)) == 8
    for name, pod in pods_of(objects).items():
        assert pod["imagePullSecrets"] == [{"name": "registry-key"}]
        for field in ("nodeSelector", "affinity", "priorityClassName"):
            assert pod[field] == POD[field], (name, field)
        if name != "engine":  # it has tolerations of its own, for nodes with GPUs
            assert pod["tolerations"] == POD["tolerations"]
        (spread,) = pod["topologySpreadConstraints"]
        assert spread["labelSelector"] == {"matchLabels": {"app": f"gym-{name}"}}
        container = pod["containers"][0]
        assert POD["env"][0] in container["env"]
        assert POD["envFrom"][0] in container["envFrom"]
        assert POD["volumeMounts"][0] in container["volumeMounts"]
        assert POD["volumes"][0] in pod["volumes"]
    template = objects["Deployment", "gym-agent"]["spec"]["template"]
    assert template["metadata"]["annotations"] == {"owner": "lab"}
    assert template["metadata"]["labels"]["app"] == "gym-agent"

    own = {"selector": {"nodeSelector": {"pool": "cpu"}, "tolerations": [], "env": []}}["selector"]
    spread = {**POD["topologySpreadConstraints"][0], "labelSelector": {"matchLabels": {"a": "b"}}}
    pods = pods_of(rendered(chart, {**PLACED, "agents": {**own, "topologySpreadConstraints": [spread]}}))
    assert pods["agent"]["nodeSelector"] == {"pool": "cpu"}
    assert "tolerations" not in pods["agent"]
    assert "HTTPS_PROXY" not in str(pods["agent"]["containers"][0]["env"])
    assert pods["agent"]["topologySpreadConstraints"] == [spread]
    assert pods["model"]["nodeSelector"] == POD["nodeSelector"]


def test_the_example_of_the_page_is_taken(chart: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "kubernetes.md").read_text()
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S)
    pods = pods_of(rendered(chart, yaml.safe_load(example)))
    assert pods["resource"]["nodeSelector"] == {"pool": "cpu"}
    assert "nodeSelector" not in pods["agent"]
    assert pods["agent"]["topologySpreadConstraints"]


def test_every_container_of_ours_has_requests_and_limits(chart: Path) -> None:
    for name, pod in pods_of(rendered(chart, EVERYTHING)).items():
        # A namespace with a ResourceQuota refuses a Pod if one container has none.
        for container in pod["containers"] + pod.get("initContainers", []):
            resources = container["resources"]
            if name == "engine":
                assert resources == {"limits": {"nvidia.com/gpu": 1}}
            else:
                assert set(resources["requests"]) == {"cpu", "memory"}, name
                assert set(resources["limits"]) == {"memory"}, name
    larger = {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"cpu": "8", "memory": "16Gi"}}
    values = {part: {"resources": larger} for part in ("broker", "agents", "environments", "model")}
    pods = pods_of(rendered(chart, values))
    assert [
        pods[name]["containers"][0]["resources"] for name in ("broker", "agent", "resource", "model")
    ] == [larger] * 4


def probe(container: dict[str, Any], kind: str, folder: Path) -> bool:
    """What a worker's probe finds in a folder of health files."""
    shell, option, command = container[f"{kind}Probe"]["exec"]["command"]
    done = subprocess.run(
        [shell, option, command.replace("/tmp/health", str(folder))], check=False, stderr=subprocess.DEVNULL
    )
    return done.returncode == 0


def test_brokers_are_on_different_nodes_where_there_are_some(chart: Path) -> None:
    for values in ({}, {"agents": {"topologySpreadConstraints": POD["topologySpreadConstraints"]}}):
        (spread,) = pods_of(rendered(chart, values))["broker"]["topologySpreadConstraints"]
        assert spread["topologyKey"] == "kubernetes.io/hostname"
        assert spread["labelSelector"] == {"matchLabels": {"app": "gym-broker"}}
    assert "topologySpreadConstraints" not in pods_of(rendered(chart, {}))["agent"]


def test_an_upgrade_has_no_second_server_of_what_there_is_one_of_and_waits_for_an_engine(chart: Path) -> None:
    objects = rendered(chart, EVERYTHING)
    specs = {name: one["spec"] for (kind, name), one in objects.items() if kind == "Deployment"}
    alone = {name for name, spec in specs.items() if spec.get("strategy") == {"type": "Recreate"}}
    assert alone == {"gym-metrics", "gym-gym-server"}
    assert specs["gym-engine"]["progressDeadlineSeconds"] > 1200, "before its startup probe gives it up"


def test_several_gateways_need_one_secret(chart: Path) -> None:
    with pytest.raises(Exception, match=r"gateway\.keySecret: a Secret with GYM_GATEWAY_SECRET"):
        rendered(chart, {"gateway": {"enabled": True, "replicas": 2}})
    rendered(chart, {"gateway": {"enabled": True, "replicas": 2, "keySecret": "gateway-key"}})


@pytest.mark.parametrize("kind", ["agent", "resource", "model"])
def test_the_probes_of_workers_see_whether_they_serve_and_whether_they_hang(
    chart: Path, kind: str, tmp_path: Path
) -> None:
    (container,) = pods_of(rendered(chart, {}))[kind]["containers"]
    assert {"name": "GYM_HEALTH_DIR", "value": "/tmp/health"} in container["env"]
    assert "startupProbe" not in container
    folder = tmp_path / "health"

    def seen() -> tuple[bool, bool]:
        return probe(container, "readiness", folder), probe(container, "liveness", folder)

    assert seen() == (False, True)  # it waits for the broker
    folder.mkdir()
    assert seen() == (False, True)
    file = folder / "7"
    file.touch()
    assert seen() == (True, True)
    os.utime(file, (time.time() - 400, time.time() - 400))
    assert seen() == (True, False)
    file.unlink()
    assert seen() == (False, True)  # it drains


def test_the_probes_over_http_ask_for_what_is_served(chart: Path) -> None:
    pods = pods_of(rendered(chart, EVERYTHING))
    ready = {"broker": "/healthz?js-server-only=true", "metrics": "/metrics"}
    alive = {"broker": "/healthz?js-enabled-only=true"}
    for name in ("broker", "gateway", "gym-server", "metrics", "engine"):
        container = pods[name]["containers"][0]
        paths = {
            kind: container[f"{kind}Probe"]["httpGet"]["path"]
            for kind in ("startup", "readiness", "liveness")
        }
        assert paths["readiness"] == ready.get(name, "/health"), name
        assert paths["startup"] == paths["liveness"] == alive.get(name, "/health"), name
        assert container["livenessProbe"]["timeoutSeconds"] == 10, "a busy node is no reason to kill it"
    started = pods["engine"]["containers"][0]["startupProbe"]
    assert started["periodSeconds"] * started["failureThreshold"] == 1200


def test_secrets_may_come_from_outside(chart: Path) -> None:
    roles = ("broker", "client", "agent", "resource", "model")
    pods = pods_of(rendered(chart, {**EVERYTHING, "secrets": {role: f"vault-{role}" for role in roles}}))
    joins = {
        name: [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
        for name, pod in pods.items()
    }
    assert joins == {
        "broker": ["vault-broker"], "agent": ["vault-agent"], "resource": ["vault-resource"],
        "model": ["vault-model"], "gateway": ["vault-agent"], "gym-server": ["vault-client"],
        "metrics": ["vault-client"], "engine": [],
    }  # fmt: skip
    values = {"model": {"keySecret": "openai", "envFrom": [{"secretRef": {"name": "more"}}]}}
    (model,) = pods_of(rendered(chart, values))["model"]["containers"]
    assert [one["secretRef"]["name"] for one in model["envFrom"]] == ["openai", "more"]


@pytest.mark.parametrize(
    "image", ["vllm/vllm-openai:v0.33.0", f"host:5000/vllm@sha256:{64 * 'a'}", f"vllm:v1@sha256:{64 * 'a'}"]
)
def test_the_engines_image_is_pinned(chart: Path, image: str) -> None:
    for given, expected in (({}, "vllm/vllm-openai:v0.32.0"), ({"image": image}, image)):
        pods = pods_of(rendered(chart, {"engine": {"enabled": True, **given}}))
        assert pods["engine"]["containers"][0]["image"] == expected


@pytest.mark.parametrize(
    "image",
    ["vllm/vllm-openai", "vllm/vllm-openai:latest", "vllm:nightly", "host:5000/vllm", "vllm@sha256:12", ""],
)
def test_an_image_that_may_move_is_refused(chart: Path, image: str) -> None:
    with pytest.raises(Exception, match=r"name its version, such as .*, or its digest"):
        rendered(chart, {"engine": {"enabled": True, "image": image}})


@pytest.mark.parametrize(
    ("part", "scaler"), [("agents", "keda"), ("agents", "hpa"), ("environments", "hpa"), ("model", "hpa")]
)
def test_a_range_without_a_number_is_refused(chart: Path, part: str, scaler: str) -> None:
    given = {"enabled": True, "least": 9, "most": 8}
    with pytest.raises(Exception, match=rf"{part}.{scaler}: least, 9, is greater than most, 8"):
        rendered(chart, {part: {scaler: given}})
    assert rendered(chart, {part: {scaler: {**given, "enabled": False}}})
    assert rendered(chart, {part: {scaler: {**given, "most": 9}}})


def test_a_sandbox_where_kubernetes_is_too_old_is_one_clear_line(chart: Path) -> None:
    workers = chart / "templates" / "workers.yaml"
    # Helm renders for its newest Kubernetes here, and takes no other one.
    workers.write_text(workers.read_text().replace("<1.33-0", "<1.99-0"))
    with pytest.raises(
        Exception, match=r"environments.sandbox takes user namespaces of Kubernetes 1.33, and"
    ):
        rendered(chart, {})
    weak = {"sandbox": False, "arguments": ["--allow-weak-sandbox"]}
    (container,) = pods_of(rendered(chart, {"environments": weak}))["resource"]["containers"]
    assert container["args"][-1] == "--allow-weak-sandbox"
    assert application().parse_args(container["args"], exit_on_error=False, print_error=False)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"agents": {"replica": 3}}, "at '/agents': .*'replica'.* not allowed"),
        ({"agent": {"replicas": 3}}, "at '': additional properties 'agent' not allowed"),
        ({"agents": {"replicas": "three"}}, "at '/agents/replicas': got string, want integer"),
        ({"broker": {"replicas": 2}}, "at '/broker/replicas': value must be one of 1, 3"),
        ({"model": {"name": "gpt"}}, "at '/model/name': 'gpt' does not match pattern"),
        ({"pods": {"nodeselector": {}}}, "at '/pods': .*'nodeselector'.* not allowed"),
        ({"environments": {"names": []}}, "at '/environments/names': minItems: got 0, want 1"),
        ({"pods": {"env": [{"value": "x"}]}}, "at '/pods/env/0': missing property 'name'"),
        ({"broker": {"resources": {"memory": "1Gi"}}}, "at '/broker/resources': additional properties"),
        ({"secrets": {"trainer": "x"}}, "at '/secrets': additional properties 'trainer' not allowed"),
    ],
)
def test_a_wrong_value_gets_one_line(chart: Path, values: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said) as caught:
        rendered(chart, values)
    wrong = [line for line in str(caught.value).splitlines() if line.startswith("- ")]
    assert len(wrong) == 1


def test_the_scaler_names_the_stream_and_the_consumers_that_there_are(chart: Path) -> None:
    objects = rendered(chart, KEDA)
    scaled = objects["ScaledObject", "gym-agent"]["spec"]
    assert "replicas" not in objects["Deployment", "gym-agent"]["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (0, 40)
    # KEDA does not see the queue of an agent that it is not told of: its rollouts would wait for ever.
    asked = {entry["agent"] for entry in json.loads(run_command("ls", "--json"))}
    assert asked <= {trigger["metadata"]["consumer"].removeprefix("agent-") for trigger in scaled["triggers"]}
    for trigger, agent in zip(scaled["triggers"], catalogue.names("agents"), strict=True):
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
    with pytest.raises(Exception, match=r"agents\.hpa\.percent: agents are scaled by the tasks"):
        rendered(chart, {"agents": {"hpa": {"enabled": True, "percent": 50}}})


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


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_default_makes_whole_rollouts(tmp_path: Path) -> None:
    """The default's containers as processes of this machine: a row of ``mcqa`` needs the sandbox."""
    write("kubernetes", tmp_path, Values(prefix="lab"))
    pods = pods_of(rendered(tmp_path / "chart", {}))
    keys, health, out = tmp_path / "keys", tmp_path / "health", tmp_path / "rows.jsonl"
    with ExitStack() as stack:
        broker = stack.enter_context(serving(keys, "--prefix", "lab"))
        until_ready(broker)
        for kind in ("agent", "resource", "model"):
            (container,) = pods[kind]["containers"]
            names = {one["name"] for one in container["env"]}
            assert names == {"GYM_NATS_URL", "GYM_HEALTH_DIR", "HOME"}
            environment = {
                "GYM_NATS_URL": str(keys / "join" / f"{kind}.join"),
                "GYM_HEALTH_DIR": str(health / kind),
                "HOME": str(tmp_path),
                "PATH": os.environ["PATH"],
            }
            worker = subprocess.Popen(
                [SCRIPT, *container["args"]], env=environment, stdout=subprocess.DEVNULL
            )
            stack.callback(worker.wait, 40)
            stack.callback(worker.terminate)
        client = ["--nats", str(keys / "join" / "client.join"), "--prefix", "lab"]
        rows = Path(__file__).parents[2] / "resources" / "gym_resources" / "mcqa.jsonl"
        published = run_command("publish", str(rows), "--environment", "mcqa", *client)
        run_command("collect", published.strip(), "-o", str(out), *client)
        assert "finished" in run_command("status", published.strip(), *client)
        # What has made rollouts serves, and its probes say so.
        for kind in ("agent", "resource", "model"):
            (container,) = pods[kind]["containers"]
            assert probe(container, "readiness", health / kind)
            assert probe(container, "liveness", health / kind)
    assert len(out.read_text().splitlines()) == 5
    assert not out.with_name("rows_failures.jsonl").exists()


def run_command(*arguments: str) -> str:
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=True, timeout=60).stdout
