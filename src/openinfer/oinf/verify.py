"""Checks a model file completely and describes it: ``python -m openinfer.oinf.verify FILE``.

Your own checks are functions from an open model to messages; pass them to ``verify_oinf`` or name them on the command
line as ``--check package.module:function``.
"""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from openinfer.errors import Code, Diagnostic, FileSpan, OpenInferError
from openinfer.oinf.file import AnyPath
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.report import Report, describe, summary, summary_facts
from openinfer.oinf.terminal import close_quietly, open_closed_streams, output_failure, progress_bar

Check = Callable[[ModelLoader], Iterable[object] | None]
"""Each item that a check returns or yields is a finding: a ``Diagnostic`` or a message."""


def verify_oinf(path: AnyPath, checks: Sequence[Check] = ()) -> Report:
    """Read the whole file, run your own checks, print the documented summary, and return the report.

    A bad file raises ``OinfError``; the findings of ``checks`` raise it too, all together.
    """
    report = examine(path, checks)
    print(report.text())
    _raise_findings(report)
    return report


def examine(path: AnyPath, checks: Sequence[Check] = (), names: Sequence[str] | None = None) -> Report:
    """Read and check the whole file without printing; the report describes all tensors, or the named ones."""
    with ModelLoader.open(path) as model:
        shown = list(model.tensors) if names is None else names
        with progress_bar("reading", sum(model.info(name).nbytes for name in shown)) as advance:
            report = describe(model, shown, advance=advance, checks=[_located(check) for check in checks])
        for info in model.tensors.values():
            if info.has_data:
                model.load(info.name)
        return report


def _located(check: Check) -> Callable[[ModelLoader], Iterator[Diagnostic]]:
    """Wrap a user's check so that its plain messages, and whatever it raises, become diagnostics."""

    def run(model: ModelLoader) -> Iterator[Diagnostic]:
        span = FileSpan(model.path)
        try:
            for found in _findings(check(model)):
                yield found if isinstance(found, Diagnostic) else Diagnostic(Code.CHECK_FAILED, str(found), span)
        except Exception as error:  # noqa: BLE001  (whatever a user's check raises is a finding)
            reason = error.message if isinstance(error, OpenInferError) else str(error)
            name = getattr(check, "__qualname__", repr(check))
            yield Diagnostic(Code.CHECK_FAILED, f"the check {name} raised {type(error).__name__}: {reason}", span)

    return run


def _findings(returned: Iterable[object] | None) -> Iterable[object]:
    if returned is None:
        return ()
    return [returned] if isinstance(returned, str | Diagnostic) else returned


def _raise_findings(report: Report) -> None:
    if not report.ok:
        raise OpenInferError(*report.diagnostics)


def load_check(name: str) -> Check:
    """Import the function that ``package.module:function`` names, from the path or the current folder."""
    module_name, _, function_name = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        check: Check = getattr(importlib.import_module(module_name), function_name)
    except Exception as error:  # a user's module can raise anything when it is imported
        raise _no_check(name, str(error)) from error
    if not callable(check):
        raise _no_check(name, "it is not a function")
    return check


def _no_check(name: str, reason: str) -> OpenInferError:
    message = f"cannot load the check {name!r}: {reason}"
    return OpenInferError(Diagnostic(Code.CHECK_FAILED, message, help="write it as package.module:function"))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status is 0 for a good file, 1 for a bad one, 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="verify_oinf", description="Check an .oinf model file and describe it.")
    parser.add_argument("file", metavar="FILE", help="the model file")
    parser.add_argument("--json", action="store_true", help="print facts for a program")
    parser.add_argument("--summary", action="store_true", help="print a few lines for release notes")
    parser.add_argument("--tensor", action="append", metavar="NAME", help="describe only this tensor (repeatable)")
    parser.add_argument("--check", action="append", default=[], metavar="MODULE:FUNCTION", help="also run this check")
    options = parser.parse_args(arguments)
    open_closed_streams()
    try:
        status = run(options.file, options.tensor, options.check, as_json=options.json, as_summary=options.summary)
        sys.stdout.flush()
    except BrokenPipeError:
        close_quietly()
        return 0
    except OSError as error:
        print(output_failure(error).render(), file=sys.stderr)
        return 1
    return status


def run(path: str, names: Sequence[str] | None, checks: Sequence[str], *, as_json: bool, as_summary: bool) -> int:
    """Verify a file and print the outcome in the requested form."""
    try:
        report = examine(path, [load_check(name) for name in checks], names)
        if as_summary:
            with ModelLoader.open(path) as model:
                print(json.dumps(summary_facts(model) | _outcome(report), indent=2) if as_json else summary(model))
        else:
            print(report.to_json() if as_json else report.text())
        if not as_json:
            _raise_findings(report)
        return 0 if report.ok else 1
    except OpenInferError as error:
        if as_json:
            print(failure_json(path, error))
        else:
            print(error, file=sys.stderr)
        return 1


def _outcome(report: Report) -> dict[str, object]:
    return {"ok": report.ok, "diagnostics": [diagnostic.facts() for diagnostic in report.diagnostics]}


def failure_json(path: str, error: OpenInferError) -> str:
    """The output of ``--json`` for a file that cannot be read."""
    diagnostics = [diagnostic.facts() for diagnostic in error.diagnostics]
    return json.dumps({"path": path, "ok": False, "diagnostics": diagnostics}, indent=2)


if __name__ == "__main__":
    sys.exit(main())
