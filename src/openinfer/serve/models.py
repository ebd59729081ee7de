"""A served model: its compiled files, and the pool that runs its steps."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from openinfer.errors import Code, Diagnostic, ImportingError, ServingError
from openinfer.importing import gguf_chat_format, gguf_tokenizer
from openinfer.oinf import ModelLoader
from openinfer.serve.interface import interface_of
from openinfer.serve.options import RunOptions, SessionOptions
from openinfer.serve.pool import InstancePool, NodeTracer, StepModule
from openinfer.serve.sessions import SessionPool, session_bytes
from openinfer.serve.states import StateFolder
from openinfer.serve.text import TextPool, text_graphs
from openinfer.serve.watching import EventLog, Metrics, ModelWatcher
from openinfer.serve.work import Job, WorkQueue
from openinfer.synth.run.module import CompiledModule
from openinfer.workers import WorkerGroup

MOST_NODES = 1000
"""The most nodes that are recorded of a traced step."""


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model; ``prefill`` and ``tokenizer`` are for language models that generate text."""

    graph: str
    model: str | None = None
    prefill: str | None = None
    tokenizer: str | None = None


class StepPool(Protocol):
    """Runs steps of graphs with or without persistent memory."""

    queue: WorkQueue
    tracer: NodeTracer | None
    """Runs steps that record their nodes; None if that is not allowed."""

    def submit(self, job: Job) -> None:
        """Queue a step."""

    def drop(self, job: Job) -> None:
        """Cancel a job whose client no longer waits."""

    def close(self) -> None:
        """Run all waiting jobs, then stop."""


@dataclass(frozen=True)
class Serving:
    """Settings that all models of a server share."""

    run: RunOptions = field(default_factory=RunOptions)
    sessions: SessionOptions = field(default_factory=SessionOptions)
    metrics: Metrics = field(default_factory=Metrics)
    log: EventLog = field(default_factory=EventLog)


class Served:
    """One version of a model, ready for requests."""

    def __init__(self, name: str, version: str, files: ModelFiles, serving: Serving) -> None:
        self.name, self.version = name, version
        self.watcher = ModelWatcher(serving.metrics, serving.log, name, version)
        with ExitStack() as opened:
            model = None if files.model is None else opened.enter_context(ModelLoader.open(files.model))
            recipe = serving.run.recipe(files.graph, files.model)
            plan = recipe.plan(model)
            self.interface = interface_of(plan)
            self.platform = f"openinfer_{plan.arch.device.type}"
            self.text: TextPool | None = None
            module: StepModule
            tracer: NodeTracer | None = None
            if serving.run.is_isolated:
                _require_no_texts(files)
                group = WorkerGroup(recipe, serving.run.instances, self.watcher.worker_lost)
                opened.callback(group.close)
                module = group.module()
            else:
                module = own = recipe.built(plan)
                self.text = None if files.tokenizer is None else self._text(files, own, model, serving)
                if serving.run.traces_nodes:
                    tracer = NodeTracer(recipe.traced(plan, own, MOST_NODES))
            self.pool = self._pool(module, serving, tracer)
            self._opened = opened.pop_all()
        self.watcher.waiting(lambda: len(self.pool.queue))
        self.watcher.log("model loaded", facts=self.facts(module))

    def _pool(self, module: StepModule, serving: Serving, tracer: NodeTracer | None) -> StepPool:
        if not self.interface.is_stateful:
            return InstancePool(module, self.interface, serving.run, self.watcher, tracer)
        kept = serving.sessions
        states = None if kept.folder is None else StateFolder(kept.folder, self.name, self.version, kept.kept)
        module = module if self.text is None else module.another()
        return SessionPool(module, self.interface, serving.run, kept, states, self.watcher, tracer)

    def _text(self, files: ModelFiles, decode: CompiledModule, model: ModelLoader | None, serving: Serving) -> TextPool:
        if files.prefill is None or files.tokenizer is None:
            message = "a language model has a graph for prompts, too"
            raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, None, "add --prefill GRAPH"))
        try:
            form = gguf_chat_format(files.tokenizer)
        except ImportingError:
            form = None  # the model was not trained for conversations, or their format is unknown
        recipe = serving.run.recipe(files.prefill, files.model)
        prefill = recipe.built(recipe.plan(model))
        graphs = text_graphs(prefill, decode, gguf_tokenizer(files.tokenizer), form)
        return TextPool(graphs, serving.run, self.watcher)

    def facts(self, module: StepModule) -> dict[str, object]:
        """What the log says about the model."""
        facts: dict[str, object] = {"inputs": [one.facts() for one in self.interface.inputs.values()]}
        if isinstance(self.pool, SessionPool):
            facts |= {"sessions": self.pool.most, "session_bytes": session_bytes(module)}
        return facts

    def metadata(self, versions: list[str]) -> dict[str, object]:
        """The protocol's description of the model."""
        sides = {"inputs": self.interface.inputs, "outputs": self.interface.outputs}
        tensors = {side: [one.facts() for one in found.values()] for side, found in sides.items()}
        return {"name": self.name, "versions": versions, "platform": self.platform, **tensors}

    def close(self) -> None:
        """Answer waiting requests, save sessions, and close the files."""
        if self.text is not None:
            self.text.close()
        self.pool.close()
        self._opened.close()
        self.watcher.log("model unloaded")


def _require_no_texts(files: ModelFiles) -> None:
    if files.tokenizer is not None:
        message = "a language model runs in the process of the server: its two graphs share a state"
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, None, "leave out --isolate, or --tokenizer"))


def named_files(folder: Path) -> ModelFiles:
    """The files in the folder of a model version."""
    graphs = sorted(folder.glob("*.oig")) + sorted(folder.glob("*.json"))
    prefill = [one for one in graphs if one.stem.endswith("prefill")]
    steps = [one for one in graphs if one not in prefill]
    models, tokenizers = sorted(folder.glob("*.oinf")), sorted(folder.glob("*.gguf"))
    if len(steps) != 1 or len(models) > 1 or len(prefill) > 1 or len(tokenizers) > 1:
        message = f"{str(folder)!r} has {len(steps)} graphs and {len(models)} models; a version has one of each"
        advice = "a folder of a version: graph.oig, model.oinf, and for texts prefill.oig and tokenizer.gguf"
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, None, advice))
    others = (str(found[0]) if found else None for found in (models, prefill, tokenizers))
    return ModelFiles(str(steps[0]), *others)
