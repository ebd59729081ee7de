// The graph as nested containers: what is inside what, and at which level each edge is drawn.
import type { Container, Edge, GraphFacts, GraphNode } from "../types";

/** A value that a container gets from outside, or gives to it. */
export interface Port {
  id: string;
  direction: "in" | "out";
  variable: string;
  kind: Edge[3];
  /** The node outside that it comes from, or one that it goes to. */
  outside: string;
}

export interface LocalEdge {
  from: string;
  to: string;
  variable: string;
  kind: Edge[3];
  source: string;
  target: string;
}

export interface Branch {
  container: Container;
  nodes: GraphNode[];
  inner: Branch[];
  edges: LocalEdge[];
  ports: Port[];
  /** What it is remembered by when the text changes: node numbers shift, names rarely do. */
  key: string;
  depth: number;
  /** The block that it is in. */
  block: string;
}

export interface Tree {
  facts: GraphFacts;
  roots: Branch[];
  branches: Map<string, Branch>;
  /** The container of every node and container. */
  parents: Map<string, string | null>;
}

export function buildTree(facts: GraphFacts): Tree {
  const branches = new Map<string, Branch>();
  const parents = new Map<string, string | null>();
  const roots: Branch[] = [];
  const taken = new Map<string, number>();
  for (const container of facts.containers) {
    const outer = container.parent === null ? null : (branches.get(container.parent) ?? null);
    const wanted = `${outer?.key ?? ""}/${container.kind === "segment" ? "segment" : container.label}`;
    const count = taken.get(wanted) ?? 0;
    taken.set(wanted, count + 1);
    const branch: Branch = {
      container, nodes: [], inner: [], edges: [], ports: [], key: `${wanted}#${count}`, depth: outer ? outer.depth + 1 : 0,
      block: outer ? outer.block : container.id.slice(2),
    };
    branches.set(container.id, branch);
    parents.set(container.id, container.parent);
    (outer ? outer.inner : roots).push(branch);
  }
  for (const node of facts.nodes) {
    branches.get(node.parent)?.nodes.push(node);
    parents.set(node.id, node.parent);
  }
  const tree = { facts, roots, branches, parents };
  placeEdges(tree);
  return tree;
}

/** The containers around something, outermost first, and itself at the end. */
export function pathTo(tree: Tree, id: string): string[] {
  const found = [id];
  for (let at = tree.parents.get(id); at; at = tree.parents.get(at)) found.push(at);
  return found.reverse();
}

function placeEdges(tree: Tree): void {
  const seen = new Set<string>();
  for (const [source, target, variable, kind] of tree.facts.edges) {
    const from = pathTo(tree, source);
    const to = pathTo(tree, target);
    let shared = 0;
    while (shared < from.length - 1 && shared < to.length - 1 && from[shared] === to[shared]) shared++;
    const common = tree.branches.get(from[shared - 1] ?? "");
    const start = from[shared];
    const end = to[shared];
    if (!common || start === undefined || end === undefined) continue;
    const key = `${start} ${end} ${variable} ${kind}`;
    if (!seen.has(key) && (start !== end || kind === "carried")) {
      seen.add(key);
      common.edges.push({ from: start, to: end, variable, kind, source, target });
    }
    addPorts(tree, from.slice(shared), "out", variable, kind, target, seen);
    addPorts(tree, to.slice(shared), "in", variable, kind, source, seen);
  }
}

/** Where an edge ends inside containers, each of them has a port for it, beside the node that it belongs to. */
function addPorts(
  tree: Tree, path: string[], direction: "in" | "out", variable: string, kind: Edge[3], outside: string, seen: Set<string>,
): void {
  for (let at = 0; at + 1 < path.length; at++) {
    const branch = tree.branches.get(path[at] as string);
    const child = path[at + 1] as string;
    if (!branch) continue;
    const id = `${branch.container.id}|${direction}|${variable}|${direction === "in" ? outside : child}`;
    if (!seen.has(id)) {
      seen.add(id);
      branch.ports.push({ id, direction, variable, kind, outside });
    }
    const edge = direction === "in" ? { from: id, to: child } : { from: child, to: id };
    const key = `${edge.from} ${edge.to} ${kind}`;
    if (!seen.has(key)) {
      seen.add(key);
      branch.edges.push({ ...edge, variable, kind, source: edge.from, target: edge.to });
    }
  }
}

export interface Found {
  id: string;
  label: string;
  detail: string;
  line: number | null;
}

/** Nodes and containers that a search is about: names first, then texts and weights. */
export function searched(facts: GraphFacts, wanted: string, most = 200): Found[] {
  const word = wanted.trim().toLowerCase();
  if (!word) return [];
  const named: Found[] = [];
  const others: Found[] = [];
  for (const one of facts.containers) {
    if (one.kind !== "segment" && `${one.label} ${one.detail}`.toLowerCase().includes(word)) {
      named.push({ id: one.id, label: one.label, detail: one.detail || `${one.count} nodes`, line: one.line });
    }
  }
  for (const one of facts.nodes) {
    const found = { id: one.id, label: one.label, detail: one.text, line: one.line };
    if (one.label.toLowerCase().includes(word)) named.push(found);
    else if (`${one.text} ${one.weights.join(" ")}`.toLowerCase().includes(word)) others.push(found);
    if (named.length >= most) break;
  }
  return [...named, ...others].slice(0, most);
}

/** The type of a variable, as a block calls it. */
export function typeOf(facts: GraphFacts, block: string, variable: string): string | undefined {
  return facts.types[`${block}.${variable}`] ?? facts.types[variable];
}
