/** Reads the parts of an output that a result has left out. */
import { AppError } from "@forkd/contract/wire";
import { s } from "../schema.ts";
import { outputIdOf } from "../results/partial.ts";
import { safeText } from "../results/safe-text.ts";
import { reads, tool } from "./tool.ts";

export const readOutput = tool("read_output", {
  title: "Read a stored output",
  description:
    "Read a part of an output that another result shows only in part: its resource forkd://outputs/{id}. " +
    "Outputs are kept for one hour, and the newest 32 MiB.",
  input: s.object({
    uri: s.string().max(256).describe('Address of the output, such as "forkd://outputs/…"'),
    offset: s.int().min(0).default(0).describe("First byte to read"),
    limit: s.int().min(1).max(1_000_000).default(65_536).describe("Bytes to read at most"),
  }),
  output: s.object({
    name: s.string(),
    total: s.number().describe("Bytes of the whole output"),
    offset: s.number(),
    bytes: s.number().describe("Bytes read"),
    content: s.string(),
    next_offset: s.number().optional().describe("Where the rest begins; absent at the end"),
    replaced_characters: s.number().optional(),
  }),
  annotations: reads,
  needsDaemon: false,
  run: async ({ uri, offset, limit }, { backend }) => {
    const id = outputIdOf(uri);
    const stored = id === undefined ? undefined : backend.outputs.get(id);
    if (stored === undefined)
      throw new AppError("not_found", `There is no output "${uri}"`, {
        details: { field: "uri" },
        remedy: { action: "advice", text: "Outputs are kept for one hour: run the command again." },
      });
    const { head, tail, missing, total } = stored.output;
    // Bytes in the gap are not kept: the answer continues after it.
    const isInGap = missing > 0 && offset >= head.length && offset < head.length + missing;
    const from = isInGap ? head.length + missing : offset;
    const bytes =
      from < head.length
        ? head.subarray(from, from + limit)
        : tail.subarray(from - head.length - missing, from - head.length - missing + limit);
    const end = from + bytes.length;
    const { text, replaced } = safeText(bytes);
    return {
      structured: {
        name: stored.name,
        total,
        offset: from,
        bytes: bytes.length,
        content: text,
        ...(end < total && { next_offset: end }),
        ...(replaced > 0 && { replaced_characters: replaced }),
      },
    };
  },
});
