/** Routes to watch the daemon by: events, stats, metrics. */
import { z } from "zod";
import { eventSchema, eventsRequestSchema } from "./events.ts";
import { route } from "./route.ts";
import { statsRequestSchema, statsSchema } from "./stats.ts";

export const observeRoutes = {
  events: route({
    method: "get",
    path: "/v1/events",
    summary: "What happens, as it happens; resumes after Last-Event-ID",
    status: 200,
    kind: "sse",
    scope: "read",
    repeatable: ["type", "label"],
    headers: [{ name: "Last-Event-ID", description: "Id of the last event seen" }],
    input: eventsRequestSchema,
    output: eventSchema,
  }),
  stats: route({
    method: "get",
    path: "/v1/stats",
    summary: "CPU, memory and disk of the sandboxes",
    status: 200,
    kind: "json",
    scope: "read",
    repeatable: ["label"],
    input: statsRequestSchema,
    output: statsSchema,
  }),
  metrics: route({
    method: "get",
    path: "/metrics",
    summary: "Metrics for Prometheus, text format 0.0.4",
    status: 200,
    kind: "text",
    scope: "read",
    input: z.strictObject({}),
    output: z.string(),
  }),
} as const;
