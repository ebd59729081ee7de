"""The files of deploy/, validated: by systemd, by the types of KServe and Kubernetes, by a parser of recipes."""

import ast
import importlib.util
import io
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dockerfile_parse import DockerfileParser

DEPLOY = Path(__file__).parents[2] / "deploy"
PACKAGES = ("kserve/models", "kubernetes/client/models")


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "openinfer.service").read_text()
    unit = tmp_path / "openinfer.service"
    unit.write_text(text.replace("/opt/openinfer/bin/openinfer", "/bin/true"))  # which is installed here
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "openinfer" in line]) == (0, [])
    unit.write_text(text.replace("DynamicUser=yes", "DynamicUser=perhaps"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "Failed to parse boolean" in done.stderr, "it does look"


def fields(kind: str) -> dict[str, str]:
    """The fields of a type of KServe or Kubernetes in YAML, and their types, from the class that its package has."""
    for package in PACKAGES:
        top, _, rest = package.partition("/")
        found = importlib.util.find_spec(top)
        assert found is not None
        assert found.submodule_search_locations is not None
        for path in (Path(found.submodule_search_locations[0]) / rest).glob("*.py"):
            if path.stem.replace("_", "") == kind.lower():
                named = dict(_dicts(ast.parse(path.read_text())))
                return {named["attribute_map"][own]: one for own, one in named["openapi_types"].items()}
    raise AssertionError(kind)


def _dicts(tree: ast.AST) -> Iterator[tuple[str, dict[str, str]]]:
    """The two tables of a class, with or without an annotation."""
    for node in ast.walk(tree):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else ()
        )
        for target in targets:
            if isinstance(target, ast.Name) and target.id in ("openapi_types", "attribute_map"):
                assert isinstance(node, ast.Assign | ast.AnnAssign)
                assert node.value is not None
                yield target.id, ast.literal_eval(node.value)


def problems(value: Any, kind: str, where: str) -> list[str]:
    """What of a value its type does not have."""
    if listed := re.fullmatch(r"[Ll]ist\[(.*)\]", kind):
        if not isinstance(value, list):
            return [f"{where} is no list"]
        return [one for place, item in enumerate(value) for one in problems(item, listed[1], f"{where}[{place}]")]
    if kind in ("str", "bool", "int", "float"):
        known = {"str": (str,), "bool": (bool,), "int": (int,), "float": (int, float)}[kind]
        return [] if isinstance(value, known) else [f"{where} is no {kind}"]
    if kind in ("object", "datetime") or kind.lower().startswith("dict"):
        return []
    if not isinstance(value, dict):
        return [f"{where} is no {kind}"]
    known_fields = fields(kind)
    unknown = [f"{where}.{name}" for name in value if name not in known_fields]
    inside = ((name, one) for name, one in value.items() if name in known_fields)
    return unknown + [one for name, item in inside for one in problems(item, known_fields[name], f"{where}.{name}")]


MANIFESTS = {"runtime": "V1alpha1ServingRuntime", "inference-service": "V1beta1InferenceService"}


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_have_the_types_of_kserve(name: str) -> None:
    facts = yaml.safe_load((DEPLOY / "kserve" / f"{name}.yaml").read_text())
    assert MANIFESTS[name].endswith(facts["kind"])
    assert problems(facts, MANIFESTS[name], name) == []
    facts["spec"]["predictors"] = 1
    assert problems(facts, MANIFESTS[name], name) == [f"{name}.spec.predictors"], "it does look"


def test_a_container_has_no_root_and_serves_the_model() -> None:
    with (DEPLOY / "Containerfile").open("rb") as file:
        structure = DockerfileParser(fileobj=io.BytesIO(file.read())).structure
    words = [(one["instruction"], one["value"]) for one in structure if one["instruction"] != "COMMENT"]
    stages = [place for place, (word, _) in enumerate(words) if word == "FROM"]
    last = words[stages[-1] :]
    assert len(stages) == 2
    assert [value for word, value in last if word == "USER"] == ["10001"]
    assert next(value for word, value in last if word == "ENTRYPOINT").startswith('["openinfer", "serve"')
    kinds = {"ARG", "FROM", "COPY", "RUN", "USER", "ENV", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT"}
    assert {word for word, _ in words} <= kinds
