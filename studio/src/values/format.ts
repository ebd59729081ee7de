// Numbers for people.
import type { Cell } from "../types";

export function number(value: Cell | undefined): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  return Number.isInteger(value) && Math.abs(value) < 1e7 ? String(value) : String(Number(value.toPrecision(5)));
}

export function bytes(count: number): string {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]] as const) {
    if (count >= size) return `${(count / size).toFixed(1)} ${unit}`;
  }
  return `${count} B`;
}

/** Three digits and the unit: the largest that leaves at least 1 in front of it. */
function scaled(value: number, units: readonly (readonly [string, number])[]): string | null {
  // 999.6 of one unit would be rounded to 1000, which three digits do not hold.
  const found = units.find(([, size]) => value >= 0.9995 * size);
  return found ? `${(value / found[1]).toPrecision(3)} ${found[0]}` : null;
}

export function duration(nanoseconds: number): string {
  return scaled(nanoseconds, [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) ?? `${Math.round(nanoseconds)} ns`;
}

export function operations(count: number): string {
  return scaled(count, [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) ?? String(count);
}
