// The memory view: the arena over time, state and weights, and who is to blame for the peak.
import { effect, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { DeviceChooser } from "../code/device";
import { Obstacle } from "../code/obstacle";
import { device, isPlanStale, needPlan, plan, revealIndex } from "../store";
import type { ArenaRequest, PlanFacts } from "../types";
import { bytes } from "../values/format";

const COLOURS = ["#4c78a8", "#f2a154", "#6aa56e", "#b58bc0", "#6fb7b0", "#d9b64a", "#a5806a", "#8fbf8f", "#d5809b", "#94b8dd"];
const WIDTH = 1000;
const HEIGHT = 420;
const LEFT = 74;
const BOTTOM = 26;

/** Time to the right, addresses upwards, a rectangle for each time a value is alive. */
function Arena({ facts, over, onOver }: { facts: PlanFacts; over: number | null; onOver: (request: number | null) => void }) {
  const { memory } = facts;
  const count = Math.max(memory.positions.length, 1);
  const peak = Math.max(memory.peak_bytes, 1);
  const wide = (WIDTH - LEFT - 6) / count;
  const tall = HEIGHT - BOTTOM - 10;
  const x = (position: number): number => LEFT + position * wide;
  const y = (address: number): number => 10 + tall * (1 - address / peak);
  const owners = new Set(memory.peak_owners);
  const line = memory.live_bytes.map((live, at) => `${x(at)},${y(live)} ${x(at + 1)},${y(live)}`).join(" ");
  return (
    <svg class="arena" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label="the arena over time">
      {[0, 0.25, 0.5, 0.75, 1].map((share) => (
        <g key={share}>
          <line class="rule" x1={LEFT} x2={WIDTH - 6} y1={y(share * peak)} y2={y(share * peak)} />
          <text x={LEFT - 6} y={y(share * peak) + 4} text-anchor="end">{bytes(Math.round(share * peak))}</text>
        </g>
      ))}
      {memory.peak_position !== null && <rect class="fullest" x={x(memory.peak_position)} y={10} width={Math.max(wide, 1)} height={tall} />}
      {memory.requests.flatMap((request, number) =>
        request.lifetime.map(([first, last], part) => {
          const box = { x: x(first), y: y(request.offset + request.nbytes), width: Math.max((last - first + 1) * wide - 0.5, 0.6) };
          const high = Math.max(tall * (request.nbytes / peak) - 0.5, 0.6);
          const isNamed = box.width > 7 * Math.min(request.label.length, 8) && high > 12;
          return (
            <g key={`${number} ${part}`} onMouseEnter={() => onOver(number)} onMouseLeave={() => onOver(null)} class={over === number ? "over" : ""}>
              <rect
                class={owners.has(request.label) ? "request owner" : "request"} x={box.x} y={box.y} width={box.width} height={high}
                fill={COLOURS[number % COLOURS.length]}
              >
                <title>{`${request.label}\n${bytes(request.nbytes)} at ${request.offset}\nalive at ${first} – ${last}`}</title>
              </rect>
              {isNamed && <text x={box.x + 4} y={box.y + Math.min(high / 2 + 4, 16)} class="name">{request.label.slice(0, Math.floor(box.width / 6.4))}</text>}
            </g>
          );
        }),
      )}
      <polyline class="live" points={line} />
      {memory.positions.map((name, at) => wide > 16 && (
        <text key={at} x={x(at) + wide / 2} y={HEIGHT - 10} text-anchor="middle" class="position">
          {wide > 90 ? name.slice(0, Math.floor(wide / 6.5)) : at}<title>{name}</title>
        </text>
      ))}
    </svg>
  );
}

function Bar({ name, count, most, note }: { name: string; count: number; most: number; note?: string }) {
  return (
    <tr>
      <th>{name}</th><td>{bytes(count)}</td>
      <td class="share"><i style={{ width: `${(100 * count) / Math.max(most, 1)}%` }} /></td><td class="quiet">{note ?? ""}</td>
    </tr>
  );
}

function Totals({ facts }: { facts: PlanFacts }) {
  const code = Object.values(facts.bytes.code).reduce((sum, one) => sum + one, 0);
  const rows: [string, number, string][] = [
    ["arena", facts.bytes.arena, facts.memory.gap_bytes ? `${bytes(facts.memory.gap_bytes)} above the lower bound` : "the lower bound"],
    ["state", facts.bytes.state, ""],
    ["weights", facts.bytes.weights, `${new Set(facts.weights.map((one) => one.tensor)).size} tensors`],
    ["rollback", facts.bytes.undo, ""],
    ["source", code, `${Object.keys(facts.bytes.code).length} files`],
  ];
  const most = Math.max(...rows.map(([, count]) => count));
  return (
    <table class="bars">
      <tbody>{rows.map(([name, count, note]) => <Bar key={name} name={name} count={count} most={most} note={facts.regions[name] ? `${note} · in ${facts.regions[name]}` : note} />)}</tbody>
    </table>
  );
}

/** The kernel that writes a value and the last one that reads it keep it alive. */
function alive(facts: PlanFacts, request: ArenaRequest): string {
  const spans = request.lifetime.map(([first, last]) => `${facts.memory.positions[first] ?? first} … ${facts.memory.positions[last] ?? last}`);
  return spans.join(", ");
}

/** The kernel of a position: of several of one name, the one that comes as late among them. */
function kernelAt(facts: PlanFacts, at: number): PlanFacts["kernels"][number] | undefined {
  const name = facts.memory.positions[at];
  const before = facts.memory.positions.slice(0, at).filter((one) => one === name).length;
  const called = facts.kernels.filter((one) => one.name === name);
  return called[before] ?? called[0];
}

function Culprits({ facts, over, onOver }: { facts: PlanFacts; over: number | null; onOver: (request: number | null) => void }) {
  const owners = new Set(facts.memory.peak_owners);
  const at = facts.memory.peak_position;
  const rows = facts.memory.requests
    .map((request, number) => ({ request, number }))
    .filter((one) => owners.has(one.request.label))
    .sort((one, other) => other.request.nbytes - one.request.nbytes);
  const most = rows[0]?.request.nbytes ?? 1;
  const kernel = at === null ? undefined : kernelAt(facts, at);
  return (
    <section>
      <h3>
        Peak {bytes(facts.memory.peak_bytes)}
        {at !== null && <small> at {kernel?.nodes[0] ? <button class="link" onClick={() => revealIndex((kernel.nodes[0] as { index: number }).index)}>{facts.memory.positions[at]}</button> : facts.memory.positions[at]}</small>}
      </h3>
      <table class="bars culprits">
        <tbody>
          {rows.map(({ request, number }) => (
            <tr key={number} class={over === number ? "over" : ""} onMouseEnter={() => onOver(number)} onMouseLeave={() => onOver(null)}>
              <th>{request.label}</th><td>{bytes(request.nbytes)}</td>
              <td class="share"><i style={{ width: `${(100 * request.nbytes) / most}%` }} /></td>
              <td class="quiet" title="kept alive from the kernel that writes it to the last that reads it">{alive(facts, request)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Kept({ title, rows }: { title: string; rows: { name: string; count: number; note: string }[] }) {
  if (!rows.length) return null;
  const sorted = [...rows].sort((one, other) => other.count - one.count);
  const most = sorted[0]?.count ?? 1;
  return (
    <section>
      <h3>{title}</h3>
      <table class="bars"><tbody>
        {sorted.slice(0, 60).map((one) => <Bar key={one.name} name={one.name} count={one.count} most={most} note={one.note} />)}
      </tbody></table>
      {sorted.length > 60 && <p class="quiet">and {sorted.length - 60} more</p>}
    </section>
  );
}

export function MemoryView() {
  const over = useSignal<number | null>(null);
  useEffect(() => effect(() => {
    void needPlan();
  }), []);
  const facts = plan.value && plan.value.device === device.value ? plan.value.facts : null;
  const onOver = (request: number | null): void => void (over.value = request);
  return (
    <div class="memory-view">
      <div class="bar"><DeviceChooser />{facts && <span class="quiet">{facts.title}</span>}</div>
      <Obstacle isAbove={facts !== null} />
      {facts && (
        <div class="scroll" data-stale={isPlanStale.value}>
          {facts.memory.requests.length > 0 ? <Arena facts={facts} over={over.value} onOver={onOver} /> : <p class="quiet">The arena is empty.</p>}
          <div class="memory-columns">
            <section><h3>Memory</h3><Totals facts={facts} /></section>
            {facts.memory.requests.length > 0 && <Culprits facts={facts} over={over.value} onOver={onOver} />}
            <Kept title="State" rows={[
              ...facts.state.map((one) => ({ name: one.variable, count: one.bytes, note: "" })),
              ...facts.tables.map((one) => ({ name: one.variable, count: one.bytes, note: one.grows ? "table, grows" : `table of ${one.bounds.join(" × ")}` })),
            ]} />
            <Kept title="Weights" rows={facts.weights.map((one) => ({ name: one.part ? `${one.tensor} ${one.part}` : one.tensor, count: one.bytes, note: one.dtype }))} />
          </div>
        </div>
      )}
    </div>
  );
}
