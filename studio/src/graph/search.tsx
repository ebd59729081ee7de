// The search box: nodes by name, text or weight.
import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { graph, reveal } from "../store";
import { searched } from "./tree";
import { found } from "./view";

const SHOWN = 30;

export function SearchBox() {
  const wanted = useSignal("");
  const at = useSignal(0);
  const box = useRef<HTMLInputElement>(null);
  const hits = useComputed(() => (graph.value ? searched(graph.value, wanted.value) : []));
  useEffect(() => {
    const listen = (event: KeyboardEvent): void => {
      const target = event.target as HTMLElement;
      if (event.key === "/" && !target.closest("input, textarea, .cm-editor, select")) {
        event.preventDefault();
        box.current?.focus();
      }
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
  const changed = (text: string): void => {
    wanted.value = text;
    at.value = -1;
    found.value = new Set(hits.value.map((one) => one.id));
  };
  const go = (by: number): void => {
    const count = hits.value.length;
    if (!count) return;
    at.value = (at.value + by + count) % count;
    reveal((hits.value[at.value] as { id: string }).id);
  };
  return (
    <div class="search">
      <input
        ref={box} type="search" placeholder="Search nodes  ( / )" value={wanted.value} aria-label="search nodes"
        onInput={(event) => changed(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter") go(event.shiftKey ? -1 : 1);
          if (event.key === "Escape") changed("");
        }}
      />
      {wanted.value && (
        <div class="search-results" role="listbox">
          <div class="search-count">
            {hits.value.length === 0 ? "nothing found" : `${hits.value.length}${hits.value.length === 200 ? " or more" : ""} found`}
          </div>
          {hits.value.slice(0, SHOWN).map((one, number) => (
            <button
              key={one.id} class={number === at.value ? "hit current" : "hit"} role="option"
              onClick={() => ((at.value = number), reveal(one.id))}
            >
              <b>{one.label}</b> <span>{one.detail}</span> {one.line !== null && <i>{one.line}</i>}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
