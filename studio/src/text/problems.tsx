// What is wrong with the text, below it.
import { isExport } from "../api";
import { applyFix, checked, opened } from "../store";
import type { Problem } from "../types";

export function ProblemList({ problems }: { problems: Problem[] }) {
  return (
    <ul class="problems">
      {problems.map((one, number) => (
        <li key={number} class={one.severity}>
          <b>{one.code}</b> {one.line !== undefined && <i>line {one.line}</i>} <span>{one.message}</span>
          {one.help && <p>{one.help}</p>}
          {!isExport && one.fixes?.map((title) => (
            <button key={title} class="fix" onClick={() => void applyFix(one.message, title)}>{title}</button>
          ))}
          {one.notes.map((note) => <p key={note}>{note}</p>)}
        </li>
      ))}
    </ul>
  );
}

export function Problems() {
  const found = checked.value?.problems ?? [];
  if (!found.length) {
    const hint = checked.value?.needs_model ? "no problems · add --model or --size for types and running" : "no problems";
    return <div class="no-problems">{opened.value ? hint : ""}</div>;
  }
  return <ProblemList problems={found} />;
}
