// What the marks of the picture mean.
import { useSignal } from "@preact/signals";

const BOXES: [string, string][] = [
  ["--family-product", "products, convolutions"],
  ["--family-activation", "elementwise"],
  ["--family-normal", "normalisation"],
  ["--family-attention", "attention"],
  ["--family-reduce", "reductions, pooling"],
  ["--family-move", "moves, shapes, casts"],
  ["--family-other", "other ops"],
  ["--kind-input", "inputs, parameters"],
  ["--kind-state", "persistent memory, caches"],
  ["--kind-control", "control flow"],
];
const LINES: [string, string, string][] = [
  ["--edge", "solid", "a value that is read"],
  ["--edge", "dotted", "an index"],
  ["--carried", "dashed", "carried to the next iteration"],
  ["--kind-state", "dotted", "written to persistent memory"],
];

export function Legend() {
  const isOpen = useSignal(false);
  return (
    <div class="legend">
      <button onClick={() => (isOpen.value = !isOpen.value)} aria-expanded={isOpen.value}>Legend</button>
      {isOpen.value && (
        <dl>
          {BOXES.map(([colour, text]) => (
            <div key={colour}><dt><i style={{ background: `var(${colour})` }} /></dt><dd>{text}</dd></div>
          ))}
          {LINES.map(([colour, kind, text]) => (
            <div key={text}><dt><i class="line" style={{ borderTop: `2px ${kind} var(${colour})` }} /></dt><dd>{text}</dd></div>
          ))}
          <div><dt><span class="pill">h</span></dt><dd>from or to outside; click to go there</dd></div>
          <p>Double-click a box, or click its triangle, to open or close it.</p>
        </dl>
      )}
    </div>
  );
}
