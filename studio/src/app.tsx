// The frame of the page: text on the left, a view in the middle, what is selected on the right.
import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { isExport } from "./api";
import { CodeView } from "./code/view";
import { GraphView } from "./graph/view";
import { MemoryView } from "./memory/view";
import { Panel } from "./panel/panel";
import { busy, checked, failure, format, opened, save, savedText, text, view } from "./store";
import type { View } from "./store";
import { StepView, stepKey } from "./step/view";
import { Editor } from "./text/editor";
import { ProblemList, Problems } from "./text/problems";
import { TimelineView } from "./timeline/view";

const VIEWS: [View, string][] = [["graph", "Graph"], ["step", "Step"], ["timeline", "Timeline"], ["memory", "Memory"], ["code", "Code"]];
const isTextShown = signal(true);
const textWidth = signal(420);
const errors = computed(() => (checked.value?.problems ?? []).filter((one) => one.severity === "error").length);

function Divider() {
  const move = (event: PointerEvent): void => {
    if (event.buttons === 1) textWidth.value = Math.min(Math.max(event.clientX, 180), innerWidth - 500);
  };
  return (
    <div
      class="divider" onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)} onPointerMove={move}
      role="separator" aria-orientation="vertical"
    />
  );
}

function Header() {
  const facts = opened.value;
  const isChanged = text.value !== savedText.value;
  return (
    <header class="top">
      <b class="logo">openinfer <span>studio</span></b>
      <span class="name">{facts?.name}{isChanged ? " •" : ""}</span>
      {facts?.model && <span class="chip" title={facts.model.path}>{facts.model.path.split("/").pop()} · {facts.model.tensors.length} tensors</span>}
      {isExport && <span class="chip">read-only</span>}
      <nav role="tablist">
        {VIEWS.filter(([name]) => !isExport || name !== "step").map(([name, label]) => (
          <button key={name} role="tab" aria-selected={view.value === name} data-view={name} onClick={() => (view.value = name)}>{label}</button>
        ))}
      </nav>
      <span class="grow" />
      {busy.value && <span class="busy"><i /> {busy.value}…</span>}
      <span class={errors.value ? "errors" : "quiet"}>{errors.value ? `${errors.value} error${errors.value === 1 ? "" : "s"}` : ""}</span>
      <button aria-pressed={isTextShown.value} onClick={() => (isTextShown.value = !isTextShown.value)}>Text</button>
      {!isExport && <button title="Shift+Alt+F" onClick={() => void format()}>Format</button>}
      {!isExport && <button title="Ctrl+S" disabled={!facts?.can_save || !isChanged} onClick={() => void save()}>Save</button>}
    </header>
  );
}

function Current() {
  switch (view.value) {
    case "graph": return null;
    case "step": return <StepView />;
    case "timeline": return <TimelineView />;
    case "memory": return <MemoryView />;
    case "code": return <CodeView />;
  }
}

export function App() {
  useEffect(() => {
    const listen = (event: KeyboardEvent): void => {
      if (stepKey(event)) event.preventDefault();
      if ((event.ctrlKey || event.metaKey) && event.key === "s" && !isExport) {
        event.preventDefault();
        void save();
      }
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
  if (!opened.value) {
    return failure.value ? <main class="nothing"><ProblemList problems={failure.value} /></main> : <main class="nothing">opening…</main>;
  }
  const isGraph = view.value === "graph";
  return (
    <>
      <Header />
      {failure.value && (
        <div class="failure"><ProblemList problems={failure.value} /><button title="close" onClick={() => (failure.value = null)}>×</button></div>
      )}
      <main class="frame">
        {isTextShown.value && (
          <>
            <section class="text-pane" style={{ width: `${textWidth.value}px` }}><Editor /><Problems /></section>
            <Divider />
          </>
        )}
        <section class="main" data-shown={view.value}>
          <div class="graph-pane"><GraphView /></div>
          {!isGraph && <div class="view-pane"><Current /></div>}
        </section>
        {isGraph && <Panel />}
      </main>
    </>
  );
}
