// Kernels under the roof: how many operations each does for a byte, and how fast.
import { revealIndex } from "../store";
import type { ProfileFacts } from "../types";
import { bytes, duration, operations } from "../values/format";

const WIDTH = 560;
const HEIGHT = 300;
const LEFT = 58;
const BOTTOM = 34;

export function Roofline({ facts }: { facts: ProfileFacts }) {
  const shown = facts.kernels.filter((one) => one.operations > 0 && one.operations_per_second > 0 && one.bytes_read + one.bytes_written > 0);
  const roof = facts.roofline;
  const ridge = roof.operations_per_second / roof.bytes_per_second;
  const intensities = [ridge, ...shown.map((one) => one.operations / (one.bytes_read + one.bytes_written))];
  const speeds = [roof.operations_per_second, ...shown.map((one) => one.operations_per_second)];
  const low = Math.log10(Math.min(...intensities) / 2);
  const high = Math.log10(Math.max(...intensities) * 4);
  const slow = Math.log10(Math.min(...speeds) / 3);
  const fast = Math.log10(Math.max(...speeds) * 2);
  const x = (value: number): number => LEFT + ((Math.log10(value) - low) / (high - low)) * (WIDTH - LEFT - 12);
  const y = (value: number): number => 10 + (1 - (Math.log10(value) - slow) / (fast - slow)) * (HEIGHT - BOTTOM - 10);
  const start = 10 ** low;
  const decades = (from: number, to: number): number[] =>
    Array.from({ length: Math.floor(to) - Math.ceil(from) + 1 }, (_, at) => 10 ** (Math.ceil(from) + at));
  return (
    <div class="roofline">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label="roofline of the kernels">
        {decades(low, high).map((one) => (
          <g key={one}><line class="rule" x1={x(one)} x2={x(one)} y1={10} y2={HEIGHT - BOTTOM} /><text x={x(one)} y={HEIGHT - 18} text-anchor="middle">{one}</text></g>
        ))}
        {decades(slow, fast).map((one) => (
          <g key={one}><line class="rule" x1={LEFT} x2={WIDTH - 12} y1={y(one)} y2={y(one)} /><text x={LEFT - 5} y={y(one) + 4} text-anchor="end">{operations(one)}</text></g>
        ))}
        <text x={(LEFT + WIDTH) / 2} y={HEIGHT - 4} text-anchor="middle">operations per byte</text>
        <polyline
          class="roof" points={`${x(start)},${y(start * roof.bytes_per_second)} ${x(ridge)},${y(roof.operations_per_second)} ${x(10 ** high)},${y(roof.operations_per_second)}`}
        />
        {shown.map((one) => (
          <circle
            key={one.name} cx={x(one.operations / (one.bytes_read + one.bytes_written))} cy={y(one.operations_per_second)}
            r={4 + 14 * Math.sqrt(one.share)} onClick={() => one.nodes[0] && revealIndex(one.nodes[0].index)}
          >
            <title>{`${one.name}\n${duration(one.seconds.median * 1e9)}, ${Math.round(100 * one.share)} % of the step\n${Math.round(100 * one.roofline_share)} % of its roofline`}</title>
          </circle>
        ))}
      </svg>
      <table class="kernels">
        <thead><tr><th>kernel</th><th>time</th><th>share</th><th>ops/s</th><th>moved</th><th>of roofline</th></tr></thead>
        <tbody>
          {[...facts.kernels].sort((one, other) => other.share - one.share).map((one) => (
            <tr key={one.name} onClick={() => one.nodes[0] && revealIndex(one.nodes[0].index)}>
              <td><b>{one.name}</b><i style={{ width: `${100 * one.share}%` }} /></td>
              <td>{duration(one.seconds.median * 1e9)}</td><td>{(100 * one.share).toFixed(1)} %</td>
              <td>{operations(one.operations_per_second)}</td><td>{bytes(one.bytes_read + one.bytes_written)}</td>
              <td>{Math.round(100 * one.roofline_share)} % <span class="quiet">{one.bound}</span></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
