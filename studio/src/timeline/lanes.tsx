// Traces as lanes: an event for each executed node, as long as it took.
import { useEffect, useRef } from "preact/hooks";
import { select } from "d3-selection";
import { zoom, zoomIdentity } from "d3-zoom";
import { revealIndex, selectedNode } from "../store";
import type { TraceEventFacts, TraceFacts } from "../types";
import { duration } from "../values/format";

const ROW = 22;
const HEAD = 22;
const AXIS = 18;
const GAP = 14;
const LEFT = 8;

interface Lane {
  title: string;
  threads: { name: string; events: TraceEventFacts[] }[];
  length: number;
}

export function lanesOf(traces: TraceFacts[]): Lane[] {
  return traces.map((trace) => {
    const threads = new Map<string, TraceEventFacts[]>();
    for (const one of trace.events) {
      const known = threads.get(one.thread);
      if (known) known.push(one);
      else threads.set(one.thread, [one]);
    }
    const length = trace.events.reduce((most, one) => Math.max(most, one.start + one.duration), 1);
    return { title: trace.name, threads: [...threads].map(([name, events]) => ({ name, events })), length };
  });
}

/** The same name has the same colour in every lane. */
function hue(name: string): number {
  let found = 7;
  for (const letter of name) found = (found * 31 + letter.charCodeAt(0)) % 360;
  return found;
}

interface Props {
  traces: TraceFacts[];
  /** One time scale for all lanes; else each lane is as wide as the page. */
  isShared: boolean;
  diverging: number | null;
  onPick: (event: TraceEventFacts, trace: string) => void;
}

export function Lanes({ traces, isShared, diverging, onPick }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const rows = traces.length ? lanesOf(traces) : [];
  const height = rows.reduce((sum, lane) => sum + heightOf(lane) + GAP, 4);
  useEffect(() => {
    const place = canvas.current as HTMLCanvasElement;
    const painter = new LanePainter(place, rows, isShared, diverging, onPick);
    return () => painter.dispose();
  }, [traces, isShared, diverging]);
  void selectedNode.value;
  return <canvas class="lanes" ref={canvas} style={{ height: `${height}px` }} aria-label="traces" />;
}

function heightOf(lane: Lane): number {
  return HEAD + AXIS + lane.threads.length * ROW;
}

interface Shown {
  event: TraceEventFacts;
  trace: string;
  x: number;
  y: number;
  width: number;
}

class LanePainter {
  private camera = { k: 1, x: 0 };
  private shown: Shown[] = [];
  private readonly observer: ResizeObserver;
  private over: Shown | null = null;

  constructor(
    private readonly canvas: HTMLCanvasElement, private readonly lanes: Lane[], private readonly isShared: boolean,
    private readonly diverging: number | null, onPick: Props["onPick"],
  ) {
    const behaviour = zoom<HTMLCanvasElement, unknown>().scaleExtent([1, 20000])
      .on("zoom", (event: { transform: { k: number; x: number } }) => {
        this.camera = { k: event.transform.k, x: Math.min(event.transform.x, 0) };
        this.draw();
      });
    select(canvas).call(behaviour).call(behaviour.transform, zoomIdentity);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(canvas);
    canvas.onpointermove = (event) => {
      this.over = this.at(event);
      canvas.title = this.over ? `${this.over.event.name}  node ${this.over.event.node}  ${duration(this.over.event.duration)}` : "";
    };
    canvas.onclick = (event) => {
      const found = this.at(event);
      if (!found) return;
      onPick(found.event, found.trace);
      revealIndex(found.event.node);
      this.draw();
    };
  }

  dispose(): void {
    this.observer.disconnect();
  }

  private at(event: MouseEvent): Shown | null {
    const { offsetX: x, offsetY: y } = event;
    return this.shown.find((one) => x >= one.x && x <= one.x + Math.max(one.width, 2) && y >= one.y && y <= one.y + ROW - 3) ?? null;
  }

  private draw(): void {
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const wide = canvas.clientWidth;
    canvas.width = Math.max(1, wide * ratio);
    canvas.height = Math.max(1, canvas.clientHeight * ratio);
    const context = canvas.getContext("2d");
    if (!context || !wide) return;
    context.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim();
    const faint = style.getPropertyValue("--faint").trim();
    this.shown = [];
    const rule = style.getPropertyValue("--rule").trim();
    const longest = Math.max(1, ...this.lanes.map((one) => one.length));
    let y = 4;
    for (const lane of this.lanes) {
      const length = this.isShared ? longest : lane.length;
      context.fillStyle = ink;
      context.font = "600 12px system-ui, sans-serif";
      context.fillText(lane.title, LEFT, y + 15);
      context.fillStyle = faint;
      context.font = "11px system-ui, sans-serif";
      context.fillText(duration(lane.length), LEFT + context.measureText(lane.title).width + 26, y + 15);
      this.axis(context, wide, length, { top: y + HEAD, bottom: y + heightOf(lane), faint, rule });
      const top = y + HEAD;
      y = top + AXIS;
      for (const thread of lane.threads) {
        for (const event of thread.events) this.event(context, event, lane, { top, y, wide, length, ink });
        y += ROW;
      }
      y += GAP;
    }
  }

  private axis(
    context: CanvasRenderingContext2D, wide: number, length: number, at: { top: number; bottom: number; faint: string; rule: string },
  ): void {
    const { k, x } = this.camera;
    context.font = "10.5px system-ui, sans-serif";
    for (let mark = 0; mark <= 8; mark++) {
      const place = LEFT + ((wide - 2 * LEFT) * mark) / 8;
      const time = ((place - LEFT - x) / k / (wide - 2 * LEFT)) * length;
      context.fillStyle = at.rule;
      context.fillRect(place, at.top, 1, at.bottom - at.top);
      context.fillStyle = at.faint;
      context.textAlign = mark === 8 ? "right" : "left";
      context.fillText(duration(Math.round(time)), place + (mark === 8 ? -3 : 3), at.top + 11);
    }
    context.textAlign = "left";
  }

  private event(
    context: CanvasRenderingContext2D, event: TraceEventFacts, lane: Lane,
    { top, y, wide, length, ink }: { top: number; y: number; wide: number; length: number; ink: string },
  ): void {
    const scale = ((wide - 2 * LEFT) / length) * this.camera.k;
    const x = LEFT + event.start * scale + this.camera.x;
    const width = event.duration * scale;
    if (x > wide || x + width < 0) return;
    const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    context.fillStyle = `hsl(${hue(event.name)} 55% ${isDark ? 42 : 72}%)`;
    // A gap in front of the next one, which may have the same colour.
    context.fillRect(x, y, width > 3 ? width - 1 : Math.max(width, 0.7), ROW - 3);
    const isDiverging = event.position === this.diverging;
    const isSelected = selectedNode.value?.index === event.node;
    if (isDiverging || isSelected) {
      context.strokeStyle = isDiverging ? "#d1242f" : ink;
      context.lineWidth = isDiverging ? 2.5 : 1.5;
      context.strokeRect(x, y, Math.max(width, 2), ROW - 3);
    }
    if (isDiverging) {
      context.fillStyle = "#d1242f";
      context.fillRect(x - 1, top, 2, heightOf(lane) - HEAD);
    }
    this.shown.push({ event, trace: lane.title, x, y, width });
    if (width < 26) return;
    context.fillStyle = isDark ? "#fff" : "#1c2330";
    context.font = "11px system-ui, sans-serif";
    context.save();
    context.beginPath();
    context.rect(x, y, width, ROW);
    context.clip();
    context.fillText(event.name, Math.max(x, 0) + 4, y + 13.5);
    context.restore();
  }
}
