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

export function duration(nanoseconds: number): string {
  if (nanoseconds >= 1e9) return `${(nanoseconds / 1e9).toPrecision(3)} s`;
  if (nanoseconds >= 1e6) return `${(nanoseconds / 1e6).toPrecision(3)} ms`;
  if (nanoseconds >= 1e3) return `${(nanoseconds / 1e3).toPrecision(3)} µs`;
  return `${Math.round(nanoseconds)} ns`;
}

export function operations(count: number): string {
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]] as const) {
    if (count >= size) return `${(count / size).toPrecision(3)} ${unit}`;
  }
  return String(count);
}
