/** The tool that compares files of two sandboxes, such as two children of one branch. */
import type { FileEntry } from "@forkd/contract";
import { s } from "../schema.ts";
import type { Difference } from "../diff/trees.ts";
import { Collector } from "../results/collector.ts";
import { partialOutputs } from "../results/partial.ts";
import { safeText } from "../results/safe-text.ts";
import { guestPath, partial, sandboxId } from "./fields.ts";
import { reads, tool, type Call } from "./tool.ts";

/** Larger files, and more files, are named but not shown. */
const largestText = 256 * 1024;
const mostTexts = 200;
/** Entries in an answer. */
const mostListed = 500;

export const diffFiles = tool("diff_files", {
  title: "Compare files of two sandboxes",
  description:
    "Compare the files below some paths of two sandboxes, such as two children of one branch_sandbox: which are added, removed or changed in b against a, " +
    "and a unified diff of text files. Files are compared by content, mode and owner. Both sandboxes must run. " +
    "To compare with a snapshot, fork a sandbox of it.",
  input: s.object({
    sandbox_a: sandboxId.describe("Id of the first sandbox: the old side"),
    sandbox_b: sandboxId.describe("Id of the second sandbox: the new side"),
    paths: s.array(guestPath).min(1).max(64).describe("Files and directories to compare"),
    text: s.boolean().default(true).describe("False: only list the files that differ"),
    max_diff_bytes: s
      .int()
      .min(512)
      .max(1_000_000)
      .default(32_768)
      .describe("Show at most this much of the diff"),
    max_files: s.int().min(1).max(50_000).default(10_000).describe("Refuse to compare more files than this"),
  }),
  output: s.object({
    result: s.array(
      s.object({
        path: s.string(),
        change: s.enum(["added", "removed", "changed"]),
        type: s.string(),
        size_a: s.number().optional(),
        size_b: s.number().optional(),
        mode_a: s.string().optional(),
        mode_b: s.string().optional(),
      }),
    ),
    total: s.number().describe("Number of files that differ; result has at most 500 of them"),
    diff: s.string(),
    ...partial,
  }),
  annotations: reads,
  run: async (input, call) => {
    const { sandbox_a: a, sandbox_b: b, max_files: limit } = input;
    const { backend, progress } = call;
    const paths = [...new Set(input.paths.map((path) => path.replace(/(?<=.)\/+$/, "")))];
    const { compareSides, listSide } = await import("../diff/trees.ts");
    progress.say("Listing files");
    const [left, right] = await Promise.all([a, b].map((id) => listSide(call, id, { paths, limit })));
    if (left === undefined || right === undefined) throw new Error("There are two sides");
    progress.say("Comparing files");
    const differences = await compareSides(call, left, right);
    const diff = new Collector();
    if (input.text)
      for (const [index, difference] of differences.slice(0, mostTexts).entries()) {
        progress.count(index, differences.length);
        diff.push(Buffer.from(await textOf(call, difference, { a, b })));
      }
    if (input.text && differences.length > mostTexts)
      diff.push(Buffer.from(`${differences.length - mostTexts} more files differ\n`));
    const shown = partialOutputs(
      { diff: diff.collected() },
      { store: backend.outputs, limit: input.max_diff_bytes, of: `${a} and ${b}` },
    );
    const structured = {
      result: differences.slice(0, mostListed).map(listed),
      total: differences.length,
      diff: shown.texts["diff"] ?? "",
      ...shown.fields,
    };
    return { structured, more: shown.links };
  },
});

function listed({ path, change, a, b }: Difference) {
  return {
    path: safeText(path).text,
    change,
    type: (b ?? a)?.type ?? "file",
    ...(a && { size_a: a.size, mode_a: a.mode }),
    ...(b && { size_b: b.size, mode_b: b.mode }),
  };
}

/** One file of the diff. */
async function textOf(
  call: Call,
  { path, change, a, b }: Difference,
  ids: { a: string; b: string },
): Promise<string> {
  const name = safeText(path).text.replaceAll("\n", "\\n");
  const header = [
    `--- ${change === "added" ? "/dev/null" : `a${name}`}`,
    `+++ ${change === "removed" ? "/dev/null" : `b${name}`}`,
  ];
  const say = (what: string) => [`${name}: ${what}`, ""].join("\n");
  if (a && b && a.type !== b.type) return say(`was a ${a.type}, is a ${b.type}`);
  const entry = b ?? a;
  if (entry?.type === "symlink") return say(`link to ${linkOf(a)} → ${linkOf(b)}`);
  if (entry?.type !== "file") return say(`${entry?.type ?? "file"} ${change}`);
  if (Math.max(a?.size ?? 0, b?.size ?? 0) > largestText) return say(`${change}; too large to show`);
  const [before, after] = await Promise.all([contentOf(call, ids.a, a), contentOf(call, ids.b, b)]);
  const mode = a && b && a.mode !== b.mode ? `mode ${a.mode} → ${b.mode}\n` : "";
  if (before === undefined || after === undefined) return mode + say(`${change}; binary`);
  if (before === after) return `${name}: ${mode === "" ? "owner changed\n" : mode}`;
  const { unifiedHunks } = await import("../diff/lines.ts");
  const hunks = unifiedHunks(before, after);
  if (hunks === undefined) return mode + say(`${change}; the texts differ too much to show`);
  return [...header, `${mode}${hunks}`, ""].join("\n");
}

function linkOf(entry: FileEntry | undefined): string {
  return entry === undefined ? "nothing" : safeText(entry.target ?? "").text;
}

/** The text of a file; undefined if it is not text. */
async function contentOf(
  { forkd, guest, signal }: Call,
  id: string,
  entry: FileEntry | undefined,
): Promise<string | undefined> {
  if (entry === undefined) return "";
  // The file may have grown since it was listed.
  const bytes = await guest.readFile(forkd, id, { path: entry.path, limit: largestText }, signal);
  if (bytes.includes(0)) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (error) {
    if (error instanceof TypeError) return undefined;
    throw error;
  }
}
