// The text: an editor whose problems, selection, breakpoints and current line follow the other views.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, foldGutter, foldKeymap, foldService, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import type { Diagnostic } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState, RangeSet, StateEffect, StateField } from "@codemirror/state";
import { Decoration, drawSelection, EditorView, gutter, GutterMarker, highlightActiveLine, hoverTooltip, keymap, lineNumbers } from "@codemirror/view";
import type { DecorationSet, Tooltip } from "@codemirror/view";
import { effect } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { call, isExport } from "../api";
import {
  applyFix, breakLines, checked, checkedText, format, isStale, nodesById, graph, save, selected, selectedNode, step, text, toggleBreakpoint,
} from "../store";
import { Doc } from "./doc";
import { colours, completions, oig } from "./language";

export function nonce(): string {
  return document.querySelector<HTMLMetaElement>('meta[name="studio-nonce"]')?.content ?? "";
}

interface Lines {
  selected: number | null;
  current: number | null;
  stops: ReadonlySet<number>;
}

const setLines = StateEffect.define<Lines>();
const linesField = StateField.define<Lines>({
  create: () => ({ selected: null, current: null, stops: new Set() }),
  update: (value, transaction) => transaction.effects.reduce((last, one) => (one.is(setLines) ? one.value : last), value),
});
const lineMarks = EditorView.decorations.compute([linesField, "doc"], (state): DecorationSet => {
  const { selected: chosen, current } = state.field(linesField);
  const marks = [
    ...(chosen !== null && chosen <= state.doc.lines ? [{ line: chosen, name: "cm-chosen" }] : []),
    ...(current !== null && current <= state.doc.lines ? [{ line: current, name: "cm-current" }] : []),
  ].sort((one, other) => one.line - other.line);
  return Decoration.set(marks.map((one) => Decoration.line({ class: one.name }).range(state.doc.line(one.line).from)));
});

class StopMark extends GutterMarker {
  override toDOM(): Node {
    const mark = document.createElement("span");
    mark.className = "stop-mark";
    return mark;
  }
}

const stopGutter = gutter({
  class: "stop-gutter",
  markers: (view) => {
    const lines = [...view.state.field(linesField).stops].filter((one) => one <= view.state.doc.lines).sort((a, b) => a - b);
    return RangeSet.of(lines.map((one) => new StopMark().range(view.state.doc.line(one).from)));
  },
  lineMarkerChange: (update) => update.transactions.some((one) => one.effects.some((effect) => effect.is(setLines))),
  initialSpacer: () => new StopMark(),
  domEventHandlers: {
    mousedown(view, line) {
      if (!isExport) void toggleBreakpoint(view.state.doc.lineAt(line.from).number);
      return true;
    },
  },
});

/** A line that ends in a brace folds up to the brace that closes it. */
const folding = foldService.of((state, from, to) => {
  if (!state.doc.sliceString(from, to).trimEnd().endsWith("{")) return null;
  const indent = /^\s*/.exec(state.doc.lineAt(from).text)?.[0].length ?? 0;
  for (let number = state.doc.lineAt(from).number + 1; number <= state.doc.lines; number++) {
    const line = state.doc.line(number);
    if (line.text.startsWith("}", indent) && /^\s*/.exec(line.text)?.[0].length === indent) {
      return { from: to, to: line.from + indent };
    }
  }
  return null;
});

function diagnostics(state: EditorState): Diagnostic[] {
  const length = state.doc.length;
  return (checked.value?.problems ?? []).map((one) => {
    const from = Math.min(one.from ?? 0, length);
    const more = [one.help, ...one.notes].filter((line): line is string => line !== null && line !== "");
    return {
      from, to: Math.max(from, Math.min(one.to ?? from, length)), severity: one.severity, source: one.code,
      message: [one.message, ...more].join("\n"),
      actions: isExport ? [] : (one.fixes ?? []).map((title) => ({ name: title, apply: () => void applyFix(one.message, title) })),
    };
  });
}

/** What the language service says about a word, as text. */
async function explained(view: EditorView, pos: number): Promise<Tooltip | null> {
  const found = await call<{ text: string | null }>("hover", { index: pos, text: view.state.doc.toString() }).catch(() => null);
  if (!found?.text) return null;
  const said = found.text;
  return {
    pos, above: true,
    create: () => {
      const dom = document.createElement("div");
      dom.className = "hover-text";
      render(<Doc text={said} />, dom);
      return { dom };
    },
  };
}

/** The node whose line the cursor is on. */
function selectAt(view: EditorView): void {
  const line = view.state.doc.lineAt(view.state.selection.main.head).number;
  const facts = graph.value;
  const found = facts?.nodes.find((one) => one.line === line && one.index !== null) ?? facts?.containers.find((one) => one.line === line);
  if (found && found.id !== selected.value) selected.value = found.id;
}

function follow(view: EditorView): (() => void)[] {
  return [
    effect(() => {
      if (text.value !== view.state.doc.toString()) {
        view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text.value } });
      }
    }),
    effect(() => {
      void checked.value;
      if (checkedText.value === view.state.doc.toString()) view.dispatch(setDiagnostics(view.state, diagnostics(view.state)));
    }),
    effect(() => {
      const container = graph.value?.containers.find((one) => one.id === selected.value);
      const line = selectedNode.value?.line ?? container?.line ?? null;
      const current = isStale.value ? null : (step.value?.line ?? null);
      const stops = new Set(breakLines.value.keys());
      view.dispatch({ effects: setLines.of({ selected: line, current, stops }) });
    }),
    effect(() => {
      const current = isStale.value ? null : (step.value?.line ?? null);
      const line = nodesById.value.get(selected.value ?? "")?.line ?? current;
      if (line === null || view.hasFocus || line > view.state.doc.lines) return;
      view.dispatch({ effects: EditorView.scrollIntoView(view.state.doc.line(line).from, { y: "center" }) });
    }),
  ];
}

export function Editor() {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const view = new EditorView({
      parent: place.current as HTMLDivElement,
      state: EditorState.create({
        doc: text.value,
        extensions: [
          EditorView.cspNonce.of(nonce()), EditorState.readOnly.of(isExport), linesField, lineMarks, stopGutter, lineNumbers(), foldGutter(), folding,
          history(), drawSelection(), bracketMatching(), closeBrackets(), highlightActiveLine(), highlightSelectionMatches(),
          oig, syntaxHighlighting(colours), indentUnit.of("    "), lintGutter(),
          autocompletion({ override: [completions] }), ...(isExport ? [] : [hoverTooltip(explained)]),
          keymap.of([
            { key: "Mod-s", run: () => (void save(), true) },
            { key: "Shift-Alt-f", run: () => (void format(), true) },
            ...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...completionKeymap,
            indentWithTab,
          ]),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) text.value = update.state.doc.toString();
            if (update.selectionSet && update.view.hasFocus) selectAt(update.view);
          }),
          EditorView.contentAttributes.of({ "aria-label": "the text of the graph" }),
        ],
      }),
    });
    const stops = follow(view);
    return () => {
      for (const stop of stops) stop();
      view.destroy();
    };
  }, []);
  return <div class="editor" ref={place} />;
}
