// Bundles src/ into the package: one script, one style sheet, the licences of what is inside.
import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";

const target = process.argv[2] ?? "../src/gobrrr/reports/html";
const options = {
  bundle: true,
  minify: true,
  charset: "utf8",
  legalComments: "none",
  target: ["chrome109", "firefox115", "safari16.4"],
  metafile: true,
};
const script = await build({
  ...options,
  entryPoints: ["src/main.ts"],
  format: "iife",
  outfile: `${target}/report.js`,
});
await build({ ...options, entryPoints: ["src/report.css"], outfile: `${target}/report.css` });

const inside = new Set();
for (const path of Object.keys(script.metafile.inputs)) {
  const found = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path);
  if (found) inside.add(found[1]);
}
const texts = [];
for (const name of [...inside].sort()) {
  const about = JSON.parse(await readFile(`node_modules/${name}/package.json`, "utf8"));
  const licence = await readFile(`node_modules/${name}/LICENSE`, "utf8");
  texts.push(`${name} ${about.version} (${about.license})\n\n${licence.trim()}\n`);
}
await writeFile(`${target}/LICENSES.txt`, texts.join(`\n${"-".repeat(80)}\n\n`));
