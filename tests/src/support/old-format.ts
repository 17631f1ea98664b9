/** Gives files of a data directory the fields that an earlier version wrote (tests/fixtures). */
import { readFileSync } from "node:fs";
import { readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { repository } from "./places.ts";

const fixtures = join(repository, "tests/fixtures/data-dir-0.1.0");

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** Keys and version of `old`; values of `current` where it has the key. */
export function reshape(current: Json | undefined, old: Json): Json {
  if (Array.isArray(old)) {
    const [first] = old;
    if (!Array.isArray(current) || first === undefined) return current ?? old;
    return current.map((each) => reshape(each, first));
  }
  if (typeof old !== "object" || old === null) return current ?? old;
  const values = typeof current === "object" && !Array.isArray(current) ? current : undefined;
  return Object.fromEntries(
    Object.entries(old).map(([key, value]) => [
      key,
      key === "version" ? value : reshape(values?.[key], value),
    ]),
  );
}

export function oldText(name: string): string {
  return readFileSync(join(fixtures, name), "utf8");
}

/** Replaces the file by one with the fields of the fixture `name`, which has one JSON text, or one per line. */
export async function makeOld(path: string, name: string): Promise<void> {
  const current = await readFile(path, "utf8");
  const isLines = name.endsWith(".jsonl");
  const old = JSON.parse((isLines ? oldText(name).split("\n")[0] : oldText(name)) ?? "") as Json;
  const text = isLines
    ? current.replaceAll(/^.+$/gm, (line) => JSON.stringify(reshape(JSON.parse(line) as Json, old)))
    : `${JSON.stringify(reshape(JSON.parse(current) as Json, old), null, 2)}\n`;
  await writeFile(`${path}.old`, text, { mode: 0o600 });
  await rename(`${path}.old`, path);
}
