"""The package as a whole."""

import subprocess
import sys

import pytest

import openinfer


def test_every_public_name_can_be_imported() -> None:
    for name in openinfer.__all__:
        assert getattr(openinfer, name) is not None
    assert set(openinfer.__all__) - {"__version__"} == set(openinfer._HOMES)
    assert dir(openinfer) == sorted([*openinfer.__all__, *openinfer._PACKAGES])


def test_packages_are_there_without_being_imported_first() -> None:
    program = "import openinfer; print(openinfer.{0}.__name__)"
    for name in ("oinf", "synth"):
        done = subprocess.run([sys.executable, "-c", program.format(name)], capture_output=True, text=True, check=True)
        assert done.stdout == f"openinfer.{name}\n"
    for name in openinfer._PACKAGES:
        assert getattr(openinfer, name).__name__ == f"openinfer.{name}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = openinfer.nonsense


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = "import sys, openinfer; print(sorted({'numpy', 'pydantic', 'typer', 'rich', 'lark'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_model_files_need_no_command_line_packages() -> None:
    program = "import sys, openinfer.oinf; print(sorted({'pydantic', 'typer', 'rich', 'lark'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
