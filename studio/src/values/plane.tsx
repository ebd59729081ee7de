// A plane of numbers as a heat map, three of them as a picture.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Cell, ValueFacts } from "../types";
import { number } from "./format";

/** Blue for negative, red for positive, the paper's colour for zero; not a number is magenta. */
function diverging(value: number, most: number): [number, number, number] {
  const share = Math.min(Math.abs(value) / most, 1) ** 0.7;
  const [red, green, blue] = value < 0 ? [37, 99, 200] : [205, 62, 44];
  return [245 + (red - 245) * share, 245 + (green - 245) * share, 245 + (blue - 245) * share];
}

function grey(value: number, low: number, high: number): [number, number, number] {
  const tone = high > low ? (255 * (value - low)) / (high - low) : 128;
  return [tone, tone, tone];
}

function paint(canvas: HTMLCanvasElement, rows: number, columns: number, colour: (row: number, column: number) => [number, number, number]): void {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  if (!context || !rows || !columns) return;
  const picture = context.createImageData(columns, rows);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      picture.data.set([...colour(row, column), 255], 4 * (row * columns + column));
    }
  }
  context.putImageData(picture, 0, 0);
}

function numeric(cell: Cell | undefined): number {
  return typeof cell === "number" ? cell : NaN;
}

export function Plane({ of, as, onPick }: { of: ValueFacts; as: "heat" | "image"; onPick?: (at: number[], value: Cell) => void }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const under = useSignal("");
  const { rows, columns, cells } = of.plane;
  const { min, max } = of.statistics;
  useEffect(() => {
    const place = canvas.current as HTMLCanvasElement;
    const low = typeof min === "number" ? min : -1;
    const high = typeof max === "number" ? max : 1;
    const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
    const { channels } = of;
    if (as === "image" && channels) {
      const tone = (channel: number, row: number, column: number): number =>
        grey(numeric(channels[channel]?.[row]?.[column]), low, high)[0];
      paint(place, channels[0]?.length ?? 0, channels[0]?.[0]?.length ?? 0, (row, column) => [
        tone(0, row, column), tone(1, row, column), tone(2, row, column),
      ]);
      return;
    }
    paint(place, rows.length, columns.length, (row, column) => {
      const value = numeric(cells[row]?.[column]);
      if (Number.isNaN(value)) return [200, 0, 200];
      return as === "image" ? grey(value, low, high) : diverging(value, most);
    });
  }, [of, as]);
  const cellAt = (event: MouseEvent): [number, number] => {
    const box = (canvas.current as HTMLCanvasElement).getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * rows.length);
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns.length);
    return [Math.min(Math.max(row, 0), rows.length - 1), Math.min(Math.max(column, 0), columns.length - 1)];
  };
  const index = (row: number, column: number): number[] =>
    [...of.lead, ...(of.shape.length >= 2 ? [rows[row] as number] : []), ...(of.shape.length ? [columns[column] as number] : [])];
  const tall = Math.min(260, Math.max(28, (rows.length / Math.max(columns.length, 1)) * 300));
  return (
    <div class="plane">
      <canvas
        ref={canvas} style={{ height: `${tall}px` }} class={rows.length > 1 ? "" : "row"}
        onMouseMove={(event) => {
          const [row, column] = cellAt(event);
          under.value = `[${index(row, column).join(", ")}] = ${number(cells[row]?.[column])}`;
        }}
        onMouseLeave={() => (under.value = "")}
        onClick={(event) => {
          const [row, column] = cellAt(event);
          onPick?.(index(row, column), cells[row]?.[column] ?? null);
        }}
      />
      <div class="under">{under.value || (onPick ? "click a cell to edit it" : " ")}</div>
    </div>
  );
}
