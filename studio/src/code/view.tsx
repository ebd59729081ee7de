// The code view: emitted files, kernels with what they cost, and why what was not fused was not.
import { Compartment, EditorState, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView, lineNumbers } from "@codemirror/view";
import { syntaxHighlighting } from "@codemirror/language";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { keymap } from "@codemirror/view";
import { computed, effect, signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { call } from "../api";
import { related } from "../graph/view";
import { device, during, graph, isPlanStale, needPlan, plan, revealIndex, selectedNode } from "../store";
import { cFamily, colours, vhdl } from "../text/language";
import { nonce } from "../text/editor";
import type { PlanFacts } from "../types";
import { bytes, operations } from "../values/format";
import { DeviceChooser } from "./device";
import { Obstacle } from "./obstacle";

export const chosenFunction = signal<string | null>(null);
const openFile = signal("");
const current = computed(() => (plan.value && plan.value.device === device.value ? plan.value.facts : null));

const language = new Compartment();
const setRange = StateEffect.define<{ first: number; last: number } | null>();
const range = StateField.define<{ first: number; last: number } | null>({
  create: () => null,
  update: (value, transaction) => transaction.effects.reduce((last, one) => (one.is(setRange) ? one.value : last), value),
});
const marked = EditorView.decorations.compute([range, "doc"], (state) => {
  const found = state.field(range);
  if (!found) return Decoration.none;
  const last = Math.min(found.last, state.doc.lines);
  const lines = Array.from({ length: Math.max(last - found.first + 1, 0) }, (_, at) => state.doc.line(found.first + at).from);
  return Decoration.set(lines.map((from) => Decoration.line({ class: "cm-kernel" }).range(from)));
});

/** The place of the chosen function in a file: its definition where it has one there. */
function placeIn(facts: PlanFacts, file: string, name: string | null): { first: number; last: number } | null {
  const places = facts.places.filter((one) => one.file === file && one.function === name);
  return places.find((one) => one.role === "definition") ?? places[0] ?? null;
}

export function choose(facts: PlanFacts, name: string | null): void {
  chosenFunction.value = name;
  related.value = new Set((facts.functions.find((one) => one.name === name)?.nodes ?? []).map((one) => `n${one}`));
  const home = facts.places.find((one) => one.function === name && one.role === "definition");
  if (home) openFile.value = home.file;
}

function File({ facts }: { facts: PlanFacts }) {
  const place = useRef<HTMLDivElement>(null);
  const editor = useRef<EditorView | null>(null);
  const loaded = useSignal("");
  useEffect(() => {
    const view = new EditorView({
      parent: place.current as HTMLDivElement,
      state: EditorState.create({
        extensions: [
          EditorView.cspNonce.of(nonce()), EditorState.readOnly.of(true), lineNumbers(), language.of(cFamily), syntaxHighlighting(colours), range, marked,
          search(), highlightSelectionMatches(), keymap.of(searchKeymap),
          EditorView.contentAttributes.of({ "aria-label": "an emitted file" }),
          EditorView.updateListener.of((update) => {
            if (update.selectionSet && update.view.hasFocus) selectAt(update.view);
          }),
        ],
      }),
    });
    editor.current = view;
    const selectAt = (from: EditorView): void => {
      const line = from.state.doc.lineAt(from.state.selection.main.head).number;
      const at = facts.places.find((one) => one.file === openFile.value && one.first <= line && line <= one.last);
      if (at && at.function !== chosenFunction.value) choose(facts, at.function);
    };
    return () => view.destroy();
  }, [facts]);
  useEffect(() => {
    const path = openFile.value;
    if (!path) return;
    void during(`reading ${path}`, () => call<{ text: string }>("file", { device: facts.device, path })).then((found) => {
      const view = editor.current;
      if (!found || !view || path !== openFile.value) return;
      view.dispatch({
        changes: { from: 0, to: view.state.doc.length, insert: found.text },
        effects: language.reconfigure(path.endsWith(".vhd") ? vhdl : cFamily),
      });
      loaded.value = path;
    });
  }, [openFile.value, facts]);
  useEffect(() => {
    const view = editor.current;
    if (!view || loaded.value !== openFile.value) return;
    const found = placeIn(facts, openFile.value, chosenFunction.value);
    const isThere = found !== null && found.first <= view.state.doc.lines;
    const scroll = isThere ? [EditorView.scrollIntoView(view.state.doc.line(found.first).from, { y: "start", yMargin: 12 })] : [];
    view.dispatch({ effects: [setRange.of(isThere ? found : null), ...(view.hasFocus ? [] : scroll)] });
  }, [loaded.value, chosenFunction.value, facts]);
  return (
    <div class="file">
      <nav class="files">
        {facts.files.map((one) => (
          <button key={one.path} class={one.path === openFile.value ? "current" : ""} title={bytes(one.bytes)} onClick={() => (openFile.value = one.path)}>
            {one.path}
          </button>
        ))}
      </nav>
      <div class="file-text" ref={place} />
    </div>
  );
}

/** Lines on which more than one node begins: they do not say which. */
const sharedLines = computed(() => {
  const seen = new Set<number>();
  const found = new Set<number>();
  for (const { index, line } of graph.value?.nodes ?? []) {
    if (index === null || line === null) continue;
    if (seen.has(line)) found.add(line);
    seen.add(line);
  }
  return found;
});

function Kernels({ facts }: { facts: PlanFacts }) {
  const most = Math.max(1, ...facts.kernels.map((one) => one.operations));
  return (
    <table class="kernels">
      <thead><tr><th>kernel</th><th>nodes</th><th>ops</th><th>bytes</th><th>calls</th></tr></thead>
      <tbody>
        {facts.kernels.map((one, at) => (
          <tr key={at} class={one.function !== null && one.function === chosenFunction.value ? "current" : ""} onClick={() => choose(facts, one.function)}>
            <td><b>{one.name}</b><i style={{ width: `${(100 * one.operations) / most}%` }} /></td>
            <td>{one.nodes.map((node) => (
              <button key={node.index} class="link" title={node.text} onClick={(event) => (event.stopPropagation(), choose(facts, one.function), revealIndex(node.index))}>
                {node.line !== null && !sharedLines.value.has(node.line) ? `line ${node.line}` : `node ${node.index}`}
              </button>
            ))}</td>
            <td>{operations(one.operations)}</td>
            <td>{bytes(one.bytes_read + one.bytes_written)}</td>
            <td>{one.calls ?? "?"}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Ledger({ facts }: { facts: PlanFacts }) {
  const onlyRefused = useSignal(true);
  const shown = facts.ledger.filter((one) => !onlyRefused.value || !one.fused);
  const fused = facts.ledger.filter((one) => one.fused);
  const saved = fused.reduce((sum, one) => sum + one.bytes_saved, 0);
  return (
    <div class="ledger">
      <p>
        <b>{fused.length}</b> fused, {bytes(saved)} less to move · <b>{facts.ledger.length - fused.length}</b> not fused
        <label><input type="checkbox" checked={onlyRefused.value} onChange={() => (onlyRefused.value = !onlyRefused.value)} /> only those</label>
      </p>
      <ul>
        {shown.map((one, at) => (
          <li key={at} class={one.fused ? "fused" : "refused"}>
            <button class="link" onClick={() => revealIndex(one.producer.index)}>{one.producer.text || `node ${one.producer.index}`}</button>
            <span> into </span>
            <button class="link" onClick={() => revealIndex(one.consumer.index)}>{one.consumer.text || `node ${one.consumer.index}`}</button>
            <p>{one.fused ? `saves ${bytes(one.bytes_saved)}` : one.reason}</p>
          </li>
        ))}
      </ul>
    </div>
  );
}

export function CodeView() {
  const part = useSignal<"kernels" | "ledger">("kernels");
  useEffect(() => effect(() => {
    void needPlan().then((facts) => {
      if (!facts) return;
      if (!facts.files.some((one) => one.path === openFile.value)) {
        openFile.value = facts.places.find((one) => one.role === "definition")?.file ?? facts.files[0]?.path ?? "";
      }
    });
  }), []);
  useEffect(() => effect(() => {
    const facts = current.value;
    const index = selectedNode.value?.index;
    if (!facts || index === null || index === undefined) return;
    const known = facts.functions.find((one) => one.name === chosenFunction.peek());
    if (known?.nodes.includes(index)) return;
    const found = facts.functions.find((one) => one.nodes.includes(index));
    if (found) choose(facts, found.name);
  }), []);
  useEffect(() => () => void (related.value = new Set()), []);
  const facts = current.value;
  return (
    <div class="code-view">
      <div class="bar">
        <DeviceChooser />
        {facts && <span class="quiet">{facts.title} · {facts.functions.length} functions · {facts.kernels.length} calls</span>}
        <span class="grow" />
        <div class="forms" role="tablist">
          <button role="tab" aria-selected={part.value === "kernels"} onClick={() => (part.value = "kernels")}>Kernels</button>
          <button role="tab" aria-selected={part.value === "ledger"} onClick={() => (part.value = "ledger")}>Why not fused</button>
        </div>
      </div>
      <Obstacle isAbove={facts !== null} />
      {facts && (
        <div class="code-columns" data-stale={isPlanStale.value}>
          <File facts={facts} />
          <div class="code-side">{part.value === "kernels" ? <Kernels facts={facts} /> : <Ledger facts={facts} />}</div>
        </div>
      )}
    </div>
  );
}
