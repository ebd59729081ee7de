// A tensor: statistics, histogram, and its numbers as a heat map, a line, a picture or a table.
import { useSignal } from "@preact/signals";
import type { Cell, ValueFacts } from "../types";
import { number } from "./format";
import { Histogram } from "./histogram";
import { Line } from "./line";
import { Plane } from "./plane";

type Form = "heat" | "line" | "image" | "numbers";
const FORMS: [Form, string][] = [["heat", "Heat map"], ["line", "Line"], ["image", "Image"], ["numbers", "Numbers"]];
const MOST = 12;

export function typeText(of: { dtype: string; shape: number[] }): string {
  return `${of.dtype}[${of.shape.join(", ")}]`;
}

function Numbers({ of }: { of: ValueFacts }) {
  const { rows, columns, cells } = of.plane;
  return (
    <div class="numbers">
      <table>
        <thead><tr><th />{columns.slice(0, MOST).map((one) => <th key={one}>{one}</th>)}</tr></thead>
        <tbody>
          {rows.slice(0, 4 * MOST).map((row, at) => (
            <tr key={row}><th>{row}</th>{cells[at]?.slice(0, MOST).map((cell, across) => <td key={across}>{number(cell)}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface Props {
  of: ValueFacts;
  onLead?: (lead: number[]) => void;
  onPick?: (at: number[], value: Cell) => void;
}

export function Value({ of, onLead, onPick }: Props) {
  const form = useSignal<Form>(of.plane.rows.length > 1 ? "heat" : "line");
  const { statistics } = of;
  const isScalar = of.shape.length === 0;
  return (
    <div class="value">
      <div class="statistics">
        {isScalar ? <span>value <b>{number(of.line.values[0])}</b></span> : (
          <>
            <span>min <b>{number(statistics.min)}</b></span><span>mean <b>{number(statistics.mean)}</b></span>
            <span>max <b>{number(statistics.max)}</b></span>
            {statistics.nan > 0 && <span class="alarm">NaN <b>{statistics.nan}</b></span>}
            {statistics.inf > 0 && <span class="alarm">inf <b>{statistics.inf}</b></span>}
          </>
        )}
      </div>
      {!isScalar && <Histogram of={of.histogram} />}
      {!isScalar && (
        <div class="forms" role="tablist">
          {FORMS.map(([name, label]) => (
            <button key={name} role="tab" aria-selected={form.value === name} onClick={() => (form.value = name)}>{label}</button>
          ))}
        </div>
      )}
      {of.lead.length > 0 && onLead && (
        <div class="lead">
          {of.lead.map((at, axis) => (
            <label key={axis}>
              axis {axis}
              <input
                type="range" min={0} max={(of.shape[axis] as number) - 1} value={at}
                onInput={(event) => onLead(of.lead.map((one, other) => (other === axis ? Number(event.currentTarget.value) : one)))}
              />
              <b>{at}</b>
            </label>
          ))}
        </div>
      )}
      {!isScalar && form.value === "line" && <Line of={of} />}
      {!isScalar && form.value === "numbers" && <Numbers of={of} />}
      {!isScalar && (form.value === "heat" || form.value === "image") && <Plane of={of} as={form.value} onPick={onPick} />}
    </div>
  );
}
