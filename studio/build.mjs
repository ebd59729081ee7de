// Bundles the page into src/openinfer/studio/assets, with the licences of everything that is in it.
import { createHash } from "node:crypto";
import { readdir, readFile, writeFile, mkdir } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "src", "openinfer", "studio", "assets");

/** The packages whose files are in the bundle, with their licence texts. */
async function licences(inputs) {
  const names = new Set();
  for (const path of inputs) {
    const found = path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
    if (found) names.add(found[1]);
  }
  const parts = [];
  for (const name of [...names].sort()) {
    const folder = join(here, "node_modules", name);
    const about = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    const file = (await readdir(folder)).find((one) => /^(licen[cs]e|copying)/i.test(one));
    const text = file ? (await readFile(join(folder, file), "utf8")).trim() : "";
    parts.push(`${name} ${about.version} (${about.license})\n\n${text}\n`);
  }
  return parts.join(`\n${"-".repeat(78)}\n\n`);
}

/** Every file that the bundle depends on and that is ours, in order: what a check compares. */
async function sources(folder) {
  const found = [];
  for (const one of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, one.name);
    if (one.isDirectory()) found.push(...(await sources(path)));
    else found.push(path);
  }
  return found.sort();
}

const result = await build({
  absWorkingDir: here,
  entryPoints: { studio: "src/main.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
});
await mkdir(out, { recursive: true });
await writeFile(join(out, "LICENSES.txt"), await licences(Object.keys(result.metafile.inputs)));

const files = [...(await sources(join(here, "src"))), "build.mjs", "package.json", "package-lock.json", "tsconfig.json"]
  .map((one) => (one.startsWith(here) ? relative(here, one) : one));
const hashes = [];
for (const path of files.sort()) {
  hashes.push(`${createHash("sha256").update(await readFile(join(here, path))).digest("hex")}  ${path}`);
}
await writeFile(join(out, "SOURCES.sha256"), `${hashes.join("\n")}\n`);
