"""The manifests are what Kubernetes and compose take, and what they set is what the server knows."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import latest_version, validate

from tilewise.server.service.settings import Settings, settings_fields

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
OBJECTS = [(path.name, item) for path in MANIFESTS for item in yaml.safe_load_all(path.read_text())]
VARIABLES = {f"TILEWISE_{field.name.upper()}" for field in settings_fields()}


def kind(name: str) -> Any:
    return next(item for _, item in OBJECTS if item["kind"] == name)


@pytest.mark.parametrize(
    "item", [item for _, item in OBJECTS], ids=[f"{file}:{item['kind']}" for file, item in OBJECTS]
)
def test_each_manifest_is_valid_by_kubernetes_own_schema(item: Any) -> None:
    validate(item, latest_version(), strict=True)


def test_a_manifest_with_a_mistake_is_not() -> None:
    wrong = yaml.safe_load((DEPLOY / "kubernetes" / "service.yaml").read_text())
    wrong["spec"]["ports"][0]["prot"] = 1
    with pytest.raises(Exception, match="prot"):
        validate(wrong, latest_version(), strict=True)


def test_the_kustomization_names_every_manifest() -> None:
    named = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())["resources"]
    assert sorted(named) == [path.name for path in MANIFESTS]


def test_the_settings_of_the_pods_are_those_of_a_safe_server() -> None:
    found = Settings(**tomllib.loads(kind("ConfigMap")["data"]["server.toml"]))
    assert found.tls_cert and found.tokens and not found.insecure
    pod = kind("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert found.address.endswith(f":{ports['grpc']}") and found.metrics_address.endswith(f":{ports['metrics']}")
    mounts = tuple(mount["mountPath"] for mount in container["volumeMounts"])
    for path in (found.tls_cert, found.tls_key, found.tokens, container["args"][1]):
        assert path.startswith(mounts)
    assert {variable["name"] for variable in container["env"]} <= VARIABLES
    assert pod["terminationGracePeriodSeconds"] > 5 + found.grace_s


def test_services_and_budgets_select_the_pods() -> None:
    labels = kind("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    for name, path in (("Service", ("selector",)), ("PodDisruptionBudget", ("selector", "matchLabels"))):
        selector = kind(name)["spec"]
        for key in path:
            selector = selector[key]
        assert selector.items() <= labels
    assert kind("Service")["spec"]["clusterIP"] == "None"


def test_compose_sets_what_the_server_knows_and_every_secret_is_declared() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for name in ("first", "second"):
        replica = compose["services"][name]
        assert set(replica["environment"]) <= VARIABLES
        assert set(replica["secrets"]) <= set(compose["secrets"])
        settings = {key.removeprefix("TILEWISE_").lower(): value for key, value in replica["environment"].items()}
        assert Settings(**{**settings, "grace_s": float(settings["grace_s"])}).tls_cert.startswith("/run/secrets/")
