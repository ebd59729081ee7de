// Calls to the server; an exported file has the answers in it.
import type { Problem } from "./types";

interface Exported {
  answers: Record<string, unknown>;
}

function readExport(): Exported | null {
  const element = document.getElementById("studio-export");
  return element ? (JSON.parse(element.textContent ?? "") as Exported) : null;
}

const exported = readExport();

/** Whether this is a file without a server: nothing can be run or changed. */
export const isExport = exported !== null;

export class CallError extends Error {
  constructor(readonly problems: Problem[]) {
    super(problems.map((one) => one.message).join("\n"));
  }
}

function answerKey(name: string, given: Record<string, unknown>): string {
  const sorted = Object.fromEntries(Object.entries(given).sort(([one], [other]) => (one < other ? -1 : 1)));
  return `${name}${JSON.stringify(sorted)}`;
}

function failed(message: string, help: string | null = null): CallError {
  return new CallError([{ code: "", severity: "error", message, help, notes: [] }]);
}

export async function call<T>(name: string, given: Record<string, unknown> = {}): Promise<T> {
  if (exported) {
    const key = answerKey(name, given);
    if (!(key in exported.answers)) throw failed("this exported file does not have that", "openinfer studio has it");
    return exported.answers[key] as T;
  }
  let response: Response;
  try {
    response = await fetch(`call/${name}`, { method: "POST", body: JSON.stringify(given) });
  } catch {
    throw failed("the studio no longer answers", "start it again: openinfer studio");
  }
  if (!response.ok) throw failed(`${name}: the studio answered ${response.status}`);
  const found = (await response.json()) as { ok: true; answer: T } | { ok: false; problems: Problem[] };
  if (!found.ok) throw new CallError(found.problems);
  return found.answer;
}
