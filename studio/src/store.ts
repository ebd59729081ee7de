// What the views share: the text, its graph, the selection, the device, and the state of stepping.
import { computed, effect, signal } from "@preact/signals";
import { call, CallError } from "./api";
import type { CheckFacts, GraphNode, OpenFacts, PlanFacts, Problem, StepFacts, TraceFacts } from "./types";

export type View = "graph" | "step" | "timeline" | "memory" | "code";

export const opened = signal<OpenFacts | null>(null);
export const text = signal("");
export const checked = signal<CheckFacts | null>(null);
/** The text that `checked` is about. */
export const checkedText = signal("");
export const view = signal<View>("graph");
/** The id of the selected node or container. */
export const selected = signal<string | null>(null);
/** A node that the views should bring into sight; counts up, so that the same node can be asked for again. */
export const revealed = signal<{ id: string; count: number } | null>(null);
export const device = signal("host");
export const plan = signal<{ text: string; device: string; facts: PlanFacts } | null>(null);
export const step = signal<StepFacts | null>(null);
/** The text that is being stepped through. */
export const stepText = signal("");
export const traces = signal<TraceFacts[]>([]);
export const busy = signal<string | null>(null);
export const failure = signal<Problem[] | null>(null);
export const savedText = signal("");
/** Lines with breakpoints, by line: the number of the breakpoint. */
export const breakLines = computed(() => {
  const found = new Map<number, number>();
  for (const stop of step.value?.stops ?? []) if (stop.line !== null) found.set(stop.line, stop.number);
  return found;
});

export const graph = computed(() => checked.value?.graph ?? null);
export const nodesById = computed(() => new Map((graph.value?.nodes ?? []).map((one) => [one.id, one])));
export const nodesByIndex = computed(() => {
  const found = new Map<number, GraphNode>();
  for (const one of graph.value?.nodes ?? []) if (one.index !== null) found.set(one.index, one);
  return found;
});
export const selectedNode = computed(() => (selected.value ? (nodesById.value.get(selected.value) ?? null) : null));
export const isStale = computed(() => step.value !== null && stepText.value !== text.value);
export const inputTexts = signal<Record<string, string>>({});
export const stepCount = signal(1);

/** What the inputs of a run are, as the command line writes them. */
export const inputs = computed(() =>
  (checked.value?.interface ?? []).map((one) => `${one.name}=${inputTexts.value[one.name] ?? one.default}`),
);

let reveals = 0;

/** Select a node and have every view show it. */
export function reveal(id: string): void {
  selected.value = id;
  revealed.value = { id, count: ++reveals };
}

export function revealIndex(index: number): void {
  reveal(`n${index}`);
}

/** Run something that takes a moment; what goes wrong is shown. */
export async function during<T>(what: string, work: () => Promise<T>): Promise<T | null> {
  busy.value = what;
  failure.value = null;
  try {
    return await work();
  } catch (error) {
    failure.value = problemsOf(error);
    return null;
  } finally {
    busy.value = null;
  }
}

export function problemsOf(error: unknown): Problem[] {
  if (error instanceof CallError) return error.problems;
  return [{ code: "", severity: "error", message: String(error), help: null, notes: [] }];
}

export async function open(): Promise<void> {
  const facts = await call<OpenFacts>("open");
  text.value = savedText.value = checkedText.value = facts.text;
  device.value = facts.device;
  traces.value = facts.traces;
  stepCount.value = facts.steps;
  inputTexts.value = Object.fromEntries(
    facts.inputs.map((one) => [one.slice(0, one.indexOf("=")), one.slice(one.indexOf("=") + 1)]),
  );
  checked.value = facts;
  opened.value = facts;
}

// A check is asked for at once; while one is on its way, only the newest text waits.
let isChecking = false;

async function check(): Promise<void> {
  if (isChecking) return;
  isChecking = true;
  try {
    while (checkedText.value !== text.value) {
      const asked = text.value;
      const facts = await call<CheckFacts>("check", { text: asked });
      checkedText.value = asked;
      checked.value = facts;
    }
  } catch (error) {
    failure.value = problemsOf(error);
  } finally {
    isChecking = false;
  }
}

effect(() => {
  if (opened.value && text.value !== checkedText.value) void check();
});

/** The text that was checked last, once it has not changed for a moment: planning takes too long for every keystroke. */
export const settledText = signal("");
let settling: ReturnType<typeof setTimeout> | undefined;

effect(() => {
  const now = checkedText.value;
  clearTimeout(settling);
  settling = setTimeout(() => (settledText.value = now), settledText.peek() === "" ? 0 : 400);
});

/** Why the text as it is cannot have a plan, where that can be said without asking. */
export const planObstacle = computed(() => {
  const facts = checked.value;
  const count = (facts?.problems ?? []).filter((one) => one.severity === "error").length;
  if (count) return `The text has ${count} error${count === 1 ? "" : "s"}; there is a plan once ${count === 1 ? "it is" : "they are"} fixed.`;
  if (facts && !facts.graph?.bound) return "The graph needs a model or sizes: start the studio with --model FILE.oinf, or with --size NAME=N for each open size.";
  return null;
});

export const isPlanStale = computed(() => plan.value !== null && plan.value.text !== text.value);

/** The plan for the device that is chosen; asked for once for each text and device. */
export async function needPlan(): Promise<PlanFacts | null> {
  const asked = { text: settledText.value, device: device.value };
  if (planObstacle.value !== null || asked.text !== checkedText.value) return null;
  const known = plan.value;
  if (known && known.text === asked.text && known.device === asked.device) return known.facts;
  const facts = await during(`planning for ${asked.device}`, () => call<PlanFacts>("plan", { device: asked.device }));
  if (facts) plan.value = { ...asked, facts };
  return facts;
}

export async function stepCall(name: string, given: Record<string, unknown> = {}, what = "running"): Promise<void> {
  const facts = await during(what, () => call<StepFacts>(name, given));
  if (!facts) return;
  step.value = facts;
  if (facts.node !== null) reveal(`n${facts.node}`);
}

export async function startStepping(): Promise<void> {
  const stops = step.value?.stops ?? [];
  const asked = text.value;
  const facts = await during("starting", () => call<StepFacts>("start", { inputs: inputs.value, steps: stepCount.value }));
  if (!facts) return;
  stepText.value = asked;
  step.value = facts;
  for (const stop of stops) {
    if (stop.line !== null) await stepCall("break-line", { index: stop.line });
    else await stepCall("break", { text: stop.command });
  }
  if (step.value.node !== null) reveal(`n${step.value.node}`);
}

export async function toggleBreakpoint(line: number): Promise<void> {
  if (step.value === null) await startStepping();
  if (step.value === null) return;
  const known = breakLines.value.get(line);
  if (known !== undefined) await stepCall("delete", { index: known });
  else await stepCall("break-line", { index: line });
}

export async function save(): Promise<void> {
  const asked = text.value;
  const done = await during("saving", () => call("save", { text: asked }));
  if (done) savedText.value = asked;
}

/** Make a change that the help of a problem names. */
export async function applyFix(message: string, title: string): Promise<void> {
  const found = await during("changing the text", () => call<{ text: string }>("fix", { name: message, other: title, text: text.value }));
  if (found) text.value = found.text;
}

export async function format(): Promise<void> {
  const found = await during("formatting", () => call<{ text: string }>("format", { text: text.value }));
  if (found) text.value = found.text;
}
