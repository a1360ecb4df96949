"""The package is typed as strictly as mypy checks, the native half is what its stub says, and importing is cheap."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys

import pytest

PYTHON = pathlib.Path(__file__).resolve().parents[1]

needs_mypy = pytest.mark.skipif(
    importlib.util.find_spec("mypy") is None, reason="mypy is not installed: types are NOT checked"
)


def run(*arguments: str) -> None:
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=PYTHON, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert ran.returncode == 0, ran.stdout


@needs_mypy
def test_mypy_is_content() -> None:
    run("-m", "mypy", "--python-version", "3.10", "--config-file", "pyproject.toml")


@needs_mypy
def test_the_native_half_is_what_its_stub_says(tmp_path: pathlib.Path) -> None:
    # The aliases are names for people who read the stub.
    ours = "\n".join(f"waystation._core.{name}" for name in ("KeyTuple", "Region", "Topology", "Progress", "__all__"))
    allowed = tmp_path / "allowed"
    allowed.write_text(ours)
    run("-m", "mypy.stubtest", "waystation._core", "--mypy-config-file", "pyproject.toml", "--allowlist", str(allowed))


def test_importing_the_package_imports_no_framework() -> None:
    run(
        "-c",
        """
import sys, time
began = time.perf_counter()
import waystation
took = time.perf_counter() - began
heavy = {"numpy", "torch", "ml_dtypes", "tqdm", "transformers", "waystation._core"} & set(sys.modules)
assert not heavy, heavy
assert took < 1, took
waystation.open, waystation.save, waystation.latest, waystation.restore
heavy = {"torch", "ml_dtypes", "tqdm"} & set(sys.modules)
assert not heavy, heavy
""",
    )


def test_the_source_runs_on_the_oldest_python() -> None:
    import ast

    for path in sorted((PYTHON / "waystation").rglob("*.py")):
        ast.parse(path.read_text(), str(path), feature_version=(3, 10))
