// Colours of the picture, from the style sheet, so that light and dark follow the reader's choice.

export interface Palette {
  paper: string;
  ink: string;
  faint: string;
  line: string;
  box: string;
  accent: string;
  carried: string;
  state: string;
  container: Record<string, string>;
  family: (name: string) => string;
}

const FAMILIES: [RegExp, string][] = [
  [/matri|linear|conv|product/i, "--family-product"],
  [/activ|unary|element/i, "--family-activation"],
  [/norm/i, "--family-normal"],
  [/attention|rotary/i, "--family-attention"],
  [/reduc|pool|scan|sort/i, "--family-reduce"],
  [/move|index|shape|fill|cast|layout/i, "--family-move"],
];
const KINDS: Record<string, string> = {
  input: "--kind-input", state: "--kind-state", param: "--kind-input", variable: "--kind-variable", return: "--kind-return",
  branch: "--kind-control", blockcall: "--kind-control", yield: "--kind-control", await: "--kind-control",
  barrier: "--kind-control", dep: "--kind-control", transfer: "--family-move", cacheread: "--kind-state",
  cachewrite: "--kind-state", cacheincrement: "--kind-state", cachedecrement: "--kind-state", cachereset: "--kind-state",
};

export function palette(): Palette {
  const style = getComputedStyle(document.documentElement);
  const known = new Map<string, string>();
  const get = (name: string): string => {
    const found = known.get(name) ?? style.getPropertyValue(name).trim();
    known.set(name, found);
    return found;
  };
  return {
    paper: get("--paper"), ink: get("--ink"), faint: get("--faint"), line: get("--edge"), box: get("--surface"),
    accent: get("--accent"), carried: get("--carried"), state: get("--kind-state"),
    container: {
      block: get("--container-block"), loop: get("--container-loop"), scope: get("--container-scope"),
      segment: get("--container-segment"),
    },
    family: (name) => get(FAMILIES.find(([pattern]) => pattern.test(name))?.[1] ?? "--family-other"),
  };
}

/** The colour of a node: by its kind, or for an op by the family of it. */
export function nodeColour(kind: string, family: string | undefined, colours: Palette): string {
  const name = KINDS[kind];
  if (kind !== "op" && name) return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return colours.family(family ?? "");
}
