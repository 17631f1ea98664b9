/** What happens to sandboxes and snapshots, as a stream of events. */
import { z } from "zod";
import { sandboxIdSchema, tagSchema } from "./ids.ts";
import { labelFilterSchema } from "./lists.ts";
import { networkLogEntrySchema } from "./network.ts";
import { route } from "./route.ts";
import { sandboxSchema } from "./sandboxes.ts";
import { snapshotStatusSchema } from "./snapshots.ts";
import { eventTypes, isEventFilter } from "./wire/event-types.ts";

const eventTypeSchema = z.enum(eventTypes);
export type EventType = z.output<typeof eventTypeSchema>;

/** One event: the `data` of an event of `text/event-stream`. */
export const eventSchema = z.object({
  /** `<epoch>-<number>`; the epoch changes with each run of the daemon, the number only grows */
  id: z.string(),
  type: eventTypeSchema,
  at_unix: z.number(),
  /** snapshot that it is about, or that the sandbox descends from */
  tag: tagSchema.optional(),
  /** sandbox that it is about, or that the snapshot was branched from */
  sandbox_id: sandboxIdSchema.optional(),
  /** the sandbox as it is after the event */
  sandbox: sandboxSchema.optional(),
  /** of a port event */
  port: z.number().optional(),
  /** of a snapshot event: status after the event; absent once it is removed */
  status: snapshotStatusSchema.optional(),
  /** why a sandbox stopped, a port closed, a snapshot failed, or the stream was reset or ended */
  reason: z.string().optional(),
  /** of network.denied: what was denied, and a rule that would allow it */
  network: networkLogEntrySchema.optional(),
});
export type ForkdEvent = z.output<typeof eventSchema>;

const maxTypes = 64;
const typeFilterSchema = z
  .union([z.string(), z.array(z.string())])
  .transform((given) => (typeof given === "string" ? [given] : given).flatMap((text) => text.split(",")))
  // Every event is compared with each of them.
  .refine((names) => names.length <= maxTypes, { message: `must be at most ${maxTypes}`, abort: true })
  .refine((names) => names.every(isEventFilter), {
    message: `must be one of: ${eventTypes.join(", ")}, sandbox.*, snapshot.*, network.*, port.*`,
  });

const eventsRequestSchema = z.strictObject({
  type: typeFilterSchema
    .optional()
    .meta({ description: "Types, repeated or joined by commas; sandbox.* selects all events of sandboxes" }),
  sandbox: sandboxIdSchema.optional(),
  tag: tagSchema.optional(),
  label: labelFilterSchema.optional(),
  after: z
    .string()
    .max(64)
    .optional()
    .meta({ description: "Id of the last event seen; the header Last-Event-ID does the same and wins" }),
});
export type EventsRequest = z.output<typeof eventsRequestSchema>;

export const eventRoutes = {
  events: route({
    method: "get",
    path: "/v1/events",
    summary: "Events as they happen; resumes after Last-Event-ID",
    status: 200,
    kind: "sse",
    scope: "read",
    endless: true,
    repeatable: ["type", "label"],
    input: eventsRequestSchema,
    output: eventSchema,
  }),
} as const;
