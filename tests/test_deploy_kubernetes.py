"""Manifests of Kubernetes: what they name exists, what they set is read, and what they start may end in order."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from esper.bus.acl import USERS
from esper.cli.main import BAD_INPUT
from esper.leyline.keys.keyring import KEYRINGS
from esper.runtime.beside.alarm import EVICTED
from esper.runtime.process import DRAIN_S
from tests.deploy_kit import DEPLOY, WORKERS, settings_of, worker_of

FOLDER = DEPLOY / "kubernetes"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
OBJECTS: list[dict[str, Any]] = [
    each for name in KUSTOMIZATION["resources"] for each in yaml.safe_load_all((FOLDER / name).read_text())
]
WORKLOADS = [each for each in OBJECTS if each["kind"] in ("Deployment", "StatefulSet", "Job")]
GENERATED = {
    each["name"]: dict(word.split("=", 1) for word in each["literals"]) for each in KUSTOMIZATION["configMapGenerator"]
}


def pod(workload: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


def labels(workload: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return found


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each workload with each of its containers."""
    for workload in WORKLOADS:
        for container in (*pod(workload).get("initContainers", []), *pod(workload)["containers"]):
            yield workload, container


def ours() -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
    """Those that start a worker, with its name."""
    for workload, container in containers():
        if container.get("command", [""])[-1].startswith("esper.workers."):
            yield workload, container, worker_of(container["command"][-1])


def port_names(container: dict[str, Any]) -> set[str]:
    return {port["name"] for port in container.get("ports", [])}


def test_every_manifest_is_part_of_the_whole() -> None:
    assert {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"} == set(KUSTOMIZATION["resources"])
    assert {worker for _, _, worker in ours()} == WORKERS - {"exporter"}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
def test_kustomize_takes_it_as_it_is() -> None:
    answer = subprocess.run(["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, timeout=150)

    assert answer.returncode == 0, answer.stderr
    rendered = list(yaml.safe_load_all(answer.stdout))
    assert len(rendered) == len(OBJECTS) + len(GENERATED)
    assert {each["metadata"].get("namespace", "esper") for each in rendered} == {"esper"}


def test_selectors_meet_the_labels_of_pods() -> None:
    told = [labels(workload) for workload in WORKLOADS]
    for workload in WORKLOADS:
        if workload["kind"] == "Job":
            assert "selector" not in workload["spec"]  # the Job makes its own
            continue
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels(workload).items()
    for each in OBJECTS:
        selectors = {
            "Service": lambda spec: spec["selector"],
            "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
            "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
        }
        if each["kind"] in selectors:
            selected = selectors[each["kind"]](each["spec"])
            assert sum(selected.items() <= one.items() for one in told) == 1, each["metadata"]["name"]


def test_every_port_that_is_named_is_one_of_a_container() -> None:
    for _, container in containers():
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            for way in ("httpGet", "tcpSocket"):
                if way in container.get(kind, {}):
                    assert container[kind][way]["port"] in port_names(container)
    for service in (each for each in OBJECTS if each["kind"] == "Service"):
        [behind] = [one for one in WORKLOADS if service["spec"]["selector"].items() <= labels(one).items()]
        named = set().union(*map(port_names, pod(behind)["containers"]))
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named


def test_every_variable_is_one_that_the_process_reads() -> None:
    every = set().union(*map(settings_of, WORKERS))
    for _, container, worker in ours():
        given = {each["name"] for each in container["env"]}
        [source] = [each for each in container["envFrom"] if "configMapRef" in each]
        common = set(GENERATED[source["configMapRef"]["name"]])
        assert given <= settings_of(worker), container["name"]
        assert common <= every and not given & common
        assert {"ESPER_RUN", "ESPER_REDIS_URL", "ESPER_KEYRING", "ESPER_NAME"} <= given | common


def test_regions_of_aggregators_are_those_that_the_global_tier_folds() -> None:
    told = {each["value"] for _, container, _ in ours() for each in container["env"] if each["name"] == "ESPER_REGION"}

    assert told - {"r$(RANK)"} == set(GENERATED["esper-run"]["ESPER_REGIONS"].split(","))


def test_images_are_named_once_with_a_version() -> None:
    named = {image["name"]: image["newTag"] for image in KUSTOMIZATION["images"]}

    assert {container["image"] for _, container in containers()} == set(named)
    assert "latest" not in named.values() and all(named.values())


def test_each_container_is_bounded_and_shut_in() -> None:
    for workload, container in containers():
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]
        box = container["securityContext"]
        assert (box["allowPrivilegeEscalation"], box["readOnlyRootFilesystem"]) == (False, True)
        assert box["capabilities"] == {"drop": ["ALL"]}
        spec = pod(workload)
        assert spec["securityContext"]["runAsNonRoot"] and spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_volumes_that_are_mounted_are_there() -> None:
    for workload, container in containers():
        claims = [claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])]
        there = {volume["name"] for volume in pod(workload).get("volumes", [])} | set(claims)
        assert {mount["name"] for mount in container["volumeMounts"]} <= there


def test_each_role_gets_its_own_keyring_alone() -> None:
    for workload, _, worker in ours():
        [secret] = [volume["secret"]["secretName"] for volume in pod(workload)["volumes"] if "secret" in volume]
        role = {"trainer": "worker", "global_": "global"}.get(worker, worker)
        assert secret == f"esper-keys-{role}" and role in KEYRINGS


def test_each_role_gets_the_password_of_its_own_redis_user_alone() -> None:
    given = {id(container): worker for _, container, worker in ours()}
    for _, container in containers():
        named = [each["secretRef"]["name"] for each in container.get("envFrom", []) if "secretRef" in each]
        worker = given.get(id(container), "")
        user = {"trainer": "worker", "global_": "global"}.get(worker, worker)
        assert named == ([f"esper-redis-{user}"] if worker else [])
        assert user in USERS or not worker


def test_redis_has_users_where_the_secret_of_the_acl_file_is_there() -> None:
    [redis] = [each for each in WORKLOADS if each["metadata"]["name"] == "redis"]
    [acl] = [each["secret"] for each in pod(redis)["volumes"] if each["name"] == "acl"]
    [container] = pod(redis)["containers"]
    [mounted] = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "acl"]

    assert (acl["secretName"], acl["optional"], acl["defaultMode"] & 0o007) == ("esper-redis-acl", True, 0)
    assert f"--aclfile {mounted}/users.acl" in container["command"][-1]
    assert "NOAUTH" in container["readinessProbe"]["exec"]["command"][-1]


def test_ranks_are_done_together_and_what_a_group_ends_for_is_no_failure() -> None:
    [job] = [each["spec"] for each in WORKLOADS if each["kind"] == "Job"]
    [container] = job["template"]["spec"]["containers"]
    told = {each["name"]: each for each in container["env"]}
    rules = job["podFailurePolicy"]["rules"]
    by_status = {tuple(rule["onExitCodes"]["values"]): rule["action"] for rule in rules if "onExitCodes" in rule}
    [service] = [each for each in OBJECTS if each["kind"] == "Service" and each["metadata"]["name"] == "trainer"]

    assert job["completionMode"] == "Indexed" and job["template"]["spec"]["restartPolicy"] == "Never"
    assert str(job["completions"]) == str(job["parallelism"]) == told["WORLD_SIZE"]["value"]
    assert "job-completion-index" in told["RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert told["MASTER_ADDR"]["value"] == f"trainer-0.{job['template']['spec']['subdomain']}"
    assert (
        service["metadata"]["name"] == job["template"]["spec"]["subdomain"] and service["spec"]["clusterIP"] == "None"
    )
    assert by_status == {(BAD_INPUT,): "FailJob", (EVICTED,): "Ignore"}
    assert {rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule} == {container["name"]}
    assert told["ESPER_STOP_STATUS"]["value"] == str(EVICTED)


def test_alive_and_ready_are_asked_apart() -> None:
    for _, container, _ in ours():
        paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
        assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
        assert f"{GENERATED['esper-run']['ESPER_METRICS_PORT']}" in {
            str(port["containerPort"]) for port in container["ports"]
        }


def test_each_has_the_time_to_end_in_order() -> None:
    for workload, container, worker in ours():
        grace_s = pod(workload)["terminationGracePeriodSeconds"]
        before_s = 0.0
        if worker == "trainer":
            script = container["lifecycle"]["preStop"]["exec"]["command"][-1]
            [stop] = [each["value"] for each in container["env"] if each["name"] == "ESPER_STOP_FILE"]
            assert script.startswith(f"touch {stop}; sleep ")
            before_s = float(script.rpartition(" ")[2])
        assert grace_s > before_s + DRAIN_S + 1
