/** Arguments and parts of answers that several tools have. */
import { sandboxIdPattern, tagPattern } from "@forkd/contract/wire";
import { s } from "../schema.ts";

export const sandboxId = s
  .string()
  .regex(sandboxIdPattern, 'must be the id of a sandbox, "sb-" and 24 hexadecimal digits')
  .describe("Id of the sandbox, from spawn_sandboxes or list_sandboxes");

export const tag = s
  .string()
  .regex(
    tagPattern,
    "must be 1 to 64 of letters, digits, dot, underscore and dash, and begin with a letter or digit",
  );

export const guestPath = s
  .string()
  .min(1)
  .max(4096)
  .regex(/^\//, "must be an absolute path in the guest")
  .refine((path) => !path.includes("\0"), "must not contain NUL");

export const env = s.record(s.string()).describe("Environment variables").optional();
export const labels = s.record(s.string()).describe("Labels of the new sandboxes").optional();

const seconds = s.int().min(1).max(31_536_000);
export const lifetime = {
  ttl_secs: seconds.optional().describe("Kill the sandbox after this many seconds"),
  idle_timeout_secs: seconds.optional().describe("Kill the sandbox after this many seconds without a call"),
  on_timeout: s.enum(["kill", "pause"]).optional().describe('"pause": a timeout saves the sandbox to disk'),
};

export const vary = s
  .array(
    s.object({
      env: s.record(s.string()).optional(),
      values: s.unknown().optional(),
    }),
  )
  .max(1000)
  .optional()
  .describe(
    "What differs between the children, one entry per child in order: environment, and values (any JSON, in the child as /run/forkd/values.json)",
  );

/** Text of one stream that a result may show; the rest is left out in the middle. */
export const maxOutputBytes = s
  .int()
  .min(512)
  .max(1_000_000)
  .default(16_384)
  .describe("Show at most this many bytes of each output: its head and its tail");

/** Outputs that are shown in part. */
export const partial = {
  left_out_bytes: s.record(s.number()).optional().describe("Bytes left out of each output"),
  whole: s.record(s.string()).optional().describe("Resource with the whole of each output"),
  replaced_characters: s
    .number()
    .optional()
    .describe("Characters that are not UTF-8 or are invisible, shown in another way"),
};

export const sandboxAnswer = s.looseObject({
  id: s.string(),
  snapshot_tag: s.string(),
  state: s.enum(["running", "paused", "dead"]),
  labels: s.record(s.string()),
});
/** A sandbox, or why one could not be forked. */
export const childAnswer = s.either(
  sandboxAnswer,
  s.looseObject({ index: s.number(), error: s.string(), code: s.string() }),
);
export const snapshotAnswer = s.looseObject({
  tag: s.string(),
  status: s.enum(["writing", "ready", "failed"]),
  bootable: s.boolean(),
  created_at_unix: s.number(),
});
