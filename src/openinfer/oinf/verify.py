"""Check a model file completely and say what is in it: ``python -m openinfer.oinf.verify FILE``.

Checks of your own are functions from an open model to messages; give them to ``verify_oinf`` or name them on the
command line as ``--check package.module:function``.
"""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from openinfer.errors import Code, Diagnostic, FileSpan, OpenInferError
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.report import Report, describe, summary
from openinfer.oinf.terminal import close_quietly, progress_bar

Check = Callable[[ModelLoader], Iterable[str | Diagnostic]]


def verify_oinf(path: str | os.PathLike[str], checks: Sequence[Check] = ()) -> Report:
    """Read the whole file, run your own checks, print the documented summary, and return what was printed.

    A bad file raises ``OinfError``; the findings of ``checks`` raise it too, all together.
    """
    report = examine(path, checks)
    print(report.text())
    _raise_findings(report)
    return report


def examine(path: str | os.PathLike[str], checks: Sequence[Check] = (), names: Sequence[str] | None = None) -> Report:
    """Read and check the whole file without printing; the report describes all tensors, or those named."""
    with ModelLoader.open(path) as model:
        shown = list(model.tensors) if names is None else names
        with progress_bar("reading", sum(model.info(name).nbytes for name in shown)) as advance:
            report = describe(model, shown, advance=advance, checks=[_located(check) for check in checks])
        for info in model.tensors.values():
            if info.has_data:
                model.load(info.name)
        return report


def _located(check: Check) -> Callable[[ModelLoader], Iterator[Diagnostic]]:
    """A user's check whose plain messages become diagnostics."""

    def run(model: ModelLoader) -> Iterator[Diagnostic]:
        for found in check(model):
            yield (
                found if isinstance(found, Diagnostic) else Diagnostic(Code.CHECK_FAILED, found, FileSpan(model.path))
            )

    return run


def _raise_findings(report: Report) -> None:
    if not report.ok:
        raise OpenInferError(*report.diagnostics)


def load_check(name: str) -> Check:
    """The function that ``package.module:function`` names, found on the path or in the current folder."""
    module_name, _, function_name = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        check: Check = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"cannot load the check {name!r}: {error}"
        advice = "write it as package.module:function"
        raise OpenInferError(Diagnostic(Code.CHECK_FAILED, message, help=advice)) from error
    return check


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status is 0 for a good file, 1 for a bad one, 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="verify_oinf", description="Check an .oinf model file and describe it.")
    parser.add_argument("file", metavar="FILE", help="the model file")
    parser.add_argument("--json", action="store_true", help="print facts for a program")
    parser.add_argument("--summary", action="store_true", help="print a few lines for release notes")
    parser.add_argument("--tensor", action="append", metavar="NAME", help="describe only this tensor (repeatable)")
    parser.add_argument("--check", action="append", default=[], metavar="MODULE:FUNCTION", help="also run this check")
    options = parser.parse_args(arguments)
    try:
        return run(options.file, options.tensor, options.check, as_json=options.json, as_summary=options.summary)
    except BrokenPipeError:
        close_quietly()
        return 0


def run(path: str, names: Sequence[str] | None, checks: Sequence[str], *, as_json: bool, as_summary: bool) -> int:
    """Verify a file and print the outcome in the form asked for."""
    try:
        report = examine(path, [load_check(name) for name in checks], names)
        if as_summary:
            with ModelLoader.open(path) as model:
                print(summary(model))
        else:
            print(report.to_json() if as_json else report.text())
        if not as_json:
            _raise_findings(report)
        return 0 if report.ok else 1
    except OpenInferError as error:
        if as_json:
            print(
                json.dumps({"path": path, "ok": False, "diagnostics": [d.facts() for d in error.diagnostics]}, indent=2)
            )
        else:
            print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
