// What is known about the selected node: its text, its op, its operands, the kernel it became and what that costs.
import { effect, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call, isExport } from "../api";
import { device, graph, isStale, problemsOf, revealIndex, selected, selectedNode, step, settledText, view } from "../store";
import { Doc } from "../text/doc";
import { bytes, operations } from "../values/format";
import type { KernelOfNode, NodeFacts, Operand, ValueFacts } from "../types";
import { typeText, Value } from "../values/value";

function baseOf(name: string): string {
  return name.replace(/\[.*$/, "");
}

/** An operand; opened, it shows the weight, or what the step view knows of the variable. */
function OperandRow({ of }: { of: Operand }) {
  const isOpen = useSignal(false);
  const value = useSignal<ValueFacts | null>(null);
  const error = useSignal("");
  const isLive = step.value !== null && !isStale.value && of.kind !== null && of.kind !== "index" && !of.is_weight;
  const canOpen = of.is_weight || isLive;
  const load = async (lead: number[]): Promise<void> => {
    try {
      value.value = await call<ValueFacts>(of.is_weight ? "weight" : "value", { lead, name: of.is_weight ? of.text : baseOf(of.text) });
      error.value = "";
    } catch (problem) {
      error.value = problemsOf(problem).map((one) => one.message).join("; ");
    }
  };
  useEffect(() => {
    if (isOpen.value && isLive) void load(value.value?.lead ?? []);
  }, [step.value]);
  const toggle = (): void => {
    isOpen.value = !isOpen.value;
    if (isOpen.value) void load([]);
  };
  return (
    <li class={of.is_result ? "result" : ""}>
      <button class="operand" disabled={!canOpen} onClick={toggle} aria-expanded={isOpen.value}>
        <span class="role">{of.is_result ? "→" : of.role}</span>
        <code>{of.text}</code>
        <span class="type">{of.type ?? ""}</span>
        {of.kind && <span class={`kind ${of.is_weight ? "weight" : of.kind}`}>{of.is_weight ? "weight" : of.kind}</span>}
      </button>
      {isOpen.value && error.value && <p class="error">{error.value}</p>}
      {isOpen.value && value.value && (
        <div class="operand-value">
          <div class="type">{value.value.name}: {typeText(value.value)}</div>
          <Value of={value.value} onLead={isExport ? undefined : (lead) => void load(lead)} />
        </div>
      )}
    </li>
  );
}

/** The kernel of a node; planning takes a moment, so it is asked for apart. */
function Kernel({ index }: { index: number }) {
  const kernel = useSignal<KernelOfNode | null | undefined>(undefined);
  const error = useSignal("");
  useEffect(() => {
    let isWanted = true;
    kernel.value = undefined;
    error.value = "";
    call<{ kernel: KernelOfNode | null }>("kernel", { device: device.value, index }).then(
      (found) => isWanted && (kernel.value = found.kernel),
      (problem: unknown) => isWanted && ((error.value = problemsOf(problem)[0]?.message ?? ""), (kernel.value = null)),
    );
    return () => void (isWanted = false);
  }, [index, device.value, settledText.value]);
  const found = kernel.value;
  return (
    <section>
      <h3>Kernel <small>for {device.value}</small></h3>
      {found === undefined && <p class="quiet">planning…</p>}
      {found === null && <p class="quiet">{error.value || "no kernel of its own: it is control flow, a copy, or was computed beforehand"}</p>}
      {found && (
        <dl class="facts">
          <dt>function</dt>
          <dd><button class="link" onClick={() => (view.value = "code")}>{found.function}</button></dd>
          <dt>cost</dt>
          <dd>{operations(found.operations)} ops · {bytes(found.bytes)} moved{found.calls > 1 ? ` · ${found.calls} calls` : ""}</dd>
          {found.nodes.length > 1 && (
            <>
              <dt>fused with</dt>
              <dd>{found.nodes.filter((one) => one !== index).map((one) => (
                <button key={one} class="link" onClick={() => revealIndex(one)}>node {one}</button>
              ))}</dd>
            </>
          )}
        </dl>
      )}
    </section>
  );
}

function NodePanel({ index }: { index: number }) {
  const facts = useSignal<NodeFacts | null>(null);
  useEffect(() => effect(() => {
    if (!graph.value) return;
    call<{ node: NodeFacts | null }>("node", { index }).then((found) => (facts.value = found.node), () => (facts.value = null));
  }), [index]);
  const found = facts.value;
  if (!found || found.index !== index) return <p class="quiet">…</p>;
  return (
    <>
      <header>
        <h2>{found.op?.name ?? found.text.split(/[ ;]/)[0]}</h2>
        <p class="quiet">node {index} · block {found.block}{selectedNode.value?.line ? ` · line ${selectedNode.value.line}` : ""}</p>
        <pre>{found.text}</pre>
      </header>
      {found.op && (
        <section>
          <h3>Op</h3>
          <Doc text={found.op.doc} />
          <code class="usage">{found.op.usage}</code>
        </section>
      )}
      {found.operands.length > 0 && (
        <section>
          <h3>Operands</h3>
          <ul class="operands">{found.operands.map((one, at) => <OperandRow key={`${index} ${at} ${one.text}`} of={one} />)}</ul>
        </section>
      )}
      {graph.value?.bound && <Kernel index={index} />}
    </>
  );
}

export function Panel() {
  const node = selectedNode.value;
  const container = graph.value?.containers.find((one) => one.id === selected.value);
  if (node && node.index !== null) return <aside class="panel"><NodePanel index={node.index} /></aside>;
  if (node) {
    return (
      <aside class="panel">
        <header><h2>{node.label}</h2><p class="quiet">{node.text || node.kind}</p></header>
        <p class="type">{graph.value?.types[node.label] ?? ""}</p>
      </aside>
    );
  }
  if (container) {
    return (
      <aside class="panel">
        <header><h2>{container.label}</h2><p class="quiet">{container.detail}</p></header>
        <p>{container.count} nodes{container.line ? ` · line ${container.line}` : ""}</p>
      </aside>
    );
  }
  return <aside class="panel empty"><p class="quiet">Select a node to see its text, op, operands, kernel and cost.</p></aside>;
}
