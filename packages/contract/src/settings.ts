/** Settings of the daemon, read only: changes to the settings file take effect when the daemon restarts. */
import { z } from "zod";
import { route } from "./route.ts";

const plainSchema = z.union([z.string(), z.number(), z.boolean(), z.null()]);

const settingSchema = z.object({
  name: z.string(),
  /** "[hidden]" if it is a secret */
  value: plainSchema,
  source: z.enum(["flag", "environment", "file", "default"]),
  default: plainSchema,
  meaning: z.string(),
  /** for people */
  allowed: z.string(),
  /** environment variable */
  variable: z.string(),
});
export type SettingInfo = z.output<typeof settingSchema>;

export const settingRoutes = {
  config: route({
    method: "get",
    path: "/v1/config",
    summary: "Settings that the daemon uses, and the source of each",
    status: 200,
    kind: "json",
    scope: "admin",
    input: z.strictObject({}),
    output: z.object({ pid: z.number(), settings: z.array(settingSchema) }),
  }),
} as const;
