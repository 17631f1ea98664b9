/** Files in a sandbox. */
import { AppError } from "@forkd/contract/wire";
import { s } from "../schema.ts";
import { fileUri } from "../resources/uris.ts";
import { safeText, safeValue } from "../results/safe-text.ts";
import { guestPath, sandboxId } from "./fields.ts";
import { reads, replaces, tool } from "./tool.ts";

const user = s.string().max(128).optional().describe("User name or uid; default: root");

export const readFileTool = tool("read_file", {
  title: "Read a file",
  description:
    "Read a file in a sandbox, or a part of it. A text that is not UTF-8, or has invisible characters, is shown with replacements " +
    "(replaced_characters says how many); read it as base64 for its exact bytes.",
  input: s.object({
    sandbox_id: sandboxId,
    path: guestPath.describe("Absolute path in the guest"),
    offset: s.int().min(0).default(0).describe("First byte to read"),
    limit: s.int().min(1).max(1_000_000).default(65_536).describe("Bytes to read at most"),
    encoding: s.enum(["text", "base64"]).default("text"),
    user,
  }),
  output: s.object({
    path: s.string(),
    size: s.number().describe("Bytes of the whole file"),
    offset: s.number(),
    bytes: s.number().describe("Bytes read"),
    content: s.string(),
    encoding: s.enum(["text", "base64"]),
    next_offset: s.number().optional().describe("Where the rest of the file begins; absent at its end"),
    left_out_bytes: s.number().optional().describe("Bytes before and after this part"),
    replaced_characters: s.number().optional(),
  }),
  annotations: reads,
  run: async ({ sandbox_id: id, path, offset, limit, encoding, user: as }, { forkd, guest, signal }) => {
    const stat = await forkd.call("statFile", { id, path, follow: true, user: as }, { signal });
    if (stat.type === "directory")
      throw new AppError(
        "invalid_request",
        `Invalid argument "path" of read_file: "${path}" is a directory`,
        {
          details: { field: "path" },
          remedy: { action: "advice", text: "Call list_files to list it." },
        },
      );
    const bytes = await guest.readFile(forkd, id, { path, offset, limit, user: as }, signal);
    const end = offset + bytes.length;
    // Files of /proc have no size.
    const size = Math.max(stat.size, end);
    const { text, replaced } = safeText(bytes);
    const content = encoding === "base64" ? Buffer.from(bytes).toString("base64") : text;
    const isPart = bytes.length < size;
    return {
      structured: {
        path: safeText(path).text,
        size,
        offset,
        bytes: bytes.length,
        content,
        encoding,
        ...(end < size && { next_offset: end }),
        ...(isPart && { left_out_bytes: size - bytes.length }),
        ...(encoding === "text" && replaced > 0 && { replaced_characters: replaced }),
      },
      ...(isPart && {
        more: [{ type: "resource_link", uri: fileUri(id, path), name: path, size } as const],
      }),
    };
  },
});

export const writeFileTool = tool("write_file", {
  title: "Write a file",
  description:
    "Write a file in a sandbox. It replaces the whole file in one step, unless append is true. Give either content or content_base64. " +
    "Missing directories are made.",
  input: s.object({
    sandbox_id: sandboxId,
    path: guestPath.describe("Absolute path in the guest"),
    content: s.string().max(4_000_000).optional().describe("Text of the file, as UTF-8"),
    content_base64: s.base64().max(5_500_000).optional().describe("Bytes of the file, in place of content"),
    mode: s
      .string()
      .regex(/^[0-7]{3,5}$/, 'must be octal, such as "0644"')
      .optional()
      .describe('Permissions, such as "0755"; default: "0644" for a new file'),
    append: s.boolean().default(false).describe("Add to the end of the file"),
    exclusive: s.boolean().default(false).describe("Refuse to replace a file"),
    user,
  }),
  output: s.looseObject({ path: s.string(), size: s.number() }),
  annotations: replaces,
  run: async (input, { forkd, guest, signal }) => {
    const { sandbox_id: id, path, content, content_base64: base64, user: as, ...how } = input;
    if ((content === undefined) === (base64 === undefined))
      throw new AppError(
        "invalid_request",
        'Invalid argument "content" of write_file: give either "content" or "content_base64"',
        { details: { field: "content" } },
      );
    const bytes = base64 === undefined ? Buffer.from(content ?? "") : Buffer.from(base64, "base64");
    const parent = path.replace(/\/+[^/]*\/*$/, "");
    if (parent !== "")
      await forkd.call("makeDirectory", { id, path: parent, parents: true, user: as }, { signal });
    const entry = await guest.writeFile(forkd, id, { path, content: bytes, user: as, ...how }, signal);
    return { structured: safeValue(entry) as Record<string, unknown> };
  },
});

export const listFiles = tool("list_files", {
  title: "List files",
  description:
    "List a directory in a sandbox, with depth also the directories below it. Links are not followed.",
  input: s.object({
    sandbox_id: sandboxId,
    path: guestPath.describe("Absolute path of a directory in the guest"),
    depth: s.int().min(1).max(16).default(1).describe("1: only this directory"),
    limit: s.int().min(1).max(10_000).default(500).describe("Entries to list at most"),
    user,
  }),
  output: s.object({
    result: s.array(
      s.looseObject({ name: s.string(), path: s.string(), type: s.string(), size: s.number() }),
    ),
    truncated: s.boolean().describe("There are more entries than limit"),
  }),
  annotations: reads,
  run: async ({ sandbox_id: id, path, depth, limit, user: as }, call) => {
    const { walk } = await import("../walk.ts");
    const { entries, truncated } = await walk(call, { id, path, depth, limit, user: as });
    return { structured: { result: safeValue(entries), truncated } };
  },
});
