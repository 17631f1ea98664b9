/** Children that wait ready to be handed out. */
import { z } from "zod";
import { tagSchema } from "./ids.ts";
import { route } from "./route.ts";

const poolSnapshotSchema = z.object({
  tag: tagSchema,
  /** children that can be handed out now */
  ready: z.int(),
  /** children that are being made */
  making: z.int(),
  /** how many there are to be: what was set, or what demand and memory allow */
  wanted: z.int(),
  /** whether an operator has set the number; otherwise it follows demand */
  is_set: z.boolean(),
  /** memory that one ready child is expected to use */
  child_mib: z.int(),
});

const poolSchema = z.object({
  /** memory for children that were not set, in MiB; 0: there are no ready children */
  budget_mib: z.int(),
  /** memory that all ready children are expected to use */
  used_mib: z.int(),
  snapshots: z.array(poolSnapshotSchema),
});
export type PoolInfo = z.output<typeof poolSchema>;

export const poolRoutes = {
  getPool: route({
    method: "get",
    path: "/v1/pool",
    summary: "Children that wait ready to be handed out, by snapshot",
    status: 200,
    kind: "json",
    scope: "read",
    input: z.strictObject({}),
    output: poolSchema,
  }),
  setPool: route({
    method: "post",
    path: "/v1/pool/{tag}",
    summary: "Set how many children of a snapshot wait ready; null makes the number follow demand again",
    status: 200,
    kind: "json",
    scope: "admin",
    input: z.strictObject({
      tag: tagSchema,
      ready: z.int().min(0).max(1000).nullable().meta({
        description: "How many children wait ready; null: as many as demand and memory allow",
      }),
    }),
    output: poolSchema,
  }),
} as const;
