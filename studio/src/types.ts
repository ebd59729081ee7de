// What the server answers, as plain values.

export interface Problem {
  code: string;
  severity: "error" | "warning";
  message: string;
  help: string | null;
  /** The changes that the help names, by their titles. */
  fixes?: string[];
  notes: string[];
  line?: number;
  column?: number;
  from?: number;
  to?: number;
}

export interface GraphNode {
  id: string;
  index: number | null;
  parent: string;
  kind: string;
  label: string;
  text: string;
  line: number | null;
  weights: string[];
  runs: string[];
}

export interface Container {
  id: string;
  parent: string | null;
  kind: "block" | "loop" | "scope" | "segment";
  label: string;
  detail: string;
  line: number | null;
  count: number;
}

export type EdgeKind = "data" | "index" | "carried" | "state";
export type Edge = [source: string, target: string, variable: string, kind: EdgeKind];

export interface GraphFacts {
  nodes: GraphNode[];
  containers: Container[];
  edges: Edge[];
  types: Record<string, string>;
  count: number;
  collapsed: boolean;
  bound: boolean;
}

export interface CheckFacts {
  problems: Problem[];
  graph: GraphFacts | null;
  needs_model: boolean;
  interface: { name: string; type: string; default: string }[];
}

export interface OpSummary {
  name: string;
  family: string;
  usage: string;
  doc: string;
  params: string[];
}

export interface OpenFacts extends CheckFacts {
  version: string;
  name: string;
  text: string;
  can_save: boolean;
  model: { path: string; tensors: string[] } | null;
  sizes: Record<string, number>;
  device: string;
  devices: { name: string; title: string; api: string }[];
  inputs: string[];
  steps: number;
  ops: OpSummary[];
  traces: TraceFacts[];
}

export type Cell = number | string | null;

export interface Statistics {
  min: Cell;
  max: Cell;
  mean: Cell;
  nan: number;
  inf: number;
}

export interface ValueFacts {
  name: string;
  dtype: string;
  shape: number[];
  statistics: Statistics;
  histogram: { low: number | null; high: number | null; counts: number[] };
  lead: number[];
  plane: { rows: number[]; columns: number[]; cells: Cell[][] };
  line: { at: number[]; values: Cell[] };
  channels: Cell[][][] | null;
  editable?: boolean;
}

export interface Operand {
  role: string;
  is_result: boolean;
  text: string;
  type: string | null;
  kind: string | null;
  is_weight: boolean;
}

export interface OpParam {
  name: string;
  [key: string]: unknown;
}

export interface NodeFacts {
  index: number;
  block: string;
  text: string;
  op: { name: string; family: string; usage: string; doc: string; dtypes: string[]; params: OpParam[] } | null;
  constraints: Record<string, string>;
  operands: Operand[];
}

export interface KernelOfNode {
  function: string;
  nodes: number[];
  operations: number;
  bytes: number;
  calls: number;
}

export interface NodePlace {
  index: number;
  text: string;
  line: number | null;
}

export interface KernelCall {
  name: string;
  function: string | null;
  block: string;
  nodes: NodePlace[];
  calls: number | null;
  operations: number;
  bytes_read: number;
  bytes_written: number;
  intensity: number;
}

export interface ArenaRequest {
  label: string;
  offset: number;
  nbytes: number;
  lifetime: [number, number][];
}

export interface PlanFacts {
  device: string;
  title: string;
  isa: string;
  bytes: { arena: number; undo: number; state: number; weights: number; code: Record<string, number> };
  functions: { name: string; nodes: number[] }[];
  kernels: KernelCall[];
  ledger: { producer: NodePlace; consumer: NodePlace; fused: boolean; reason: string; bytes_saved: number }[];
  unmet: { node: NodePlace; reason: string }[];
  memory: {
    peak_bytes: number;
    lower_bound_bytes: number;
    gap_bytes: number;
    alignment: number;
    peak_position: number | null;
    peak_owners: string[];
    live_bytes: number[];
    requests: ArenaRequest[];
    positions: string[];
  };
  regions: Record<string, string>;
  state: { variable: string; offset: number; bytes: number }[];
  tables: { variable: string; offset: number; bytes: number; grows: boolean; bounds: number[] }[];
  weights: { tensor: string; part: string; dtype: string; offset: number; bytes: number }[];
  files: { path: string; bytes: number }[];
  places: { function: string; file: string; first: number; last: number; role: "definition" | "mention" }[];
}

export interface StepVariable {
  name: string;
  kind: string;
  type: string;
  text: string;
  known: boolean;
  changed: boolean;
  extents: number[] | null;
  fixed: Record<string, number> | null;
  editable: boolean;
  family: boolean;
}

export interface StepFacts {
  step: number;
  steps: number;
  finished: boolean;
  node: number | null;
  text: string;
  line: number | null;
  nodes: number;
  indices: Record<string, number>;
  frames: string[];
  stops: { number: number; text: string; command: string; line: number | null }[];
  watches: (Partial<ValueFacts> & { name: string; error?: string })[];
  variables: StepVariable[];
  history: { step: number; node: number; name: string; indices: Record<string, number>; nanoseconds: number }[];
  back: number;
  halt: {
    nodes: number;
    nanoseconds: number;
    last: number | null;
    written: string[];
    ended: number[];
    returned: Record<string, string>;
    stops: string[];
    interrupted: boolean;
    problems: Problem[];
  } | null;
}

export interface TraceEventFacts {
  position: number;
  node: number;
  name: string;
  block: string;
  thread: string;
  indices: Record<string, number>;
  start: number;
  duration: number;
  outputs: ({ name: string; dtype: string; shape: number[] } & Statistics)[];
  absent: string | null;
}

export interface TraceFacts {
  name: string;
  count: number;
  events: TraceEventFacts[];
}

export interface ComparisonFacts {
  same: boolean;
  events: [number, number];
  compared: string;
  difference: {
    what: string;
    position: number;
    node_index: number;
    op_name: string;
    indices: Record<string, number>;
    deviations: { name: string; a: unknown; b: unknown; absolute?: number; relative?: number }[];
  } | null;
}

export interface ProfileKernel {
  name: string;
  nodes: NodePlace[];
  calls: number;
  seconds: { median: number; [key: string]: number };
  share: number;
  operations: number;
  bytes_read: number;
  bytes_written: number;
  operations_per_second: number;
  bound: string;
  roofline_share: number;
}

export interface ProfileFacts {
  device: string;
  roofline: { operations_per_second: number; bytes_per_second: number };
  kernels: ProfileKernel[];
  between_seconds: number;
}
