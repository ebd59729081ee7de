// The timeline: traces of the simulator and of devices side by side, where they part, and the roofline of kernels.
import { useSignal } from "@preact/signals";
import { call, isExport } from "../api";
import { DeviceChooser } from "../code/device";
import { busy, device, during, inputs, revealIndex, stepCount, traces } from "../store";
import { RunInputs } from "../step/view";
import type { ComparisonFacts, ProfileFacts, TraceEventFacts, TraceFacts } from "../types";
import { duration, number } from "../values/format";
import { Lanes } from "./lanes";
import { Roofline } from "./roofline";

function keep(trace: TraceFacts): void {
  traces.value = [...traces.value.filter((one) => one.name !== trace.name), trace];
}

function Actions({ onProfile }: { onProfile: (facts: ProfileFacts) => void }) {
  const isBusy = busy.value !== null;
  const given = (): Record<string, unknown> => ({ inputs: inputs.value, steps: stepCount.value });
  const simulate = async (): Promise<void> => {
    const found = await during("simulating", () => call<TraceFacts>("trace-simulator", given()));
    if (found) keep(found);
  };
  const onDevice = async (): Promise<void> => {
    const found = await during(`compiling and running on ${device.value}`, () => call<TraceFacts>("trace-device", { ...given(), device: device.value }));
    if (found) keep(found);
  };
  const profile = async (): Promise<void> => {
    const found = await during("measuring kernels", () => call<ProfileFacts>("profile", { inputs: inputs.value, steps: 20, device: device.value }));
    if (found) onProfile(found);
  };
  const load = async (list: FileList | null): Promise<void> => {
    for (const file of list ?? []) {
      const text = await file.text();
      const found = await during(`reading ${file.name}`, () => call<TraceFacts>("trace-file", { name: file.name, text }));
      if (found) keep(found);
    }
  };
  return (
    <div class="bar">
      <button disabled={isBusy} onClick={() => void simulate()}>Run in the simulator</button>
      <DeviceChooser />
      <button disabled={isBusy} onClick={() => void onDevice()}>Run on the device</button>
      <button disabled={isBusy} onClick={() => void profile()}>Measure kernels</button>
      <label class="file-button">Open a trace…<input type="file" accept=".json" multiple onChange={(event) => void load(event.currentTarget.files)} /></label>
    </div>
  );
}

function Compare({ onFound }: { onFound: (facts: ComparisonFacts | null) => void }) {
  const names = traces.value.map((one) => one.name);
  const one = useSignal("");
  const other = useSignal("");
  const tolerance = useSignal("1e-4");
  if (names.length < 2) return null;
  const left = names.includes(one.value) ? one.value : (names[0] as string);
  const right = names.includes(other.value) ? other.value : (names[1] as string);
  const run = async (): Promise<void> => {
    const given = { name: left, other: right, tolerance: Number(tolerance.value) || 0 };
    onFound(await during("comparing", () => call<ComparisonFacts>("compare", given)));
  };
  return (
    <div class="bar">
      <select value={left} onChange={(event) => (one.value = event.currentTarget.value)}>{names.map((name) => <option key={name}>{name}</option>)}</select>
      <span>against</span>
      <select value={right} onChange={(event) => (other.value = event.currentTarget.value)}>{names.map((name) => <option key={name}>{name}</option>)}</select>
      <label>tolerance <input size={6} value={tolerance.value} onInput={(event) => (tolerance.value = event.currentTarget.value)} /></label>
      <button class="primary" onClick={() => void run()}>Compare</button>
    </div>
  );
}

function Outcome({ facts }: { facts: ComparisonFacts }) {
  const found = facts.difference;
  if (!found) return <p class="same">The traces agree: {facts.events[0]} events, compared by {facts.compared}.</p>;
  const indices = Object.entries(found.indices).map(([name, value]) => `${name}=${value}`).join(", ");
  return (
    <div class="differs">
      <p>
        The first difference is of {found.what}, at event {found.position}:{" "}
        <button class="link" onClick={() => revealIndex(found.node_index)}>node {found.node_index} {found.op_name}</button> {indices}
      </p>
      <table>
        <tbody>
          {found.deviations.slice(0, 12).map((one) => (
            <tr key={one.name}>
              <th>{one.name}</th><td>{String(one.a)}</td><td>{String(one.b)}</td>
              <td class="quiet">{one.relative !== undefined ? `relative ${number(one.relative)}` : ""}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Picked({ event, trace }: { event: TraceEventFacts; trace: string }) {
  const indices = Object.entries(event.indices).map(([name, value]) => `${name} = ${value}`).join(", ");
  return (
    <div class="picked">
      <b>{event.name}</b> <span class="quiet">node {event.node} · {trace}{indices ? ` · ${indices}` : ""}</span> <b>{duration(event.duration)}</b>
      {event.absent && <p class="quiet">{event.absent}</p>}
      {event.outputs.map((one) => (
        <p key={one.name}><code>{one.name}</code> {one.dtype}[{one.shape.join(", ")}] · min {number(one.min)} · mean {number(one.mean)} · max {number(one.max)}{one.nan ? ` · ${one.nan} NaN` : ""}</p>
      ))}
    </div>
  );
}

export function TimelineView() {
  const profile = useSignal<ProfileFacts | null>(null);
  const outcome = useSignal<ComparisonFacts | null>(null);
  const picked = useSignal<{ event: TraceEventFacts; trace: string } | null>(null);
  const isShared = useSignal(false);
  const shown = traces.value;
  return (
    <div class="timeline-view">
      {!isExport && <Actions onProfile={(facts) => (profile.value = facts)} />}
      {!isExport && <Compare onFound={(facts) => (outcome.value = facts)} />}
      <div class="scroll">
        {!isExport && !shown.length && !profile.value && (
          <div class="nothing">
            <h2>Where the time goes</h2>
            <p>Run a step in the simulator and on a device of this machine, and compare them node by node.</p>
            <RunInputs />
          </div>
        )}
        {outcome.value && <Outcome facts={outcome.value} />}
        {shown.length > 1 && (
          <label class="quiet"><input type="checkbox" checked={isShared.value} onChange={(event) => (isShared.value = event.currentTarget.checked)} /> one time scale for all traces</label>
        )}
        {shown.length > 0 && (
          <Lanes traces={shown} isShared={isShared.value} diverging={outcome.value?.difference?.position ?? null} onPick={(event, trace) => (picked.value = { event, trace })} />
        )}
        {picked.value && <Picked {...picked.value} />}
        {profile.value && <section><h3>Roofline <small>{profile.value.device}</small></h3><Roofline facts={profile.value} /></section>}
      </div>
    </div>
  );
}
