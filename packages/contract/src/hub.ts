/** Sharing snapshots: registries, and archives behind a URL. */
import { z } from "zod";
import { archiveLevels, levelSchema } from "./archives.ts";
import { errorEventSchema } from "./error-body.ts";
import { tagSchema } from "./ids.ts";
import { route } from "./route.ts";
import { snapshotSchema } from "./snapshots.ts";
import { maxPublicKeyChars, trustPolicySchema } from "./trust.ts";

const secretText = z.string().min(1).max(65_536);

/** What to show to the registry; never logged. Absent: ask anonymously. */
const registryAuthSchema = z
  .union([
    z.strictObject({ username: z.string().min(1).max(1024), password: secretText }),
    /** a refresh token */
    z.strictObject({ identity_token: secretText }),
    /** sent as it is */
    z.strictObject({ registry_token: secretText }),
  ])
  .meta({
    description: "Credentials for the registry: username and password, identity_token or registry_token",
  });
export type RegistryAuth = z.output<typeof registryAuthSchema>;

const referenceSchema = z
  .string()
  .min(1)
  .max(8192)
  .meta({ description: "HOST/REPOSITORY[:TAG][@DIGEST], or the URL of an archive" });

const accessFields = {
  auth: registryAuthSchema.optional(),
  /** connect without TLS; a registry on the daemon's host may have either */
  plain_http: z.boolean().optional(),
};

const pushRequestSchema = z.strictObject({
  tag: tagSchema,
  reference: referenceSchema,
  level: levelSchema.default(archiveLevels.default),
  ...accessFields,
});
export type PushRequest = z.output<typeof pushRequestSchema>;

const pullRequestSchema = z.strictObject({
  reference: referenceSchema,
  tag: tagSchema
    .optional()
    .meta({ description: "Default: last part of the repository, or the archive's own tag" }),
  /** replace a snapshot that has this tag */
  force: z.boolean().default(false),
  rebuild: z.boolean().optional().meta({
    description: "If this host cannot restore the snapshot, build it from the recipe that it carries",
  }),
  insecure_skip_signature: z.boolean().optional().meta({
    description: "Do not look for a signature, whatever the trust list requires",
  }),
  ...accessFields,
});
export type PullRequest = z.output<typeof pullRequestSchema>;

const transferProgressSchema = z.object({
  type: z.literal("progress"),
  /** such as `pack`, `send`, `fetch`, `check` */
  step: z.string(),
  message: z.string(),
  done_bytes: z.number().optional(),
  total_bytes: z.number().optional(),
  elapsed_ms: z.number(),
});

const pushedSchema = z.object({
  tag: tagSchema,
  /** where it is now; without the query of a URL */
  reference: z.string(),
  /** of its manifest; absent for an archive */
  digest: z.string().optional(),
  /** all its blobs */
  total_bytes: z.number(),
  /** what was sent; the registry had the rest */
  moved_bytes: z.number(),
  duration_ms: z.number(),
});
export type PushResult = z.output<typeof pushedSchema>;

const pulledSchema = z.object({
  reference: z.string(),
  digest: z.string(),
  /** of its chain from the bottom; `existed`: it was here already */
  snapshots: z.array(z.object({ tag: tagSchema, existed: z.boolean() })),
  /** what was fetched; the rest was here */
  moved_bytes: z.number(),
  duration_ms: z.number(),
  /** what its signatures are worth here */
  trust: z.object({
    policy: trustPolicySchema,
    /**
     * signed: a pinned key has signed it; unsigned: it has no signature; untrusted: none by a pinned key;
     * unchecked: the policy is off, or they could not be read
     */
    outcome: z.enum(["signed", "unsigned", "untrusted", "unchecked"]),
    /** fingerprint of the key */
    signer: z.string().optional(),
    /** the same as a sentence */
    text: z.string(),
  }),
  /** it was built here from its recipe, because this host cannot restore it */
  rebuilt: z.boolean(),
  snapshot: snapshotSchema,
});
export type PullResult = z.output<typeof pulledSchema>;

/** One line of the stream that a push writes. */
const pushEventSchema = z.discriminatedUnion("type", [
  transferProgressSchema,
  z.object({ type: z.literal("pushed"), push: pushedSchema }),
  errorEventSchema,
]);
export type PushEvent = z.output<typeof pushEventSchema>;

/** One line of the stream that a pull writes. */
const pullEventSchema = z.discriminatedUnion("type", [
  transferProgressSchema,
  z.object({ type: z.literal("pulled"), pull: pulledSchema }),
  errorEventSchema,
]);
export type PullEvent = z.output<typeof pullEventSchema>;

const searchRequestSchema = z.strictObject({
  registry: z
    .string()
    .min(1)
    .max(512)
    .optional()
    .meta({ description: "REGISTRY[/PREFIX]; default: the setting hub_registry" }),
  text: z.string().max(256).optional().meta({ description: "Only names that contain it" }),
  ...accessFields,
});
export type SearchRequest = z.output<typeof searchRequestSchema>;

const searchResultSchema = z.object({
  registry: z.string(),
  found: z.array(
    z.object({
      /** what `pull` takes */
      reference: z.string(),
      digest: z.string(),
      /** of all its blobs */
      total_bytes: z.number(),
      /** of the manifest; keys such as `forkd.snapshot.recipe` */
      annotations: z.record(z.string(), z.string()),
    }),
  ),
  /** there are more than were looked at */
  truncated: z.boolean(),
});
export type SearchResult = z.output<typeof searchResultSchema>;

const signRequestSchema = z.strictObject({
  reference: referenceSchema,
  digest: z
    .string()
    .regex(/^sha256:[0-9a-f]{64}$/, 'must be "sha256:" and 64 hexadecimal digits')
    .meta({
      description: "Of the manifest that was pushed",
    }),
  signature: z.string().min(1).max(1024).meta({ description: "Base64 of the signature, made by the caller" }),
  public_key: z.string().min(1).max(maxPublicKeyChars).meta({ description: "Its key, as PEM" }),
  ...accessFields,
});

const signedSchema = z.object({
  /** the repository and the digest */
  reference: z.string(),
  digest: z.string(),
  /** where the signatures of the manifest are */
  signature_tag: z.string(),
  /** of the key */
  fingerprint: z.string(),
});
export type SignResult = z.output<typeof signedSchema>;

const notKept = { refused: "a repeated call moves only what is missing" };

export const hubRoutes = {
  push: route({
    method: "post",
    path: "/v1/hub/push",
    summary: "Send a snapshot to a registry or to a URL; answers with lines of progress",
    status: 200,
    kind: "events",
    // It connects from the daemon's host to any address, and sends what guests had in memory.
    scope: "admin",
    idempotencyKey: notKept,
    input: pushRequestSchema,
    output: pushEventSchema,
  }),
  pull: route({
    method: "post",
    path: "/v1/hub/pull",
    summary: "Fetch a snapshot from a registry or a URL; answers with lines of progress",
    status: 200,
    kind: "events",
    scope: "admin",
    idempotencyKey: notKept,
    input: pullRequestSchema,
    output: pullEventSchema,
  }),
  signPushed: route({
    method: "post",
    path: "/v1/hub/sign",
    summary: "Attach a signature, made by the caller, to a snapshot in a registry",
    status: 200,
    kind: "json",
    scope: "admin",
    input: signRequestSchema,
    output: signedSchema,
  }),
  searchHub: route({
    // Not GET: credentials do not belong in a URL.
    method: "post",
    path: "/v1/hub/search",
    summary: "List the snapshots of a registry",
    status: 200,
    kind: "json",
    scope: "admin",
    audit: "read",
    input: searchRequestSchema,
    output: searchResultSchema,
  }),
} as const;
