// Numbers one after the other, as a line.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { ValueFacts } from "../types";

export function Line({ of }: { of: ValueFacts }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const parent = place.current as HTMLDivElement;
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--faint").trim();
    const axis = { stroke: ink, grid: { stroke: style.getPropertyValue("--rule").trim(), width: 1 }, size: 42 };
    const plot = new uPlot(
      {
        width: parent.clientWidth || 300, height: 190, legend: { show: false }, scales: { x: { time: false } },
        series: [{}, { stroke: style.getPropertyValue("--accent").trim(), width: 1.4 }], axes: [{ ...axis, size: 26 }, axis],
      },
      [of.line.at, of.line.values.map((one) => (typeof one === "number" ? one : null))],
      parent,
    );
    return () => plot.destroy();
  }, [of]);
  return <div class="line-plot" ref={place} />;
}
