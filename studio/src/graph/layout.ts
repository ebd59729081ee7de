// Places of everything that is visible. Each open container is laid out by itself, from the inside out, with dagre.
import dagre, { graphlib } from "@dagrejs/dagre";
import type { Container, GraphNode } from "../types";
import { typeOf } from "./tree";
import type { Branch, LocalEdge, Port, Tree } from "./tree";

export interface Box {
  id: string;
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface NodeBox extends Box {
  node: GraphNode;
  lines: string[];
}

export interface ContainerBox extends Box {
  branch: Branch;
  isOpen: boolean;
}

export interface PortBox extends Box {
  port: Port;
}

export interface Route {
  edge: LocalEdge;
  points: { x: number; y: number }[];
  label: string;
  at: { x: number; y: number } | null;
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export interface Layout {
  width: number;
  height: number;
  nodes: NodeBox[];
  containers: ContainerBox[];
  ports: PortBox[];
  routes: Route[];
  places: Map<string, Box>;
}

export const FONT = "12px Inter, 'Segoe UI', system-ui, sans-serif";
export const SMALL = "10.5px Inter, 'Segoe UI', system-ui, sans-serif";
const TITLE = 26;
const PAD = 14;
const LONGEST = 34;
const measuring = document.createElement("canvas").getContext("2d") as CanvasRenderingContext2D;
const widths = new Map<string, number>();

export function widthOf(text: string, font = FONT): number {
  const key = `${font}|${text}`;
  let found = widths.get(key);
  if (found === undefined) {
    measuring.font = font;
    found = measuring.measureText(text).width;
    widths.set(key, found);
  }
  return found;
}

export function cropped(text: string, most = LONGEST): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** An open container's own picture, with its left upper corner at 0, 0. */
interface Inside {
  width: number;
  height: number;
  nodes: NodeBox[];
  containers: ContainerBox[];
  ports: PortBox[];
  routes: Route[];
}

export function nodeLines(node: GraphNode, types: Record<string, string>): string[] {
  const lines = node.weights.slice(0, 2).map((one) => {
    const type = types[one.replace(/\[.*$/, "")];
    return cropped(type ? `${one} ${type}` : one, 40);
  });
  if (node.weights.length > 2) lines.push(`and ${node.weights.length - 2} more`);
  if (node.index === null && types[node.label]) lines.push(cropped(types[node.label] as string, 40));
  return lines;
}

function nodeSize(label: string, lines: string[]): { width: number; height: number } {
  const inner = Math.max(widthOf(cropped(label)), ...lines.map((one) => widthOf(one, SMALL)));
  return { width: Math.max(64, inner + 28), height: 28 + lines.length * 14 };
}

/** What stands below the title of a closed container. */
export function closedLine({ detail, count }: Container): string {
  const nodes = `${count} node${count === 1 ? "" : "s"}`;
  return detail ? `${cropped(detail, 28)} · ${nodes}` : nodes;
}

function closedSize(branch: Branch): { width: number; height: number } {
  const { container } = branch;
  return { width: Math.max(110, widthOf(cropped(container.label)) + 56, widthOf(closedLine(container), SMALL) + 44), height: 44 };
}

export class Layouts {
  private readonly known = new Map<string, Inside>();

  constructor(
    private readonly tree: Tree,
    private readonly isOpen: (branch: Branch) => boolean,
  ) {}

  /** Lay everything out; gives way to the page now and then, and ends early when it is no longer wanted. */
  async all(isWanted: () => boolean): Promise<Layout | null> {
    const insides: Inside[] = [];
    for (const root of this.tree.roots) {
      const found = await this.branch(root, isWanted);
      if (!found) return null;
      insides.push(found);
    }
    return this.together(insides);
  }

  private pause = 0;

  private async branch(branch: Branch, isWanted: () => boolean): Promise<Inside | null> {
    for (const inner of branch.inner) {
      if (this.isOpen(branch) && this.isOpen(inner) && !(await this.branch(inner, isWanted))) return null;
    }
    if (performance.now() - this.pause > 30) {
      await new Promise((resolve) => setTimeout(resolve));
      this.pause = performance.now();
    }
    if (!isWanted()) return null;
    const found = this.inside(branch);
    this.known.set(branch.container.id, found);
    return found;
  }

  private inside(branch: Branch): Inside {
    const graph = new graphlib.Graph({ multigraph: true });
    graph.setGraph({ rankdir: "TB", nodesep: 22, ranksep: 26, edgesep: 10, marginx: PAD, marginy: PAD });
    graph.setDefaultEdgeLabel(() => ({}));
    const nodes: NodeBox[] = [];
    for (const node of branch.nodes) {
      const lines = nodeLines(node, this.tree.facts.types);
      nodes.push({ id: node.id, node, lines, x: 0, y: 0, ...nodeSize(node.label, lines) });
    }
    const closed: ContainerBox[] = branch.inner.map((inner) => {
      const isOpen = this.isOpen(inner);
      const known = isOpen ? (this.known.get(inner.container.id) as Inside) : closedSize(inner);
      return { id: inner.container.id, branch: inner, isOpen, x: 0, y: 0, width: known.width, height: known.height };
    });
    const ports: PortBox[] = branch.ports.map((port) => ({
      id: port.id, port, x: 0, y: 0, width: widthOf(cropped(port.variable, 24), SMALL) + 16, height: 16,
    }));
    const boxes: Box[] = [...nodes, ...closed, ...ports];
    for (const box of boxes) graph.setNode(box.id, { width: box.width, height: box.height });
    const routed = this.edges(branch, graph);
    dagre.layout(graph);
    for (const box of boxes) {
      const at = graph.node(box.id);
      box.x = at.x - box.width / 2;
      box.y = at.y - box.height / 2 + TITLE;
    }
    const size = graph.graph();
    const title = widthOf(cropped(branch.container.label)) + widthOf(cropped(branch.container.detail, 40), SMALL) + 72;
    const found: Inside = {
      width: Math.max(size.width || 0, title, 120), height: Math.max(size.height || 0, 24) + TITLE, nodes, containers: closed,
      ports, routes: [],
    };
    this.routes(found, branch, graph, routed);
    this.insert(found);
    return found;
  }

  /** Edges that order the picture; those that go back up are drawn later. */
  private edges(branch: Branch, graph: graphlib.Graph): Map<LocalEdge, string> {
    const read = new Set(branch.edges.filter((one) => one.kind !== "state").map((one) => one.from));
    const routed = new Map<LocalEdge, string>();
    const labelled = new Set<string>();
    branch.edges.forEach((edge, number) => {
      const isBack = edge.kind === "carried" || (edge.kind === "state" && read.has(edge.to));
      if (isBack || edge.from === edge.to || !graph.hasNode(edge.from) || !graph.hasNode(edge.to)) return;
      const key = `${edge.from} ${edge.variable}`;
      const isPort = edge.from.includes("|") || edge.to.includes("|");
      const label = edge.kind === "data" && !labelled.has(key) && !isPort ? this.label(branch, edge) : "";
      if (label) labelled.add(key);
      const size = label ? { width: widthOf(label, SMALL) + 8, height: 14, labelpos: "c" } : {};
      graph.setEdge(edge.from, edge.to, { weight: edge.kind === "index" ? 1 : 4, text: label, ...size }, String(number));
      routed.set(edge, String(number));
    });
    return routed;
  }

  private label(branch: Branch, edge: LocalEdge): string {
    const type = typeOf(this.tree.facts, branch.block, edge.variable);
    return cropped(type ? `${edge.variable} ${type}` : edge.variable, 40);
  }

  private routes(found: Inside, branch: Branch, graph: graphlib.Graph, routed: Map<LocalEdge, string>): void {
    const boxes = new Map<string, Box>([...found.nodes, ...found.containers, ...found.ports].map((one) => [one.id, one]));
    let lane = 0;
    for (const edge of branch.edges) {
      const from = boxes.get(edge.from);
      const to = boxes.get(edge.to);
      if (!from || !to) continue;
      const name = routed.get(edge);
      if (name === undefined) {
        found.routes.push(backRoute(edge, from, to, rightOf(from, to, boxes.values()) + 14 + (lane++ % 8) * 7));
        continue;
      }
      const made = graph.edge(edge.from, edge.to, name);
      const points = made.points.map((one: { x: number; y: number }) => ({ x: one.x, y: one.y + TITLE }));
      const at = made.text ? { x: made.x as number, y: (made.y as number) + TITLE } : null;
      found.routes.push(route(edge, points, (made.text as string) ?? "", at));
    }
    const right = Math.max(0, ...found.routes.map((one) => one.right + PAD));
    found.width = Math.max(found.width, right);
  }

  /** Put the pictures of open containers into their places. */
  private insert(found: Inside): void {
    for (const box of [...found.containers]) {
      if (!box.isOpen) continue;
      const inner = this.known.get(box.id) as Inside;
      move(inner, box.x, box.y, found);
    }
  }

  /** The blocks side by side, each below or beside the one that runs it. */
  private together(insides: Inside[]): Layout {
    const whole: Inside = { width: 0, height: 0, nodes: [], containers: [], ports: [], routes: [] };
    let x = 0;
    let y = 0;
    let row = 0;
    const widest = Math.max(1400, ...insides.map((one) => one.width));
    this.tree.roots.forEach((branch, number) => {
      const isOpen = this.isOpen(branch);
      const inner = insides[number] as Inside;
      const size = isOpen ? inner : closedSize(branch);
      if (x > 0 && x + size.width > widest) [x, y, row] = [0, y + row + 40, 0];
      whole.containers.push({ id: branch.container.id, branch, isOpen, x, y, width: size.width, height: size.height });
      if (isOpen) move(inner, x, y, whole);
      x += size.width + 40;
      row = Math.max(row, size.height);
      whole.width = Math.max(whole.width, x - 40);
      whole.height = Math.max(whole.height, y + size.height);
    });
    const places = new Map<string, Box>();
    for (const box of [...whole.containers, ...whole.ports, ...whole.nodes]) places.set(box.id, box);
    return { ...whole, places };
  }
}

function move(inner: Inside, dx: number, dy: number, into: Inside): void {
  for (const box of inner.nodes) into.nodes.push({ ...box, x: box.x + dx, y: box.y + dy });
  for (const box of inner.containers) into.containers.push({ ...box, x: box.x + dx, y: box.y + dy });
  for (const box of inner.ports) into.ports.push({ ...box, x: box.x + dx, y: box.y + dy });
  for (const one of inner.routes) {
    const points = one.points.map((point) => ({ x: point.x + dx, y: point.y + dy }));
    into.routes.push(route(one.edge, points, one.label, one.at ? { x: one.at.x + dx, y: one.at.y + dy } : null));
  }
}

function route(edge: LocalEdge, points: { x: number; y: number }[], label: string, at: Route["at"]): Route {
  const xs = points.map((one) => one.x);
  const ys = points.map((one) => one.y);
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  return { edge, points, label, at, left, top: Math.min(...ys), right, bottom: Math.max(...ys) };
}

/** The right end of whatever stands beside the way from one box to the other. */
function rightOf(from: Box, to: Box, boxes: Iterable<Box>): number {
  const top = Math.min(from.y, to.y);
  const bottom = Math.max(from.y + from.height, to.y + to.height);
  let right = Math.max(from.x + from.width, to.x + to.width);
  for (const box of boxes) if (box.y < bottom && box.y + box.height > top) right = Math.max(right, box.x + box.width);
  return right;
}

/** From the right side of one box around to the right side of another, above or below it, or of the same. */
function backRoute(edge: LocalEdge, from: Box, to: Box, far: number): Route {
  const [low, high] = from === to ? [0.75, 0.25] : [0.5, 0.5];
  const start = { x: from.x + from.width, y: from.y + from.height * low };
  const end = { x: to.x + to.width, y: to.y + to.height * high };
  const round = Math.max(-24, Math.min(24, (start.y - end.y) / 2));
  const points = [start, { x: far - 10, y: start.y }, { x: far, y: start.y - round }, { x: far, y: end.y + round }, { x: far - 10, y: end.y }, end];
  return route(edge, points, edge.variable, null);
}
