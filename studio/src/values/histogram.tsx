// How often numbers of each range occur.
import type { ValueFacts } from "../types";
import { number } from "./format";

export function Histogram({ of }: { of: ValueFacts["histogram"] }) {
  if (of.counts.length < 2) return null;
  const most = Math.max(...of.counts);
  const wide = 100 / of.counts.length;
  return (
    <figure class="histogram">
      <svg viewBox="0 0 100 30" preserveAspectRatio="none" role="img" aria-label="histogram">
        {of.counts.map((count, at) => {
          const tall = count ? Math.max((28 * count) / most, 0.6) : 0;
          return <rect key={at} x={at * wide + 0.2} y={30 - tall} width={Math.max(wide - 0.4, 0.2)} height={tall} />;
        })}
      </svg>
      <figcaption><span>{number(of.low)}</span><span>{number(of.high)}</span></figcaption>
    </figure>
  );
}
