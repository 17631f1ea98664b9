/** What E2B's clients send. `null` stands for a field that is left out: Python's client sends both. */
import { z } from "zod";

const maxMetadataBytes = 64 * 1024;

const seconds = (least: number) =>
  z
    .int("must be whole seconds")
    .min(least, `must be at least ${least} s`)
    .max(31_536_000, "must be at most a year");
const textMap = z.record(z.string(), z.string());

const metadataSchema = textMap.refine(
  (map) => JSON.stringify(map).length <= maxMetadataBytes,
  `must be at most ${maxMetadataBytes} bytes`,
);

const destinations = z.array(z.string().min(1).max(255)).max(1000);

/** `allow_internet_access` is part of it only when the network of a sandbox is changed. */
export const networkSchema = z.object({
  allowOut: destinations.nullish(),
  denyOut: destinations.nullish(),
  rules: z.unknown().optional(),
  egressProxy: z.unknown().optional(),
  allowPublicTraffic: z.boolean().nullish(),
  maskRequestHost: z.unknown().optional(),
  httpsPorts: z.unknown().optional(),
});
export type AskedE2bNetwork = z.output<typeof networkSchema>;

export const networkUpdateSchema = networkSchema.extend({ allow_internet_access: z.boolean().nullish() });

export const createSchema = z.object({
  templateID: z.string().min(1).max(256),
  timeout: seconds(1).nullish(),
  metadata: metadataSchema.nullish(),
  envVars: textMap.nullish(),
  secure: z.boolean().nullish(),
  allow_internet_access: z.boolean().nullish(),
  network: networkSchema.nullish(),
  autoPause: z.boolean().nullish(),
  autoPauseMemory: z.boolean().nullish(),
  autoResume: z.object({ enabled: z.boolean().nullish() }).nullish(),
  mcp: z.unknown().optional(),
  iam: z.unknown().optional(),
  volumeMounts: z.array(z.unknown()).nullish(),
});
export type CreateRequest = z.output<typeof createSchema>;

export const connectSchema = z.object({
  timeout: seconds(1).nullish(),
  memory: z.boolean().nullish(),
});

export const timeoutSchema = z.object({ timeout: seconds(1) });
export const refreshSchema = z.object({ duration: seconds(1).nullish() });
export const pauseSchema = z.object({ memory: z.boolean().nullish() });
export const snapshotSchema = z.object({ name: z.string().min(1).max(128).nullish() });

const count = "must be 1 to 100";
export const forkSchema = z.object({
  timeout: seconds(1).nullish(),
  count: z.int(count).min(1, count).max(100, count).nullish(),
});
