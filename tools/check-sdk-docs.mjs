/**
 * Checks that a user of the SDK finds a hover text on everything: every export of its entries, every public member of
 * a class, and every field of an option type, which also names its default if it can be left out.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const source = new URL("../packages/sdk/src/", import.meta.url).pathname;
const files = ["", "convert/", "node/"].flatMap((dir) =>
  readdirSync(join(source, dir))
    .filter((name) => name.endsWith(".ts"))
    .map((name) => dir + name),
);

/** Names that the entries export. */
const exported = new Set();
for (const entry of ["index.ts", "node.ts"]) {
  const text = readFileSync(join(source, entry), "utf8");
  for (const [, list] of text.matchAll(/export (?:type )?\{([^}]*)\}/g))
    for (const each of list.split(","))
      exported.add(
        each
          .trim()
          .replace(/^type /, "")
          .split(" ")[0],
      );
  for (const [, name] of text.matchAll(/^export (?:async )?(?:function|type|class|const) (\w+)/gm))
    exported.add(name);
}

const declaration = /^export (?:async )?(?:abstract )?(class|type|function|const) (\w+)/;
/** A member of a class or of an object type: a field, a method or a getter. */
const member =
  /^(\s+)(?:static |readonly |async |get |override )*\*?(\[Symbol\.\w+\]|[A-Za-z]\w*)(\??)(?:[<(]|: )/;
const isOptional = (line) => /^\s+(?:readonly )?\w+\?:/.test(line);
const hasDefault = (name) => /(Options|Option|Filter|Request|Changes|Callbacks|Variation)$/.test(name);

const problems = [];
for (const file of files) {
  const lines = readFileSync(join(source, file), "utf8").split("\n");
  const isPublic = (name) => exported.has(name) || file === "types.ts";
  let open;
  /** The comment that ends in the line before, if there is one. */
  const commentBefore = (index) => {
    let end = index - 1;
    while (/^\s*\/\/ oxlint-disable/.test(lines[end] ?? "")) end -= 1;
    if (!/\*\/$/.test(lines[end] ?? "")) return undefined;
    let start = end;
    while (!lines[start].includes("/**") && start > 0) start -= 1;
    return lines.slice(start, end + 1).join(" ");
  };
  const report = (index, what) => problems.push(`packages/sdk/src/${file}:${index + 1}: ${what}`);
  for (const [index, line] of lines.entries()) {
    const found = declaration.exec(line);
    if (found) {
      const [, kind, name] = found;
      open = isPublic(name) && (kind === "class" || kind === "type") ? { kind, name } : undefined;
      // An overload has the text of the first.
      const isOverload = (lines[index - 1] ?? "").endsWith(";");
      if (isPublic(name) && !isOverload && commentBefore(index) === undefined)
        report(index, `${name} has no doc comment`);
      continue;
    }
    if (/^\S/.test(line) && !/^[}\])|&]/.test(line)) open = undefined;
    const part = open && member.exec(line);
    if (!part) continue;
    const [, indent, name] = part;
    const depth = indent.length;
    // Members of a class are two columns in; what is deeper is code, or the options of a call.
    if (open.kind === "class" && depth > 2 && !(depth === 6 && isOptional(line))) continue;
    if (
      /^(if|for|while|return|throw|switch|await|yield|case|constructor)$/.test(name) &&
      name !== "constructor"
    )
      continue;
    const comment = commentBefore(index);
    const isOverload =
      /;$/.test(lines[index - 1] ?? "") && new RegExp(`\\b${name}[<(]`).test(lines[index - 1] ?? "");
    if (isOverload) continue;
    if (comment === undefined) report(index, `${open.name}.${name} has no doc comment`);
    else if (
      isOptional(line) &&
      (hasDefault(open.name) || open.kind === "class") &&
      !/default/i.test(comment)
    )
      report(index, `${open.name}.${name} does not say its default`);
  }
}
for (const problem of problems) console.error(problem);
if (exported.size < 50) problems.push("too few exports were found");
process.exit(problems.length > 0 ? 1 : 0);
