/** Trust: whose signatures the daemon asks for when it pulls a snapshot. */
import { z } from "zod";
import { noAnswer, route } from "./route.ts";

export const trustPolicySchema = z.enum(["require", "warn", "off"]).meta({
  description:
    "require: refuse what no pinned key has signed; warn: pull it and say so; off: look for no signature",
});
export type TrustPolicy = z.output<typeof trustPolicySchema>;

const registryHost =
  "(localhost|[a-z0-9-]+(\\.[a-z0-9-]+)+|[a-z0-9.-]+:\\d{1,5}|\\[[0-9a-f:.]+\\](:\\d{1,5})?)";
const pathPart = "[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*";

export const trustPatternSchema = z
  .string()
  .max(512)
  .regex(
    new RegExp(`^(\\*|${registryHost}(/${pathPart})*(/\\*)?)$`),
    'must be a repository with its registry, such as "registry.example.com/team/python", or end with "/*"',
  )
  .meta({ description: 'Repository, or all below it with "/*"; "*" stands for every repository' });

const fingerprintSchema = z
  .string()
  .regex(/^sha256:[0-9a-f]{64}$/, 'must be "sha256:" and 64 hexadecimal digits')
  .meta({ description: "sha256 of the public key in its DER form" });

export const maxPublicKeyChars = 8192;

const pinnedKeySchema = z.object({
  fingerprint: fingerprintSchema,
  algorithm: z.enum(["ed25519", "ecdsa-p256"]),
  /** PEM */
  public_key: z.string(),
  pinned_at_unix: z.number(),
});

const trustEntrySchema = z.object({
  repository: trustPatternSchema,
  /** what applies: the policy that was set, otherwise `require` with a pinned key and `warn` without one */
  policy: trustPolicySchema,
  /** whether the policy was set */
  is_set: z.boolean(),
  keys: z.array(pinnedKeySchema),
});
export type TrustEntry = z.output<typeof trustEntrySchema>;

const setTrustSchema = z
  .strictObject({
    repository: trustPatternSchema,
    public_key: z.string().min(1).max(maxPublicKeyChars).optional().meta({
      description: "Key to pin, in addition to those that are pinned: Ed25519 or ECDSA P-256, as PEM",
    }),
    policy: trustPolicySchema.nullable().optional().meta({
      description: "null: `require` with a pinned key and `warn` without one, as if none was set",
    }),
  })
  .refine(({ public_key, policy }) => public_key !== undefined || policy !== undefined, {
    path: ["public_key"],
    message: "give public_key, policy or both",
  });

export const trustRoutes = {
  listTrust: route({
    method: "get",
    path: "/v1/hub/trust",
    summary: "List whose signatures are asked for, by repository; the first entry that fits applies",
    status: 200,
    kind: "json",
    scope: "read",
    input: z.strictObject({}),
    output: z.array(trustEntrySchema),
  }),
  setTrust: route({
    method: "post",
    path: "/v1/hub/trust",
    summary: "Pin a key for a repository, or set what happens to snapshots that no pinned key has signed",
    status: 200,
    kind: "json",
    scope: "admin",
    input: setTrustSchema,
    output: trustEntrySchema,
  }),
  removeTrust: route({
    method: "delete",
    path: "/v1/hub/trust",
    summary: "Remove a pinned key of a repository, or its whole entry",
    status: 204,
    kind: "json",
    scope: "admin",
    input: z.strictObject({
      repository: trustPatternSchema,
      fingerprint: fingerprintSchema.optional().meta({ description: "Default: the whole entry" }),
    }),
    output: noAnswer,
  }),
} as const;
