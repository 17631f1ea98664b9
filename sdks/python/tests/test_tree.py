"""The package agrees with the rest of the repository, and with its own rules."""

from __future__ import annotations

import ast
import inspect
import json
import pathlib
import re
import subprocess
import sys
import unittest
from typing import Any, Dict, Iterator, Tuple, Type

import forkd
from forkd import archives, hub, models, reports
from forkd._convert import Model, wire_keys
from forkd._remedies import known_actions
from forkd.errors import _retryable, error_classes

sdk = pathlib.Path(__file__).resolve().parent.parent
repository = sdk.parent.parent
openapi = repository / "docs" / "reference" / "openapi.json"

#: Where each model is in the answers: route and, if it is not the answer itself, the way to it.
_places: Dict[Type[Model], Tuple[str, str]] = {
    models.SandboxInfo: ("getSandbox", ""),
    models.SandboxNetwork: ("getSandbox", "network"),
    models.NotEnforced: ("getSandbox", "limits_not_enforced"),
    models.Ping: ("ping", ""),
    models.CommandInfo: ("listExecs", ""),
    models.ServiceInfo: ("listServices", ""),
    models.Context: ("listContexts", ""),
    models.EvalInfo: ("listEvals", ""),
    models.FileEntry: ("statFile", ""),
    models.PortInfo: ("openPort", ""),
    models.NetworkInfo: ("getNetwork", ""),
    models.NetworkRule: ("getNetwork", "rules"),
    models.NetworkCounters: ("getNetwork", "counters"),
    models.NetworkLogEntry: ("networkLog", ""),
    models.PresetInfo: ("setPreset", ""),
    models.SecretInfo: ("setSecret", ""),
    models.KeyInfo: ("createKey", ""),
    models.WorkspaceInfo: ("getWorkspace", ""),
    models.WorkspaceLost: ("getWorkspace", "lost"),
    reports.SnapshotInfo: ("compact", ""),
    reports.SnapshotDetail: ("snapshotInfo", ""),
    reports.BranchInfo: ("branch", ""),
    reports.Verification: ("snapshotInfo", "verification"),
    reports.Hazard: ("snapshotInfo", "verification hazards"),
    reports.RemovedSnapshots: ("removeSnapshot", ""),
    archives.UnpackedArchive: ("unpackSnapshot", ""),
    reports.EvalResult: ("eval", ""),
    reports.Display: ("eval", "results"),
    reports.ErrorInfo: ("eval", "error_info"),
    reports.Version: ("version", ""),
    reports.Status: ("status", ""),
    reports.DoctorReport: ("doctor", ""),
    reports.Check: ("doctor", "checks"),
    reports.Stats: ("stats", ""),
    reports.SandboxStats: ("stats", "sandboxes"),
    reports.Tree: ("tree", ""),
    reports.GcReport: ("gc", ""),
    reports.CleanupReport: ("cleanup", ""),
    reports.ShutdownResult: ("shutdown", ""),
    hub.SignResult: ("signPushed", ""),
    hub.SearchResult: ("searchHub", ""),
    hub.FoundSnapshot: ("searchHub", "found"),
}
#: Fields that the objects of this SDK have instead.
_elsewhere = {reports.BranchInfo: {"children"}}


def _sources() -> Iterator[pathlib.Path]:
    for folder in ("src", "tests", "tools"):
        yield from sorted((sdk / folder).rglob("*.py"))


class OwnRules(unittest.TestCase):
    def test_the_blocking_classes_are_made_from_those_for_asyncio(self) -> None:
        check = [sys.executable, str(sdk / "tools" / "make-sync.py"), "--check"]
        done = subprocess.run(check, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_every_file_is_python_3_9_and_short(self) -> None:
        for path in _sources():
            text = path.read_text()
            ast.parse(text, str(path), feature_version=(3, 9))
            most = 600 if "tests" in path.parts else 400
            self.assertLessEqual(text.count("\n"), most, f"{path} is too long")

    def test_types_that_are_evaluated_are_python_3_9(self) -> None:
        for name in forkd.__all__:
            value = getattr(forkd, name)
            if inspect.isclass(value) and issubclass(value, Model):
                self.assertIsInstance(wire_keys(value), dict)
        for path in (sdk / "src").rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
                    self.assertNotIn("None", ast.dump(node), f"{path}:{node.lineno}")

    def test_every_public_symbol_is_described(self) -> None:
        missing = []
        for name in forkd.__all__:
            value = getattr(forkd, name)
            if not inspect.isclass(value):
                continue
            if not (value.__dict__.get("__doc__") or "").strip() or "(raw:" in (value.__doc__ or ""):
                missing.append(name)
            for member, each in vars(value).items():
                is_call = inspect.isfunction(each) or isinstance(each, (classmethod, property))
                if not member.startswith("_") and is_call and not inspect.getdoc(getattr(value, member)):
                    missing.append(f"{name}.{member}")
        self.assertEqual(missing, [])

    def test_both_flavours_have_the_same_members(self) -> None:
        for name in forkd.__all__:
            if not name.startswith("Async"):
                continue
            here = getattr(forkd, name)
            there = getattr(forkd, name[len("Async") :])
            members = {each.replace("aclose", "close") for each in dir(here) if not each.startswith("_")}
            self.assertEqual(members, {each for each in dir(there) if not each.startswith("_")}, name)

    def test_the_version_is_in_one_piece(self) -> None:
        project = (sdk / "pyproject.toml").read_text()
        self.assertIn(f'\nversion = "{forkd.__version__}"\n', project)


@unittest.skipUnless(openapi.exists(), "not in the repository")
class Drift(unittest.TestCase):
    def test_models_have_the_fields_of_the_contract(self) -> None:
        outputs = _outputs(json.loads(openapi.read_text()))
        for model, (route, way) in _places.items():
            schema = outputs[route]
            for name in way.split():
                schema = _object(schema["properties"][name])
            wire = set(schema["properties"]) - _elsewhere.get(model, set())
            known = {key for keys in wire_keys(model).values() for key in keys}
            with self.subTest(model=model.__name__):
                self.assertEqual(wire - known, set(), "fields that the model lacks")
                unknown = [name for name, keys in wire_keys(model).items() if not wire.intersection(keys)]
                self.assertEqual(unknown, [], "fields that the contract lacks")

    def test_every_route_for_programs_is_used(self) -> None:
        document = json.loads(openapi.read_text())
        names = {each["operationId"] for path in document["paths"].values() for each in path.values()}
        source = "".join(path.read_text() for path in (sdk / "src" / "forkd").rglob("*.py") if "_sync" not in path.parts)
        source = source.replace((sdk / "src/forkd/_routes.py").read_text(), "")
        # The CLI shows settings, metrics are for Prometheus, and set_timeouts() includes setTtl.
        left = {"health", "config", "metrics", "setTtl", "connectPort"}
        unused = {name for name in names if f'"{name}"' not in source and not name.startswith("proxyPort")}
        self.assertEqual(unused - left, set())

    def test_errors_have_every_code_of_the_daemon(self) -> None:
        table = (repository / "packages/contract/src/wire/errors.ts").read_text()
        rows = re.findall(r"^  (\w+): \{ status: \d+, exit: \d+, retryable: (true|false) \}", table, re.M)
        self.assertEqual({code for code, _ in rows}, set(error_classes))
        self.assertEqual({code for code, retryable in rows if retryable == "true"}, set(_retryable))

    def test_remedies_have_words_for_every_action(self) -> None:
        table = (repository / "packages/contract/src/wire/remedies.ts").read_text()
        start = table.index("const remedyParameters")
        actions = re.findall(r"^  (\w+): \{", table[start : table.index("} as const", start)], re.M)
        self.assertEqual(set(actions), set(known_actions))


def _outputs(document: Dict[str, Any]) -> Dict[str, Any]:
    found = {}
    for path in document["paths"].values():
        for operation in path.values():
            for status, answer in operation["responses"].items():
                content = answer.get("content", {})
                kind = content.get("application/json") or content.get("application/x-ndjson")
                if status.startswith("2") and kind is not None:
                    found[operation["operationId"]] = _object(kind["schema"])
    return found


def _object(schema: Dict[str, Any]) -> Dict[str, Any]:
    """The object of a schema, of a list of objects, or of an alternative."""
    if "items" in schema:
        return _object(schema["items"])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return next(_object(each) for each in schema[word] if each.get("type") != "null")
    return schema
