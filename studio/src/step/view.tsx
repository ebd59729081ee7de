// The step view: the debugger. The picture and the text show where execution stands.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call, isExport } from "../api";
import {
  busy, checked, during, failure, inputTexts, isStale, problemsOf, selectedNode, startStepping, step, stepCall, stepCount,
} from "../store";
import { ProblemList } from "../text/problems";
import type { Cell, StepFacts, StepVariable, ValueFacts } from "../types";
import { duration, number } from "../values/format";
import { Histogram } from "../values/histogram";
import { typeText, Value } from "../values/value";

/** The variable that is looked at. */
const looked = { name: "" };

const MOVES: [string, string, string, string][] = [
  ["over", "Next", "F10", "one node; a loop, branch, call or scope as a whole"],
  ["into", "Into", "F11", "one node; into loops, branches, calls and scopes"],
  ["out", "Out", "⇧F11", "to the end of the loop, scope or block"],
  ["finish", "Finish step", "", "to the end of this step"],
  ["resume", "Continue", "F5", "to the next breakpoint, over all steps"],
];

function Controls({ facts }: { facts: StepFacts }) {
  const isRunning = busy.value !== null;
  const target = selectedNode.value?.index ?? null;
  return (
    <div class="step-controls">
      <button disabled={isRunning || facts.back === 0} title="be where the last move began" onClick={() => void stepCall("back", {}, "going back")}>
        ← Back
      </button>
      {MOVES.map(([how, label, key, title]) => (
        <button key={how} disabled={isRunning || facts.finished} title={`${title} ${key}`} onClick={() => void stepCall("move", { name: how })}>
          {label}
        </button>
      ))}
      <button disabled={isRunning || facts.finished || target === null} title="until the selected node comes next" onClick={() => void stepCall("run-to", { index: target })}>
        Run to here
      </button>
      <button disabled={isRunning} onClick={() => void stepCall("restart")}>Restart</button>
      <button disabled={!isRunning} class="stop" onClick={() => void call("interrupt")}>Interrupt</button>
    </div>
  );
}

function Where({ facts }: { facts: StepFacts }) {
  const indices = Object.entries(facts.indices).map(([name, value]) => `${name} = ${value}`).join(", ");
  const halt = facts.halt;
  return (
    <div class="where">
      <div>
        <b>{facts.finished ? facts.steps === 1 ? "the step is done" : `all ${facts.steps} steps done` : `step ${facts.step + 1} of ${facts.steps}`}</b>
        {indices && <span class="chip">{indices}</span>}
        {facts.frames.length > 1 && <span class="chip">{facts.frames.join(" › ")}</span>}
        {halt && <span class="quiet">{halt.nodes} node{halt.nodes === 1 ? "" : "s"}, {duration(halt.nanoseconds)}</span>}
      </div>
      {facts.text && <pre class="next">{facts.text}</pre>}
      {halt?.stops.map((one) => <p key={one} class="stopped">breakpoint: {one}</p>)}
      {halt?.interrupted && <p class="stopped">interrupted</p>}
      {halt && Object.entries(halt.returned).map(([name, value]) => <p key={name} class="returned">{name} = {value}</p>)}
      {halt && halt.problems.length > 0 && <ProblemList problems={halt.problems} />}
    </div>
  );
}

function Breakpoints({ facts }: { facts: StepFacts }) {
  const wanted = useSignal("");
  const add = async (): Promise<void> => {
    if (!wanted.value.trim()) return;
    await stepCall("break", { text: wanted.value.trim() });
    if (!failure.value) wanted.value = "";
  };
  return (
    <section>
      <h3>Breakpoints</h3>
      <ul class="stops">
        {facts.stops.map((one) => (
          <li key={one.number}>
            <span>{one.text}</span>
            <button title="delete" onClick={() => void stepCall("delete", { index: one.number })}>×</button>
          </li>
        ))}
      </ul>
      <input
        value={wanted.value} placeholder="op matmul · write h · nan · if max(h) > 3" aria-label="new breakpoint"
        onInput={(event) => (wanted.value = event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Enter" && void add()}
      />
      <p class="quiet">or click beside a line of the text</p>
    </section>
  );
}

function Watches({ facts }: { facts: StepFacts }) {
  const wanted = useSignal("");
  return (
    <section>
      <h3>Watch</h3>
      {facts.watches.map((one) => (
        <div key={one.name} class="watch">
          <b>{one.name}</b>
          {one.error ? <span class="error">{one.error}</span> : (
            <>
              <span class="type">{typeText(one as ValueFacts)}</span>
              <span>{one.shape?.length === 0 ? number(one.line?.values[0]) : `${number(one.statistics?.min)} … ${number(one.statistics?.max)}`}</span>
              {one.histogram && one.shape?.length !== 0 && <Histogram of={one.histogram} />}
            </>
          )}
          <button title="watch no longer" onClick={() => void stepCall("unwatch", { name: one.name })}>×</button>
        </div>
      ))}
      <input
        value={wanted.value} placeholder="h · h[0] · K[l, 0..3]" aria-label="new watch"
        onInput={(event) => (wanted.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter") return;
          void stepCall("watch", { name: wanted.value.trim() });
          wanted.value = "";
        }}
      />
    </section>
  );
}

/** How full a table is. */
function Growth({ of }: { of: StepVariable }) {
  const bounds = Object.values(of.fixed ?? {});
  return (
    <span class="growth" title="entries of the table">
      {(of.extents ?? []).slice(0, Math.max(bounds.length, 1)).map((count, axis) => {
        const most = bounds[axis];
        return (
          <span key={axis}>
            {count}{most !== undefined ? ` / ${most}` : ""}
            {most !== undefined && <i style={{ width: `${Math.round((100 * count) / Math.max(most, 1))}%` }} />}
          </span>
        );
      })}
    </span>
  );
}

function Variables({ facts, name, onLook }: { facts: StepFacts; name: string; onLook: (name: string) => void }) {
  const filter = useSignal("");
  const order = ["dynamic", "temporary", "volatile", "persistent", "constant"];
  const shown = facts.variables
    .filter((one) => one.name.toLowerCase().includes(filter.value.toLowerCase()))
    .sort((one, other) => Number(other.changed) - Number(one.changed) || order.indexOf(one.kind) - order.indexOf(other.kind));
  return (
    <section class="variables">
      <h3>Variables <input type="search" placeholder="filter" value={filter.value} onInput={(event) => (filter.value = event.currentTarget.value)} /></h3>
      <ul>
        {shown.map((one) => (
          <li key={one.name}>
            <button
              class={`variable ${one.changed ? "changed" : ""} ${one.name === name ? "current" : ""}`} disabled={one.family} data-variable={one.name}
              onClick={() => onLook(one.name)}
            >
              <span class={`kind ${one.kind}`}>{one.kind}</span>
              <b>{one.name}</b>
              <span class="preview">{one.text}</span>
              {one.extents && <Growth of={one} />}
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Looked({ name, facts }: { name: string; facts: StepFacts }) {
  const value = useSignal<ValueFacts | null>(null);
  const error = useSignal("");
  const target = useSignal("");
  const said = useSignal("");
  const load = async (lead: number[]): Promise<void> => {
    try {
      value.value = await call<ValueFacts>("value", { lead, name });
      error.value = "";
    } catch (problem) {
      value.value = null;
      error.value = problemsOf(problem).map((one) => one.message).join("; ");
    }
  };
  useEffect(() => {
    if (name) void load(value.value?.name === name ? value.value.lead : []);
  }, [name, facts]);
  useEffect(() => void (target.value = name), [name]);
  if (!name) return <p class="quiet">Choose a variable to see its numbers.</p>;
  const edit = async (): Promise<void> => {
    const made = await during("editing", () => call<StepFacts>("edit", { name: target.value, text: said.value.trim() }));
    if (made) {
      step.value = made;
      said.value = "";
    }
  };
  const pick = (at: number[], cell: Cell): void => {
    target.value = at.length ? `${name}[${at.join(", ")}]` : name;
    said.value = number(cell);
  };
  return (
    <section class="looked">
      <h3 class="plain">{name} {value.value && <small>{typeText(value.value)}</small>}</h3>
      {error.value && <p class="error">{error.value}</p>}
      {value.value && <Value of={value.value} onLead={(lead) => void load(lead)} onPick={value.value.editable ? pick : undefined} />}
      {value.value?.editable && !facts.finished && (
        <form class="edit" onSubmit={(event) => (event.preventDefault(), void edit())}>
          <input value={target.value} aria-label="what to edit" onInput={(event) => (target.value = event.currentTarget.value)} />
          <span>=</span>
          <input value={said.value} aria-label="new value" placeholder="1.5 or [1, 2]" onInput={(event) => (said.value = event.currentTarget.value)} />
          <button type="submit">Set</button>
        </form>
      )}
    </section>
  );
}

function History({ facts }: { facts: StepFacts }) {
  const recent = facts.history.slice(-40).reverse();
  if (!recent.length) return null;
  return (
    <details class="history">
      <summary>Executed ({facts.history.length}{facts.history.length === 200 ? "+" : ""})</summary>
      <ol>
        {recent.map((one, at) => (
          <li key={at}>
            <span>{one.name}</span>
            <span class="quiet">{Object.entries(one.indices).map(([name, value]) => `${name}=${value}`).join(" ")}</span>
            <span class="quiet">{duration(one.nanoseconds)}</span>
          </li>
        ))}
      </ol>
    </details>
  );
}

/** What goes into each step, as `--input` writes it. */
export function RunInputs() {
  const set = (name: string, value: string): void => void (inputTexts.value = { ...inputTexts.value, [name]: value });
  return (
    <div class="run-inputs">
      {(checked.value?.interface ?? []).map((one) => (
        <label key={one.name}>
          <b>{one.name}</b> <span class="type">{one.type}</span>
          <input value={inputTexts.value[one.name] ?? one.default} onInput={(event) => set(one.name, event.currentTarget.value)} />
        </label>
      ))}
      <label>
        <b>steps</b>
        <input type="number" min={1} value={stepCount.value} onInput={(event) => (stepCount.value = Math.max(1, Number(event.currentTarget.value) || 1))} />
      </label>
    </div>
  );
}

export function StepView() {
  const name = useSignal(looked.name);
  const facts = step.value;
  if (isExport) return <div class="nothing"><p>An exported file cannot run: <code>openinfer studio</code> can.</p></div>;
  if (!facts) {
    return (
      <div class="nothing">
        <h2>Step through the graph</h2>
        <p>Every node, one at a time: look into its values, change them, go back.</p>
        <RunInputs />
        <button class="primary" disabled={busy.value !== null} onClick={() => void startStepping()}>Start</button>
      </div>
    );
  }
  const look = (wanted: string): void => void (name.value = looked.name = wanted);
  return (
    <div class="step-view">
      <Controls facts={facts} />
      {isStale.value && (
        <p class="stale">The text has changed since this run began. <button class="link" onClick={() => void startStepping()}>Start again</button></p>
      )}
      <Where facts={facts} />
      <div class="step-columns">
        <div>
          <Looked name={name.value} facts={facts} />
          <Watches facts={facts} />
          <Breakpoints facts={facts} />
          <History facts={facts} />
          <details class="history"><summary>Inputs and steps</summary><RunInputs /><button onClick={() => void startStepping()}>Start again</button></details>
        </div>
        <Variables facts={facts} name={name.value} onLook={look} />
      </div>
    </div>
  );
}

/** Keys of other debuggers. */
export function stepKey(event: KeyboardEvent): boolean {
  if (!step.value || busy.value) return false;
  const how = event.key === "F10" ? "over" : event.key === "F11" ? (event.shiftKey ? "out" : "into") : event.key === "F5" ? "resume" : null;
  if (!how || step.value.finished) return false;
  void stepCall("move", { name: how });
  return true;
}
