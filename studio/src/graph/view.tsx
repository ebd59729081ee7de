// The graph view: pan, zoom, search, minimap; containers open and close.
import { effect, signal } from "@preact/signals";
import type { Signal } from "@preact/signals";
import { select } from "d3-selection";
import { zoom, zoomIdentity, ZoomBehavior } from "d3-zoom";
import { useEffect, useRef } from "preact/hooks";
import { checked, graph, nodesById, opened, reveal, revealed, selected, step, text } from "../store";
import { drawGraph, drawMinimap } from "./draw";
import type { Camera, Marks } from "./draw";
import { Layouts } from "./layout";
import type { Box, Layout } from "./layout";
import { nodeColour, palette } from "./palette";
import { Legend } from "./legend";
import { SearchBox } from "./search";
import { buildTree, pathTo } from "./tree";
import type { Branch, Tree } from "./tree";

/** The least scale at which names and types can be read. */
const READABLE = 0.8;
const MINIMAP = { width: 190, height: 150 };
/** Containers that were opened or closed by hand, by their keys. */
const chosen = signal<Map<string, boolean>>(new Map());
export const found = signal<Set<string>>(new Set());
export const related = signal<Set<string>>(new Set());
/** Whether the picture shows the graph that the text has now. */
export const isDrawn = signal(false);
const isArranging = signal(false);

function isOpen(tree: Tree, branch: Branch): boolean {
  const wanted = chosen.value.get(branch.key);
  if (wanted !== undefined) return wanted;
  return branch.depth === 0 ? branch.container.label === "block entry" || !tree.facts.collapsed : !tree.facts.collapsed;
}

export class GraphController {
  tree: Tree | null = null;
  layout: Layout | null = null;
  camera: Camera = { k: 1, x: 0, y: 0 };
  private hovered: string | null = null;
  private wanted = 0;
  private frame = 0;
  private hasFitted = false;
  private readonly behaviour: ZoomBehavior<HTMLCanvasElement, unknown>;
  private readonly stops: (() => void)[] = [];
  private families = new Map<string, string>();
  private coloured = new Map<string, string>();
  private drawnMap = { scale: 1, x: 0, y: 0 };

  constructor(private readonly canvas: HTMLCanvasElement, private readonly map: HTMLCanvasElement) {
    this.behaviour = zoom<HTMLCanvasElement, unknown>()
      .scaleExtent([0.02, 4])
      .on("zoom", (event: { transform: Camera }) => {
        const { k, x, y } = event.transform;
        this.camera = { k, x, y };
        this.draw();
      });
    select(canvas).call(this.behaviour).on("dblclick.zoom", null);
    this.listen();
    const observer = new ResizeObserver(() => this.resize());
    observer.observe(canvas);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const repaint = (): void => (this.coloured.clear(), this.draw());
    scheme.addEventListener("change", repaint);
    this.stops.push(
      () => observer.disconnect(),
      () => scheme.removeEventListener("change", repaint),
      effect(() => {
        this.families = new Map((opened.value?.ops ?? []).map((one) => [one.name, one.family]));
        this.rebuild();
      }),
      effect(() => {
        void [selected.value, found.value, related.value, step.value];
        this.draw();
      }),
      effect(() => {
        if (revealed.value) this.show(revealed.value.id);
      }),
    );
  }

  dispose(): void {
    for (const stop of this.stops) stop();
    this.wanted = -1;
  }

  private rebuild(): void {
    const facts = graph.value;
    void chosen.value;
    if (!facts) return;
    if (this.tree?.facts !== facts) {
      this.tree = buildTree(facts);
      this.coloured.clear();
      isDrawn.value = false;
    }
    void this.arrange(this.tree);
  }

  private async arrange(tree: Tree): Promise<void> {
    const mine = ++this.wanted;
    isArranging.value = true;
    const layouts = new Layouts(tree, (branch) => isOpen(tree, branch));
    const made = await layouts.all(() => mine === this.wanted);
    if (!made) return;
    this.layout = made;
    isArranging.value = false;
    isDrawn.value = tree.facts === graph.peek();
    if (!this.hasFitted && this.canvas.clientWidth > 0) {
      this.hasFitted = true;
      this.fit();
    }
    if (this.pending) this.center(this.pending);
    this.draw();
  }

  private pending: string | null = null;

  /** Open whatever is around something, and bring it into sight. */
  show(id: string): void {
    const tree = this.tree;
    if (!tree || !tree.parents.has(id)) return;
    const around = pathTo(tree, id).slice(0, -1).map((one) => tree.branches.get(one)).filter((one) => one !== undefined);
    const closed = around.filter((one) => !isOpen(tree, one));
    this.pending = id;
    if (closed.length) chosen.value = new Map([...chosen.value, ...closed.map((one) => [one.key, true] as const)]);
    else this.center(id);
  }

  private center(id: string): void {
    const box = this.layout?.places.get(id);
    const { clientWidth, clientHeight } = this.canvas;
    if (!box || !clientWidth) return;
    this.pending = null;
    const inSight = this.isInSight(box, clientWidth, clientHeight);
    if (inSight && this.camera.k >= 0.5) return this.draw();
    const k = Math.max(this.camera.k, 0.75);
    const middle = { x: box.x + box.width / 2, y: box.y + Math.min(box.height / 2, clientHeight / 2 / k - 20) };
    this.go({ k, x: clientWidth / 2 - middle.x * k, y: clientHeight / 2 - middle.y * k });
  }

  private isInSight(box: Box, width: number, height: number): boolean {
    const { k, x, y } = this.camera;
    const margin = 24;
    return box.x * k + x > margin && (box.x + box.width) * k + x < width - margin && box.y * k + y > margin
      && (box.y + box.height) * k + y < height - margin;
  }

  private go(camera: Camera): void {
    select(this.canvas).call(this.behaviour.transform, zoomIdentity.translate(camera.x, camera.y).scale(camera.k));
  }

  fit(): void {
    if (!this.layout) return;
    const { clientWidth, clientHeight } = this.canvas;
    const whole = Math.min((clientWidth - 40) / Math.max(this.layout.width, 1), (clientHeight - 76) / Math.max(this.layout.height, 1));
    const k = Math.min(1.1, Math.max(whole, READABLE));
    // What does not fit begins where the graph does: with its topmost node in the middle.
    const first = this.layout.nodes.reduce<Box | null>((top, one) => (top === null || one.y < top.y ? one : top), null);
    const middle = this.layout.width * k <= clientWidth || !first ? this.layout.width / 2 : first.x + first.width / 2;
    this.go({ k, x: clientWidth / 2 - middle * k, y: 56 });
  }

  fitAll(): void {
    if (!this.layout) return;
    const { clientWidth, clientHeight } = this.canvas;
    const k = Math.min(1.1, (clientWidth - 40) / Math.max(this.layout.width, 1), (clientHeight - 40) / Math.max(this.layout.height, 1));
    this.go({ k, x: (clientWidth - this.layout.width * k) / 2, y: (clientHeight - this.layout.height * k) / 2 });
  }

  zoomBy(factor: number): void {
    select(this.canvas).call(this.behaviour.scaleBy, factor);
  }

  setAll(open: boolean): void {
    if (!this.tree) return;
    const keys = [...this.tree.branches.values()].filter((one) => open || one.container.label !== "block entry");
    chosen.value = new Map(keys.map((one) => [one.key, open]));
  }

  toggle(id: string): void {
    const branch = this.tree?.branches.get(id);
    if (!branch || !this.tree) return;
    chosen.value = new Map([...chosen.value, [branch.key, !isOpen(this.tree, branch)]]);
  }

  // --- pointer ---------------------------------------------------------------------------------------------------

  private listen(): void {
    this.canvas.addEventListener("pointermove", (event) => {
      const box = this.at(event);
      const id = box?.id ?? null;
      if (id === this.hovered) return;
      this.hovered = id;
      this.canvas.style.cursor = id === null ? "grab" : "pointer";
      this.canvas.title = this.hint(id);
      this.draw();
    });
    this.canvas.addEventListener("click", (event) => {
      if (!event.defaultPrevented) this.click(event);
    });
    this.canvas.addEventListener("dblclick", (event) => {
      const box = this.at(event);
      if (box) this.toggle(box.id);
    });
    const jump = (event: PointerEvent): void => {
      if (event.buttons !== 1) return;
      const { scale, x, y } = this.drawnMap;
      const place = { x: (event.offsetX - x) / scale, y: (event.offsetY - y) / scale };
      const { k } = this.camera;
      this.go({ k, x: this.canvas.clientWidth / 2 - place.x * k, y: this.canvas.clientHeight / 2 - place.y * k });
    };
    this.map.addEventListener("pointerdown", jump);
    this.map.addEventListener("pointermove", jump);
  }

  private hint(id: string | null): string {
    const node = id ? nodesById.value.get(id) : undefined;
    if (node) return node.text;
    const branch = id ? this.tree?.branches.get(id) : undefined;
    return branch ? `${branch.container.label}: ${branch.container.count} nodes` : "";
  }

  private click(event: MouseEvent): void {
    const box = this.at(event);
    if (!box) {
      selected.value = null;
      return;
    }
    const port = this.layout?.ports.find((one) => one.id === box.id);
    if (port) return reveal(port.port.outside);
    const branch = this.tree?.branches.get(box.id);
    const place = this.world(event);
    if (branch && place.y < box.y + 26 && place.x < box.x + 26) return this.toggle(box.id);
    selected.value = box.id;
    for (const block of nodesById.value.get(box.id)?.runs ?? []) if (event.altKey) reveal(block);
  }

  private world(event: MouseEvent): { x: number; y: number } {
    const { k, x, y } = this.camera;
    return { x: (event.offsetX - x) / k, y: (event.offsetY - y) / k };
  }

  private at(event: MouseEvent): Box | null {
    const layout = this.layout;
    if (!layout) return null;
    const { x, y } = this.world(event);
    const hit = (box: Box): boolean => x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height;
    const node = layout.nodes.find(hit) ?? layout.ports.find(hit);
    if (node) return node;
    const around = layout.containers.filter((box) => hit(box) && (!box.isOpen || y < box.y + 26));
    return around[around.length - 1] ?? null;
  }

  // --- drawing ---------------------------------------------------------------------------------------------------

  private resize(): void {
    for (const one of [this.canvas, this.map]) {
      const ratio = window.devicePixelRatio || 1;
      one.width = Math.max(1, Math.round(one.clientWidth * ratio));
      one.height = Math.max(1, Math.round(one.clientHeight * ratio));
    }
    if (!this.hasFitted && this.layout && this.canvas.clientWidth > 0) {
      this.hasFitted = true;
      this.fit();
    }
    if (this.pending) this.center(this.pending);
    this.draw();
  }

  private colour(id: string, kind: string, family: string | undefined): string {
    let known = this.coloured.get(id);
    if (known === undefined) {
      known = nodeColour(kind, family, palette());
      this.coloured.set(id, known);
    }
    return known;
  }

  private draw(): void {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.paint();
    });
  }

  /** For measurements: draw at once, from another place. */
  paintAt(x: number, y: number): void {
    this.camera = { ...this.camera, x, y };
    this.paint();
  }

  private paint(): void {
    const context = this.canvas.getContext("2d");
    const small = this.map.getContext("2d");
    if (!this.layout || !context || !small || !this.canvas.clientWidth) return;
    const colours = palette();
    const now = step.value;
    const marks: Marks = {
      selected: selected.value,
      hovered: this.hovered,
      current: now && now.node !== null ? `n${now.node}` : null,
      found: found.value,
      related: related.value,
      colour: (box) => this.colour(`${box.node.kind} ${box.node.label}`, box.node.kind, this.families.get(box.node.label)),
    };
    const { clientWidth: width, clientHeight: height } = this.canvas;
    drawGraph(context, width, height, this.camera, this.layout, marks, colours);
    this.drawnMap = drawMinimap(
      small, MINIMAP.width, MINIMAP.height, this.camera, { width, height }, this.layout, marks, colours,
    );
  }
}

declare global {
  interface Window {
    /** For tests and measurements: where things are on the canvas, and what the views share. */
    studioGraph?: GraphController;
    studioBench?: { text: Signal<string>; checked: Signal<unknown> };
  }
}

export function GraphView() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const map = useRef<HTMLCanvasElement>(null);
  const controller = useRef<GraphController | null>(null);
  useEffect(() => {
    const made = new GraphController(canvas.current as HTMLCanvasElement, map.current as HTMLCanvasElement);
    controller.current = window.studioGraph = made;
    window.studioBench = { text, checked };
    return () => made.dispose();
  }, []);
  const facts = graph.value;
  return (
    <div class="graph-view" data-arranging={isArranging.value}>
      <canvas ref={canvas} class="graph-canvas" aria-label="the graph as a picture" data-drawn={isDrawn.value} />
      <div class="graph-tools">
        <SearchBox />
        <button title="show everything" onClick={() => controller.current?.fitAll()}>Fit</button>
        <button title="zoom in" onClick={() => controller.current?.zoomBy(1.3)}>+</button>
        <button title="zoom out" onClick={() => controller.current?.zoomBy(1 / 1.3)}>−</button>
        <button onClick={() => controller.current?.setAll(true)}>Expand all</button>
        <button onClick={() => controller.current?.setAll(false)}>Collapse all</button>
      </div>
      <Legend />
      <canvas ref={map} class="minimap" style={{ width: `${MINIMAP.width}px`, height: `${MINIMAP.height}px` }} aria-label="minimap" />
      <div class="graph-status">
        {facts ? `${facts.count} nodes` : "no graph"}
        {facts && !facts.bound ? " · types need a model or sizes" : ""}
      </div>
    </div>
  );
}
